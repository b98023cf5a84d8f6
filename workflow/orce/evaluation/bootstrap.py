"""Resampling items with replacement, by sampling how often each distinct pair occurs instead of sampling items.

How often each of C cells occurs among n items drawn with replacement is Multinomial(n, share of each cell): the same
bootstrap at a hundredth of the work. This module samples counts; orce.evaluation.metrics computes metrics from them.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from orce.evaluation.counts import Cells, Counts, Values, sum_groups

CHUNK = 2**20  # counts held at once, 8 MB
_ITEMS_FOR_A_CELL = 10


def draw(count: Counts, n_resamples: int, seed: int, chunk: int = CHUNK) -> Iterator[Counts]:
    """Counts [b, C] of resamples with replacement, in chunks that sum to n_resamples rows.

    One random stream fills the rows in order, so the chunk size (in counts) never changes a result.
    """
    rng = np.random.default_rng(seed)
    n, cells = int(count.sum()), len(count)
    # One binomial sample per cell costs as much as ten sampled and counted items: with many cells, sample items.
    of_item = np.repeat(np.arange(cells), count) if _ITEMS_FOR_A_CELL * cells > n else None
    step = max(1, chunk // max(cells if of_item is None else n, 1))
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        if of_item is None:
            yield rng.multinomial(n, count / n, size=size)
        else:
            drawn = of_item[rng.integers(0, n, size=(size, n))] + cells * np.arange(size)[:, None]
            yield np.bincount(drawn.ravel(), minlength=size * cells).reshape(size, cells)


def draw_pairs(a: Cells, b: Cells, n_resamples: int, seed: int) -> Iterator[tuple[Counts, Counts]]:
    """Like draw, for two measurements of the same items: both sides of a resample have the same items."""
    code, count = np.unique(a.of_item * len(b.count) + b.of_item, return_counts=True)
    of_a, of_b = np.divmod(code, len(b.count))
    for counts in draw(count, n_resamples, seed):
        yield sum_groups(counts, of_a), sum_groups(counts, of_b)


def draw_items(
    statistic: Callable[[NDArray], float | None], n: int, n_resamples: int, seed: int
) -> NDArray[np.float64]:
    """A statistic of item numbers [n] on each resample, one at a time, for metrics not written on counts."""
    rng = np.random.default_rng(seed)
    values = (statistic(rng.integers(0, n, n)) for _ in range(n_resamples))
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def interval(values: NDArray[np.float64], level: float) -> tuple[float, float] | None:
    """Percentile interval of resampled values; nan marks undefined ones. None if more than half are undefined."""
    defined = values[~np.isnan(values)]
    if len(defined) == 0 or 2 * len(defined) < len(values):
        return None
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


CLEAR = 3  # standard errors from which on the sign of a gap counts as known
WIDER = 20  # items; errors grow by the root of 1 + WIDER / n, as a bin of few items hides part of its own variance


def gap_interval(value: float, gaps: Values, resampled: Values, n: int, level: float) -> tuple[float, float]:
    """Interval of value = sum |g| from estimated gaps [G] and resampled gaps [B, G] of n items; it contains the value.

    Noise makes sum |g| too large, and on resamples a second time, so percentiles of it fail where gaps are near 0.
    |estimate| - |g| is at most |estimate - g|, and equals the signed error where g is far from 0: this bounds the lower
    end. |g| - |estimate| is at most the error in the direction of g's sign, a sum in which errors cancel: this bounds the
    upper end. docs/metrics.md, "Intervals", has the coverage in simulations.
    """
    error = (resampled - gaps) * np.sqrt(1 + WIDER / n)
    signed = error * np.where(gaps < 0, -1.0, 1.0)
    clear = np.abs(gaps) > CLEAR * error.std(axis=0)
    too_high = np.where(clear, signed, np.abs(error)).sum(axis=1)
    too_low = np.maximum(-signed.sum(axis=1), np.abs(error.sum(axis=1)))
    share = (1 + level) / 2
    below, above = max(float(np.quantile(too_high, share)), 0.0), max(float(np.quantile(too_low, share)), 0.0)
    return max(value - below, 0.0), min(value + above, 1.0)
