"""The bootstrap over items (paper, section Experiment, "Evaluation metrics"): intervals of metrics
and of their differences.

How often each of C cells occurs among n items drawn with replacement is Multinomial(n, share of
each cell). Drawing these counts is the same bootstrap at a hundredth of the work.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike

from orce.metrics.counts import Cells, Counts, Metric, Tally, Values, sum_groups
from orce.metrics.definitions import ALL, NAMES, named

LEVEL = 0.95
N_RESAMPLES = 1000
Interval = tuple[float, float] | None  # low and high
CHUNK = 2**18  # counts at once: 2 MB, which fit into a core's cache


def draw(count: Counts, n_resamples: int, seed: int, chunk: int = CHUNK) -> Iterator[Counts]:
    """Counts [b, C] of resamples with replacement, in chunks that sum to n_resamples rows.

    count [C]: the items in each cell. One random stream fills the rows in order, so the chunk size
    (in counts) never changes what is drawn.
    """
    rng = np.random.default_rng(seed)
    n = int(count.sum())
    cells = len(count)
    # A binomial draw for a cell takes as long as drawing and counting ten items.
    by_item = 10 * cells > n
    item_cell = np.repeat(np.arange(cells), count)
    step = max(1, chunk // max(n if by_item else cells, 1))
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        if not by_item:
            yield rng.multinomial(n, count / n, size=size)
            continue
        drawn = item_cell[rng.integers(0, n, size=(size, n))]
        drawn += cells * np.arange(size)[:, None]  # other cells for each resample
        yield np.bincount(drawn.ravel(), minlength=size * cells).reshape(size, cells)


def interval(values: Values) -> Interval:
    """Percentile interval of resampled values; nan marks undefined ones. None if more than half are
    undefined.
    """
    defined = values[~np.isnan(values)]
    if len(defined) == 0 or 2 * len(defined) < len(values):
        return None
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


CLEAR = 3  # a gap of more standard errors than this has a known sign
# Errors grow by the root of 1 + WIDER / n: a bin of few items hides part of its own variance.
WIDER = 20


def gap_interval(value: float, gaps: Values, resampled: Values, n: int) -> Interval:
    """Interval, around the value, of value = sum |g| from gaps g [G] and resampled gaps [B, G] of n
    items. None for a value that is not this sum, such as their maximum.

    docs/metrics.md, "Intervals", says why percentiles fail, and has the coverage in simulations.
    The errors of a resample bound how far the value is off:

    - Too high: |estimate| - |g| is at most |estimate - g|, and is the signed error where g is far
      from 0. This gives the lower end.
    - Too low: |g| - |estimate| is at most the error in the direction of g's sign, and these errors
      cancel in the sum. This gives the upper end.
    """
    if not math.isclose(value, np.abs(gaps).sum(), rel_tol=1e-9, abs_tol=1e-12):
        return None
    error = (resampled - gaps) * np.sqrt(1 + WIDER / n)
    signed = error * np.where(gaps < 0, -1.0, 1.0)
    clear = np.abs(gaps) > CLEAR * error.std(axis=0)
    too_high = np.where(clear, signed, np.abs(error)).sum(axis=1)
    too_low = np.maximum(-signed.sum(axis=1), np.abs(error.sum(axis=1)))
    below = max(float(np.quantile(too_high, (1 + LEVEL) / 2)), 0.0)
    above = max(float(np.quantile(too_low, (1 + LEVEL) / 2)), 0.0)
    return max(value - below, 0.0), min(value + above, 1.0)


def intervals(
    metrics: Mapping[str, Metric], cells: Cells, n_resamples: int, seed: int
) -> dict[str, Interval]:
    """The interval of each metric, all from the same resamples: by its gaps where it has them, else
    by percentiles.

    The metrics must be defined on the items themselves. None for one that is undefined on more than
    half of the resamples, or whose gaps do not sum to it.
    """
    chunks = {name: [] for name in metrics}
    for counts in draw(cells.count, n_resamples, seed):
        tally = Tally(cells, counts)
        for name, metric in metrics.items():
            chunks[name].append(metric.gaps(tally) if metric.gaps else tally.of(metric))
    items = Tally(cells)
    bounds: dict[str, Interval] = {}
    for name, metric in metrics.items():
        resampled = np.concatenate(chunks[name])
        if metric.gaps:
            value = float(items.of(metric)[0])
            bounds[name] = gap_interval(value, metric.gaps(items)[0], resampled, cells.n)
        else:
            bounds[name] = interval(resampled)
    return bounds


def resample_differences(
    names: Iterable[str], a: Cells, b: Cells, n_resamples: int, seed: int
) -> dict[str, Values]:
    """Each metric of a minus the metric of b, on the same resamples of the items: {name:
    [n_resamples]}, nan if undefined.

    a, b: the Cells (`ALL[name].read`) of two measurements of the same n items, in the same order.
    """
    # The distinct pairs (cell in a, cell in b), so that one draw resamples the items of both.
    code, count = np.unique(a.item_cell * len(b.count) + b.item_cell, return_counts=True)
    group_a, group_b = np.divmod(code, len(b.count))
    chunks = {name: [] for name in names}
    for counts in draw(count, n_resamples, seed):
        tally_a = Tally(a, sum_groups(counts, group_a))
        tally_b = Tally(b, sum_groups(counts, group_b))
        for name, differences in chunks.items():
            differences.append(tally_a.of(ALL[name]) - tally_b.of(ALL[name]))
    return {name: np.concatenate(differences) for name, differences in chunks.items()}


def bootstrap(
    metric: str | Callable,
    confidence: ArrayLike,
    target: ArrayLike,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Interval:
    """95 % interval (low, high) of a metric over items drawn with replacement; None where there is
    none (docs/metrics.md).

    metric: a name in ALL, or one of this package's metrics.
    """
    measure = named(metric)
    cells = measure.read(confidence, target)
    if measure.why_undefined(cells):
        return None
    return intervals({"": measure}, cells, n_resamples, seed)[""]


def paired_bootstrap(
    metric: str | Callable,
    confidence_a,
    correct_a,
    confidence_b,
    correct_b,
    n_resamples: int = N_RESAMPLES,
    seed=0,
) -> dict[str, float | None]:
    """Metric of method a minus the metric of method b, on the same n items in the same order:
    {difference, low, high, p}.

    metric: as in bootstrap. p: two-sided. All four are None where the metric is undefined for a or
    b, or for most resamples; for ECE low, high and p are None (docs/metrics.md, "Intervals").
    """
    measure = named(metric)
    a = measure.read(confidence_a, correct_a)
    b = measure.read(confidence_b, correct_b)
    if a.n != b.n:
        raise ValueError(f"a and b must be the same items, not {a.n} and {b.n} of them")
    result: dict[str, float | None] = dict.fromkeys(("difference", "low", "high", "p"))
    value_a = measure.value(a)
    value_b = measure.value(b)
    if value_a is None or value_b is None:
        return result
    difference = value_a - value_b
    if measure.gaps:
        return result | {"difference": difference}
    (values,) = resample_differences([NAMES[measure]], a, b, n_resamples, seed).values()
    bounds = interval(values)
    if bounds is None:
        return result
    low, high = bounds
    # Rounding must not turn two equal methods into a "difference" of 1e-17 with p near 0.
    defined = values[~np.isnan(values)]
    not_above = np.count_nonzero(defined <= 1e-12)
    not_below = np.count_nonzero(defined >= -1e-12)
    p = min(1.0, 2 * (min(not_above, not_below) + 1) / (len(defined) + 1))
    return {"difference": difference, "low": low, "high": high, "p": p}
