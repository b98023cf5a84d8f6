"""Intervals from counts of distinct pairs, against a loop that resamples the items."""

from collections.abc import Iterator

import numpy as np

from benchmarks.timing import Row, compare
from orce import metrics
from orce.metrics import summarise

TITLE = "10,000 bootstrap resamples of 14,042 items"
ITEMS, RESAMPLES, SAMPLE = 14_042, 10_000, 50


def run(options) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    confidence = np.clip(np.rint(100 * rng.beta(2, 1, ITEMS)), 0, 100) / 100
    correct = rng.random(ITEMS) < confidence
    for name in ("ece", "spearman", "aurc", "auroc"):
        yield _row(name, [name], confidence, correct, options.repeats)
    # As metrics.json is made: every metric on the same resamples.
    yield _row("all eleven metrics of metrics.json", list(metrics.METRICS), confidence, correct, options.repeats)
    # As `evaluation.readout: mean` makes them: no two confidences are the same.
    apart = rng.beta(2, 1, ITEMS)
    yield _row("all eleven, every confidence different", list(metrics.METRICS), apart, correct, 1, wanted=None)


def _row(title: str, names: list[str], confidence, correct, repeats: int, wanted: float | None = 50) -> Row:
    def ours():
        if len(names) == 1:
            return metrics.bootstrap(names[0], confidence, correct, RESAMPLES)
        return summarise(confidence, correct, n_resamples=RESAMPLES)

    def plain():
        rng = np.random.default_rng(0)
        for _ in range(SAMPLE):
            drawn = rng.integers(0, ITEMS, ITEMS)
            for name in names:
                metrics.METRICS[name](confidence[drawn], correct[drawn])

    return compare(title, ours, plain, repeats, scale=RESAMPLES / SAMPLE, wanted=wanted)
