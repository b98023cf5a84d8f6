"""E-AURC of resampled items, fast, and the hierarchical bootstrap over answer models, seeds and items."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


class Curve:
    """E-AURC of one arm's confidence [n] and correct [n], for any multiplicities of the items.

    Ties take the expectation over their orders, as orce.metrics.aurc does: for the j-th of m tied items with e errors,
    after N items with E errors, (E + e j / m) / (N + j).
    """

    def __init__(self, confidence: NDArray, correct: NDArray):
        order = np.argsort(-confidence, kind="stable")
        ordered = confidence[order]
        first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        self.order, self.first, self.wrong = order, first, ~correct[order]

    def e_aurc(self, counts: NDArray[np.int64]) -> float:
        """E-AURC when item i is there counts[i] times."""
        weights = counts[self.order]
        m = np.add.reduceat(weights, self.first)
        e = np.add.reduceat(weights * self.wrong, self.first)
        n = int(m.sum())
        harmonic = _harmonic(n)
        before, errors = np.cumsum(m) - m, np.cumsum(e) - e
        tails = harmonic[before + m] - harmonic[before]
        share = np.divide(e, m, out=np.zeros(len(m)), where=m > 0)
        area = (errors * tails + share * (m - before * tails)).sum() / n
        k = int(e.sum())  # the best order has the k wrong ones last: (1/n) sum_{j=1..k} j / (n - k + j)
        best = (k - (n - k) * (harmonic[n] - harmonic[n - k])) / n
        return float(area - best)


_TABLE = np.zeros(1)


def _harmonic(n: int) -> Values:
    """H(0), H(1), .., H(n) at least."""
    global _TABLE
    if len(_TABLE) <= n:
        _TABLE = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, 2 * n + 1))])
    return _TABLE


Cells = dict[str, dict[int, dict[str, Curve]]]  # answer model -> seed -> arm -> curve


def e_aurcs(cells: Cells, arms: Sequence[str]) -> dict[str, NDArray]:
    """{answer model: E-AURC [seeds, arms]} of all items, each once."""
    return {
        model: np.array(
            [
                [_curve(found, arm).e_aurc(np.ones(len(_curve(found, arm).order), int)) for arm in arms]
                for found in seeds.values()
            ]
        )
        for model, seeds in cells.items()
    }


def _curve(found: dict[str, Curve], arm: str) -> Curve:
    return found[arm]


def replicates(cells: Cells, arms: Sequence[str], resamples: int, seed: int = 0) -> list[dict[str, NDArray]]:
    """Resampled E-AURCs: for each resample {answer model: [seeds, arms]}, the items of an answer model drawn once.

    All seeds of an answer model are tested on the same questions and answers, so they share the drawing.
    """
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        one = {}
        for model, seeds in cells.items():
            n = len(next(iter(next(iter(seeds.values())).values())).order)
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


def interval(resampled: NDArray, level: float = 0.95) -> tuple[float, float]:
    """The percentile interval."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


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
