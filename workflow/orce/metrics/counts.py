"""Items as counts of their distinct (confidence, target) pairs, and what a metric is: a function of
such counts.

Confidence is stated in integer percents and an answer is right or wrong, so 14,042 items have at
most 202 distinct pairs, here called cells. A bootstrap resample only changes how often each cell
occurs. So a metric is written once, on counts [B, C] of B resamples of C cells; the original items
are one row of counts. Nothing computed from counts depends on the order of the items, not even in
the last bit.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.int64]
Values = NDArray[np.float64]
# A confidence of 0 or 1 counts as half a percent less extreme: its logarithm is finite.
MARGIN = 0.005
LARGEST = 3_000_000  # items up to which sums of squared doubled ranks fit into 64 bits


def as_finite(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """The values as float64; ValueError for masked arrays, text, nan and infinity."""
    if np.ma.isMaskedArray(values):
        raise ValueError(f"{name} is a masked array; leave its masked items out first")
    if isinstance(values, Iterable) and not hasattr(values, "__array__"):
        # numpy takes an iterator, or a mapping's values, for a single object.
        values = np.array(list(values))
    array = np.asarray(values)
    if array.dtype == object and array.ndim == 1:
        # pandas.NA has no float; compared by name, as pandas need not be installed
        is_missing = [type(element).__name__ == "NAType" for element in array]
        array = np.where(is_missing, np.nan, array)
    # numpy would read the text "0.5" as a number; an array of objects may hold both.
    may_have_text = array.dtype.kind in "USO"
    if may_have_text and any(isinstance(element, str | bytes) for element in array.ravel()):
        raise ValueError(f"{name} has text; expected numbers")
    array = array.astype(np.float64)
    unread = np.count_nonzero(~np.isfinite(array))
    if unread:
        raise ValueError(
            f"{name} has {unread} values that are not finite numbers; replace unread ones first"
        )
    return whole_percents(array)


def whole_percents(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values, with the percent where one is a percent's float32 or float16: 0.699999988 is 0.7,
    as it was written.
    """
    percents = np.rint(100 * np.clip(values, 0, 1)) / 100
    if (values == percents).all():
        return percents
    single = values == percents.astype(np.float32)
    half = values == percents.astype(np.float16)
    return np.where(single | half, percents, values)


def as_unit(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """The values as float64; ValueError unless all are numbers from 0 to 1."""
    array = as_finite(values, name)
    if array.size and (array.min() < 0 or array.max() > 1):
        raise ValueError(f"{name} must lie in [0, 1], not {array.min()} to {array.max()}")
    return array


def as_labels(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """The values as float64; ValueError unless each is 0 or 1."""
    array = as_finite(values, name)
    valid = np.isin(array, (0, 1))
    if not valid.all():
        raise ValueError(f"{name} must be 0 or 1, not {array[~valid][0]}")
    return array


def clear_of_ends(confidence: ArrayLike) -> NDArray[np.float64]:
    """Confidences in [0, 1], kept MARGIN away from 0 and 1."""
    return np.clip(np.asarray(confidence, float), MARGIN, 1 - MARGIN)


def as_exact(n: int, counts: NDArray[np.int64]) -> NDArray:
    """Counts whose sums of three factors up to n are exact: Python's integers where 64 bits would
    not hold n^3 / 3.
    """
    return counts.astype(object) if n > LARGEST else counts


@dataclass(frozen=True, eq=False)
class Cells:
    """The distinct (confidence, target) pairs of n items, and how often each occurs.

    confidence [V] and target [T] hold the distinct values, ascending; row and column [C] index them
    for each cell, by which cells are sorted; count [C] is the number of items in each cell, at
    least 1; item_cell [n] is the cell of each item.
    """

    confidence: Values
    target: Values
    row: Counts
    column: Counts
    count: Counts
    item_cell: Counts

    @property
    def n(self) -> int:
        return len(self.item_cell)


def tabulate(confidence: ArrayLike, target: ArrayLike) -> Cells:
    """Cells of confidence [n] and target [n], compared without rounding. ValueError for other
    shapes, nan or infinity.
    """
    confidence = as_finite(confidence, "confidence")
    target = as_finite(target, "target")
    if confidence.ndim != 1 or confidence.shape != target.shape:
        raise ValueError(
            f"expected two arrays [n] of one length, not {confidence.shape} and {target.shape}"
        )
    values, row = np.unique(confidence, return_inverse=True)
    targets, column = np.unique(target, return_inverse=True)
    # One integer for each pair, in the order of rows and then columns.
    width = max(len(targets), 1)
    code, item_cell, count = np.unique(
        row * width + column, return_inverse=True, return_counts=True
    )
    return Cells(values, targets, *np.divmod(code, width), count.astype(np.int64), item_cell)


def labelled_cells(confidence: ArrayLike, correct: ArrayLike) -> Cells:
    """Cells of any confidences and correctness 0 or 1; ValueError otherwise."""
    return tabulate(confidence, as_labels(correct, "correct"))


def probability_cells(confidence: ArrayLike, correct: ArrayLike) -> Cells:
    """Cells of confidences in [0, 1] and correctness 0 or 1; ValueError otherwise."""
    return labelled_cells(as_unit(confidence, "confidence"), correct)


class Tally:
    """Counts [B, C] of cells in B resamples (by default the items themselves, as one row), and the
    sums of which metrics are made.

    stated and target [C] are the confidence and the target of each cell. total, right and wrong
    [B, V] are the items, the right and the wrong answers at each confidence, ascending; n_right and
    n_wrong [B] are those at any confidence.
    """

    def __init__(self, cells: Cells, counts: Counts | None = None):
        if counts is None:
            counts = cells.count[None]
        self.cells = cells
        self.n = cells.n
        self.counts = counts
        self.stated = cells.confidence[cells.row]
        self.target = cells.target[cells.column]
        self.total = sum_groups(counts, cells.row)
        self.right = sum_groups(counts * (self.target == 1), cells.row)
        self.wrong = self.total - self.right
        self.n_right = self.right.sum(axis=1)
        self.n_wrong = self.n - self.n_right
        self._values: dict[Metric, Values] = {}

    @cached_property
    def per_target(self) -> Counts:
        """Items with each target, ascending: [B, T]."""
        return sum_groups(self.counts, self.cells.column)

    def of(self, metric: "Metric") -> Values:
        """A metric of each resample [B], nan where undefined; kept, as metrics share others."""
        if metric not in self._values:
            self._values[metric] = metric.compute(self)
        return self._values[metric]

    def mean(self, values: Values) -> Values:
        """Mean over the items of each resample, [B], of one value per cell, [C]."""
        return (self.counts @ values) / self.n


def below(counts: NDArray) -> NDArray:
    """The sum of counts [B, V] at all lower values, for each value."""
    return counts.cumsum(axis=1) - counts


def above(counts: NDArray) -> NDArray:
    """The sum of counts [B, V] at all higher values, for each value."""
    up_to = counts.cumsum(axis=1)
    return up_to[:, -1:] - up_to


def sum_groups(counts: Counts, group: Counts) -> Counts:
    """The sums of the columns of counts [B, C] that share a group number [C]: [B, G]. Every number
    from 0 to G - 1 must occur.
    """
    if np.any(group[1:] < group[:-1]):
        order = np.argsort(group, kind="stable")
        group = group[order]
        counts = counts.take(order, axis=1)
    last = np.flatnonzero(np.diff(group, append=len(group)))  # column of each group
    if len(last) == len(group):
        return counts
    # Of integers, so exact; with many groups faster than np.add.reduceat.
    sums = counts.cumsum(axis=1).take(last, axis=1)
    sums[:, 1:] -= sums[:, :-1]
    return sums


def _always_defined(cells: Cells) -> str | None:
    return None


@dataclass(eq=False)
class Metric:
    """A metric: call it with confidence [n] and target [n] for its value, None where it is
    undefined. Decorates `compute`.

    compute computes it on each resample of a Tally, [B], nan where undefined. read makes Cells of
    the two arrays, with ValueError for values outside the metric's domain. undefined says why it
    has no value, for a footnote. gaps gives signed parts [B, G] of a metric of their sizes, which
    noise makes larger, so that percentiles miss its true value. The interval of their sum, such as
    ECE, is computed from them (resampling.gap_interval); another, such as their maximum, has none.
    A difference of either has no interval.
    """

    compute: Callable[[Tally], Values]
    read: Callable[[ArrayLike, ArrayLike], Cells] = labelled_cells
    undefined: Callable[[Cells], str | None] = _always_defined
    gaps: Callable[[Tally], Values] | None = None

    def __post_init__(self):
        self.__name__ = self.compute.__name__
        self.__doc__ = self.compute.__doc__

    def __call__(self, confidence: ArrayLike, target: ArrayLike) -> float | None:
        return self.value(self.read(confidence, target))

    def value(self, cells: Cells) -> float | None:
        return None if self.why_undefined(cells) else float(Tally(cells).of(self)[0])

    def why_undefined(self, cells: Cells) -> str | None:
        return self.undefined(cells) if cells.n else "there are no items"
