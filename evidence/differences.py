"""Differences between two methods on the same items, seed by seed and pooled.

The pooled interval is that of a stratified paired bootstrap: items are drawn with replacement within each seed, the same
ones for both methods, and the differences are averaged over the seeds. It says how sure the average over these seeds is
given other test items; how far the seeds lie apart stands beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evidence.cells import STATED, Cell, Results
from orce.errors import BadInput
from orce.evaluation import metrics
from orce.evaluation.bootstrap import interval

RESAMPLES = 10_000
METRICS = ("spearman", "aurc", "e_aurc")
Side = tuple[np.ndarray, np.ndarray]  # confidence [n], correct [n]


class Comparison(NamedTuple):
    """`method` of `variant` less `other_method` of `other_variant`, on one dataset."""

    dataset: str
    variant: str
    method: str
    other_variant: str
    other_method: str


@dataclass(frozen=True)
class Difference:
    """each: by seed, None where the metric is undefined; then mean and interval (low, high) are None too."""

    each: dict[int, float | None]
    mean: float | None
    interval: tuple[float, float] | None


class Differences:
    """All differences that are asked for, each computed once."""

    def __init__(self, results: Results, n_resamples: int = RESAMPLES):
        self.results, self.n_resamples, self.found = results, n_resamples, {}

    def __call__(self, asked: Comparison) -> dict[str, Difference]:
        """By metric, over the seeds that have both sides; {} where none has."""
        if asked not in self.found:
            one = self.results.over_seeds(asked.variant, asked.dataset, asked.method)
            other = self.results.over_seeds(asked.other_variant, asked.dataset, asked.other_method)
            both = {seed: (_side(one[seed]), _side(other[seed])) for seed in one if seed in other}
            for seed in both:
                if one[seed].ids != other[seed].ids:
                    raise BadInput(f"{asked}: seed {seed} was evaluated on different items")
            self.found[asked] = pooled(both, self.n_resamples) if both else {}
        return self.found[asked]


def _side(cell: Cell) -> Side:
    return cell.confidence[STATED], cell.correct


def pooled(strata: Mapping[int, tuple[Side, Side]], n_resamples: int = RESAMPLES) -> dict[str, Difference]:
    """First side less second side, by metric; `strata`: both sides on the same items, by seed."""
    read = metrics.METRICS["aurc"].read  # answers judged right or wrong: what all three metrics read
    resampled = [
        metrics.resample_differences(METRICS, read(*one), read(*other), n_resamples, seed)
        for seed, (one, other) in strata.items()
    ]
    found = {}
    for name in METRICS:
        each = {seed: _point(name, one, other) for seed, (one, other) in strata.items()}
        if None in each.values():
            found[name] = Difference(each, None, None)
            continue
        drawn = np.mean([values[name] for values in resampled], axis=0)
        found[name] = Difference(
            each, float(np.mean(np.array([*each.values()], float))), interval(drawn, metrics.LEVEL)
        )
    return found


def _point(name: str, one: Side, other: Side) -> float | None:
    a, b = (metrics.METRICS[name](*side) for side in (one, other))
    return None if a is None or b is None else a - b
