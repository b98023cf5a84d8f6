"""E-AURC of resampled items, fast, and the hierarchical bootstrap over answer models, seeds and items."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from orce.evaluation import bootstrap
from orce.evaluation.counts import Tally
from orce.evaluation.metrics import ALL

E_AURC = ALL["e_aurc"]


def interval(values: NDArray) -> tuple[float, float]:
    """95 % percentile interval of resampled values."""
    bounds = bootstrap.interval(values, 0.95)
    assert bounds is not None, "undefined on more than half of the resamples"
    return bounds


class Curve:
    """E-AURC of one arm's confidence [n] and correct [n], for any multiplicities of the items that sum to n."""

    def __init__(self, confidence: NDArray, correct: NDArray):
        self.cells = E_AURC.read(confidence, correct)

    def e_aurc(self, counts: NDArray[np.int64]) -> float:
        """E-AURC when item i is there counts[i] times."""
        of_cell = np.bincount(self.cells.of_item, counts, len(self.cells.count)).astype(np.int64)
        return float(Tally(self.cells, of_cell[None]).of(E_AURC)[0])


Cells = dict[str, dict[int, dict[str, Curve]]]  # answer model -> seed -> arm -> curve


def e_aurcs(cells: Cells, arms: Sequence[str]) -> dict[str, NDArray]:
    """{answer model: E-AURC [seeds, arms]} of all items, each once."""
    return {
        model: np.array([[E_AURC.value(found[arm].cells) for arm in arms] for found in seeds.values()])
        for model, seeds in cells.items()
    }


def replicates(cells: Cells, arms: Sequence[str], resamples: int, seed: int = 0) -> list[dict[str, NDArray]]:
    """Resampled E-AURCs: for each resample {answer model: [seeds, arms]}, the items of an answer model drawn once.

    All seeds of an answer model are tested on the same questions and answers, so they share the drawing.
    """
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        one = {}
        for model, seeds in cells.items():
            n = next(iter(next(iter(seeds.values())).values())).cells.n
            counts = np.bincount(rng.integers(0, n, n), minlength=n)
            one[model] = np.array([[found[arm].e_aurc(counts) for arm in arms] for found in seeds.values()])
        drawn.append(one)
    return drawn


def hierarchical(
    statistic: Callable[[NDArray], NDArray],
    cells: Cells,
    arms: Sequence[str],
    drawn: list[dict[str, NDArray]],
    redraws: int = 10,
    seed: int = 1,
) -> tuple[NDArray, NDArray]:
    """(value, resampled values [resamples x redraws, ...]) of a statistic's mean over answer models of means over seeds.

    statistic: E-AURC [seeds, arms] -> [seeds, ...]. Answer models are drawn with replacement, then seeds within each,
    then items within each (`drawn`, of which every resample is used `redraws` times with other models and seeds).
    """
    rng = np.random.default_rng(seed)
    models = list(cells)
    plain = e_aurcs(cells, arms)
    value = np.mean([statistic(plain[model]).mean(0) for model in models], axis=0)
    found = []
    for one in drawn:
        values = {model: statistic(one[model]) for model in models}
        for _ in range(redraws):
            chosen = [models[i] for i in rng.integers(0, len(models), len(models))]
            means = [values[name][rng.integers(0, len(values[name]), len(values[name]))].mean(0) for name in chosen]
            found.append(np.mean(means, axis=0))
    return value, np.array(found)


def p_value(resampled: NDArray) -> float:
    """Two-sided: twice the smaller share of resampled differences on either side of zero, never below 1 / resamples."""
    n = len(resampled)
    return min(1.0, 2 * max(1, min((resampled <= 0).sum(), (resampled >= 0).sum())) / n)


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """Holm's adjusted p-values."""
    adjusted, largest = {}, 0.0
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        adjusted[name] = largest
    return adjusted


def verdict(low: float, high: float, adjusted: float, margin: float) -> str:
    """better, worse, equal (the whole interval within the margin) or open; a difference below zero is better."""
    if adjusted < 0.05 and high < 0:
        return "better" if low < -margin or high < -margin else "better, by less than the margin"
    if adjusted < 0.05 and low > 0:
        return "worse" if high > margin else "worse, by less than the margin"
    return "no difference that matters" if -margin < low and high < margin else "open"
