"""Resampling items with replacement, by sampling how often each distinct pair occurs instead of
sampling items.

How often each of C cells occurs among n items drawn with replacement is Multinomial(n, share of
each cell): the same bootstrap at a hundredth of the work (paper, section Experiment, "Evaluation
metrics").
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
CHUNK = 2**18  # counts held at once: 2 MB, which a core's cache keeps at hand


def draw(count: Counts, n_resamples: int, seed: int, chunk: int = CHUNK) -> Iterator[Counts]:
    """Counts [b, C] of resamples with replacement, in chunks that sum to n_resamples rows.

    One random stream fills the rows in order, so the chunk size (in counts) never changes what is
    drawn.
    """
    rng = np.random.default_rng(seed)
    n = int(count.sum())
    cells = len(count)
    # One binomial sample per cell costs as much as ten sampled and counted items: with many cells,
    # sample items.
    item_cell = np.repeat(np.arange(cells), count) if 10 * cells > n else None
    step = max(1, chunk // max(cells if item_cell is None else n, 1))
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        if item_cell is None:
            yield rng.multinomial(n, count / n, size=size)
        else:
            drawn = item_cell[rng.integers(0, n, size=(size, n))] + cells * np.arange(size)[:, None]
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


CLEAR = 3  # standard errors from which on the sign of a gap counts as known
# Errors grow by the root of 1 + WIDER / n, as a bin of few items hides part of its own variance.
WIDER = 20


def gap_interval(value: float, gaps: Values, resampled: Values, n: int) -> tuple[float, float]:
    """Interval of value = sum |g| from estimated gaps [G] and resampled gaps [B, G] of n items; it
    contains the value.

    ValueError for a value that is not that sum, such as their maximum: it would get the interval of
        the sum.

    |estimate| - |g| is at most |estimate - g|, and equals the signed error where g is far from 0:
    this bounds the lower end. |g| - |estimate| is at most the error in the direction of g's sign, a
    sum in which errors cancel: this bounds the upper end. docs/metrics.md, "Intervals", says why
    percentiles fail, and has the coverage in simulations.
    """
    total = float(np.abs(gaps).sum())
    if not math.isclose(value, total, rel_tol=1e-9, abs_tol=1e-12):
        raise ValueError(
            f"the gaps of a metric must sum to it in size, and {total} is not {value}; "
            "leave `gaps` out, for an interval of percentiles"
        )
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
    """The interval of each metric, all from the same resamples: of gaps for ECE, else of
    percentiles.

    A metric must be defined on the items themselves. None if it is undefined on more than half of
    the resamples.
    """
    drawn = {name: [] for name in metrics}
    for counts in draw(cells.count, n_resamples, seed):
        tally = Tally(cells, counts)
        for name, metric in metrics.items():
            drawn[name].append(metric.gaps(tally) if metric.gaps else tally.of(metric))
    items = Tally(cells)
    bounds: dict[str, Interval] = {}
    for name, metric in metrics.items():
        resampled = np.concatenate(drawn[name])
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
    differences = {name: [] for name in names}
    for counts in draw(count, n_resamples, seed):
        tally_a = Tally(a, sum_groups(counts, group_a))
        tally_b = Tally(b, sum_groups(counts, group_b))
        for name, chunks in differences.items():
            chunks.append(tally_a.of(ALL[name]) - tally_b.of(ALL[name]))
    return {name: np.concatenate(chunks) for name, chunks in differences.items()}


def bootstrap(
    metric: str | Callable,
    confidence: ArrayLike,
    target: ArrayLike,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Interval (low, high) of a metric over items drawn with replacement; None where the metric has
    none (docs/metrics.md).

    metric: a name in ALL, or one of this package's metrics.
    """
    known = named(metric)
    cells = known.read(confidence, target)
    if known.why_undefined(cells):
        return None
    return intervals({"": known}, cells, n_resamples, seed)[""]


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

    metric: as in bootstrap. p: two-sided. All four are None if it is undefined on either side; for
    ECE low, high and p are None (docs/metrics.md, "Intervals").
    """
    known = named(metric)
    a = known.read(confidence_a, correct_a)
    b = known.read(confidence_b, correct_b)
    if a.n != b.n:
        raise ValueError(f"a and b must be the same items, not {a.n} and {b.n} of them")
    nothing: dict[str, float | None] = dict.fromkeys(("difference", "low", "high", "p"))
    value_a = known.value(a)
    value_b = known.value(b)
    if value_a is None or value_b is None:
        return nothing
    if known.gaps:
        return nothing | {"difference": value_a - value_b}
    (values,) = resample_differences([NAMES[known]], a, b, n_resamples, seed).values()
    bounds = interval(values)
    if bounds is None:
        return nothing
    # Rounding must not turn two equal methods into a "difference" of 1e-17 with p near 0.
    defined = values[~np.isnan(values)]
    not_above = int((defined <= 1e-12).sum())
    not_below = int((defined >= -1e-12).sum())
    smaller = min(not_above, not_below)
    p = min(1.0, 2 * (smaller + 1) / (len(defined) + 1))
    return {"difference": value_a - value_b, "low": bounds[0], "high": bounds[1], "p": p}
