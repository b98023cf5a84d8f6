"""Resampling items with replacement, by drawing the counts of distinct items instead of the items.

Confidence is stated in integer percents and an answer is right or wrong, so 14,042 items are at most 202 distinct
pairs. How often each pair comes up among n items drawn with replacement is Multinomial(n, share of each pair), which is
the same bootstrap at a hundredth of the work. This module knows counts; orce.evaluation.metrics knows what to compute from them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Counts held at once (8 MB of int64). The draws come from one stream row by row, so this never changes a result.
_CHUNK = 2**20
_ITEMS_FOR_A_CELL = 10


@dataclass(frozen=True)
class Cells:
    """The distinct (confidence, target) pairs of a set of items, and how often each occurs.

    confidence [V] and target [T] hold the distinct values, ascending; row and column [C] say which of them a cell has;
    count [C] is how many items are in it, never 0; of_item [n] is the cell of each item. Cells are in the order of
    (row, column), so nothing computed from them depends on the order of the items.
    """

    confidence: NDArray[np.float64]
    target: NDArray[np.float64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    count: NDArray[np.int64]
    of_item: NDArray[np.int64]

    @property
    def n(self) -> int:
        return len(self.of_item)

    def by_confidence(self, counts: NDArray) -> NDArray:
        """Counts [B, C] summed to counts of each confidence [B, V]."""
        return _sum_groups(counts, self.row)

    def by_target(self, counts: NDArray) -> NDArray:
        """Counts [B, C] summed to counts of each target value [B, T]."""
        return _sum_groups(counts, self.column)


def tabulate(confidence: NDArray[np.float64], target: NDArray[np.float64]) -> Cells:
    """Two arrays [n] as Cells. Values are compared as they are, without rounding."""
    values, row = np.unique(confidence, return_inverse=True)
    targets, column = np.unique(target, return_inverse=True)
    code, of_item, count = np.unique(row * max(len(targets), 1) + column, return_inverse=True, return_counts=True)
    row, column = np.divmod(code, max(len(targets), 1))
    return Cells(values, targets, row, column, count.astype(np.int64), of_item)


def draw(count: NDArray[np.int64], n_resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Counts [b, C] of resamples with replacement, in chunks that sum to n_resamples rows."""
    rng = np.random.default_rng(seed)
    n, cells = int(count.sum()), len(count)
    # A binomial draw for each cell costs as much as ten items drawn and counted: many distinct values, item by item.
    of_item = np.repeat(np.arange(cells), count) if _ITEMS_FOR_A_CELL * cells > n else None
    step = max(1, _CHUNK // max(cells if of_item is None else n, 1))
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        if of_item is None:
            yield rng.multinomial(n, count / n, size=size)
        else:
            drawn = of_item[rng.integers(0, n, size=(size, n))] + cells * np.arange(size)[:, None]
            yield np.bincount(drawn.ravel(), minlength=size * cells).reshape(size, cells)


def draw_pairs(a: Cells, b: Cells, n_resamples: int, seed: int) -> Iterator[tuple[NDArray, NDArray]]:
    """Like draw, for two measurements of the same items: each resample has the same items on both sides."""
    code, count = np.unique(a.of_item * len(b.count) + b.of_item, return_counts=True)
    of_a, of_b = np.divmod(code, len(b.count))
    for counts in draw(count, n_resamples, seed):
        yield _sum_groups(counts, of_a), _sum_groups(counts, of_b)


def draw_items(
    statistic: Callable[[NDArray], float | None], n: int, n_resamples: int, seed: int
) -> NDArray[np.float64]:
    """A statistic of item numbers on each resample, one by one: for a metric that has no form on counts."""
    rng = np.random.default_rng(seed)
    values = (statistic(rng.integers(0, n, n)) for _ in range(n_resamples))
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def interval(values: NDArray[np.float64], level: float) -> tuple[float, float] | None:
    """Percentile interval of resampled values, nan marking those undefined; None if those are more than half."""
    defined = values[~np.isnan(values)]
    if len(defined) == 0 or 2 * len(defined) < len(values):
        return None
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def spread(sums: NDArray, group: NDArray[np.int64]) -> NDArray:
    """The sum [B, G] of each column's group, [B, C]."""
    return sums if _each_its_own(group) else sums[:, group]


def _sum_groups(counts: NDArray, group: NDArray[np.int64]) -> NDArray:
    """Sum the columns [B, C] that share a group number; every number from 0 on must occur."""
    if _each_its_own(group):
        return counts
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    return np.add.reduceat(counts[:, order], starts, axis=1)


def _each_its_own(group: NDArray[np.int64]) -> bool:
    return np.array_equal(group, np.arange(len(group)))
