"""Calibration and failure prediction (paper, section Experiment, "Evaluation metrics"), with bootstrap intervals.

Arrays in, floats out. A metric that a set of items does not define (every confidence the same, every answer right) is
None, never nan and never a silent 0; `undefined_reason` says why. Every value is computed from counts of distinct
(confidence, correct) pairs, so permuting the items changes nothing, not even the last bit. docs/metrics.md has the
definitions and where other code differs.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from orce.evaluation.bootstrap import Cells, draw, draw_items, draw_pairs, interval, spread, tabulate

LEVEL = 0.95
N_RESAMPLES = 1000

Counts = NDArray[np.int64]
Values = NDArray[np.float64]


# ---- reading the input


def _cells(confidence: ArrayLike, target: ArrayLike) -> Cells:
    confidence = np.asarray(confidence, dtype=np.float64)
    target = np.asarray(target, dtype=np.float64)
    if confidence.ndim != 1 or confidence.shape != target.shape:
        raise ValueError(f"expected two arrays [n] of one length, not {confidence.shape} and {target.shape}")
    for side, name in ((confidence, "confidence"), (target, "target")):
        unread = int((~np.isfinite(side)).sum())
        if unread:
            raise ValueError(f"{name} has {unread} values that are no finite number; give unread ones a value first")
    return tabulate(confidence, target)


def _judged(confidence: ArrayLike, correct: ArrayLike) -> Cells:
    cells = _cells(confidence, correct)
    if not np.isin(cells.target, (0, 1)).all():
        raise ValueError(f"correct must be 0 or 1, not {cells.target[~np.isin(cells.target, (0, 1))][0]}")
    return cells


def _stated(confidence: ArrayLike, correct: ArrayLike) -> Cells:
    cells = _judged(confidence, correct)
    if cells.n and (cells.confidence[0] < 0 or cells.confidence[-1] > 1):
        raise ValueError(f"confidence must lie in [0, 1], not {cells.confidence[0]} to {cells.confidence[-1]}")
    return cells


# ---- each metric on resamples: [B], nan where undefined


class Drawn:
    """Resamples of cells, as counts [B, C], with the sums [B, V] that several metrics share: each is computed once."""

    def __init__(self, cells: Cells, counts: Counts):
        self.cells, self.counts, self.n = cells, counts, cells.n

    @cached_property
    def total(self) -> Counts:
        """Items at each confidence, ascending."""
        return self.cells.by_confidence(self.counts)

    @cached_property
    def right(self) -> Counts:
        """Right answers at each confidence."""
        return self.cells.by_confidence(self.counts * self.cells.target[self.cells.column].astype(np.int64))

    @cached_property
    def up_to(self) -> Counts:
        """Items at or below each confidence."""
        return np.cumsum(self.total, axis=1)

    @cached_property
    def right_up_to(self) -> Counts:
        """Right answers at or below each confidence."""
        return np.cumsum(self.right, axis=1)

    @cached_property
    def aurc(self) -> Values:
        # sum_j (E + e j / m) / (N + j) in harmonic numbers: one step a tie instead of one an item.
        wrong, wrong_up_to = self.total - self.right, self.up_to - self.right_up_to
        above, errors_above = self.n - self.up_to, wrong_up_to[:, -1:] - wrong_up_to
        harmonic = _harmonic(self.n)
        rise = np.diff(-harmonic[above], axis=1, prepend=-harmonic[self.n])
        share = wrong / np.maximum(self.total, 1)
        return (errors_above * rise + share * (self.total - above * rise)).sum(axis=1) / self.n

    def mean(self, of_cell: Values) -> Values:
        """Mean over the items of a value [C] that each cell has."""
        return (self.counts @ of_cell) / self.n


def _ratio(numerator: NDArray, denominator: NDArray) -> Values:
    out = np.full(np.broadcast_shapes(np.shape(numerator), np.shape(denominator)), np.nan)
    return np.divide(numerator, denominator, out=out, where=denominator != 0)


def _accuracy(drawn: Drawn) -> Values:
    return drawn.mean(drawn.cells.target[drawn.cells.column])


def _mean(drawn: Drawn) -> Values:
    return drawn.mean(drawn.cells.confidence[drawn.cells.row])


def _brier(drawn: Drawn) -> Values:
    cells = drawn.cells
    return drawn.mean((cells.confidence[cells.row] - cells.target[cells.column]) ** 2)


def _ece(drawn: Drawn, n_bins: int = 10) -> Values:
    _, _, stated, right = _binned(drawn, n_bins)
    return np.abs(stated - right).sum(axis=1) / drawn.n


def _binned(drawn: Drawn, n_bins: int) -> tuple[Counts, Counts, Values, Counts]:
    """Numbers of the bins that hold items [N], then items, sum of confidence and right answers in each, all [B, N]."""
    # Integers throughout: 0.3 and the edge 3/10 are not the same float, 30 * 10 and 100 * 3 are the same integer.
    percent = np.rint(100 * drawn.cells.confidence).astype(np.int64)
    bins = np.maximum(-(-percent * n_bins // 100) - 1, 0)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    parts = (drawn.total, drawn.total * drawn.cells.confidence, drawn.right)
    return bins[starts], *(np.add.reduceat(part, starts, axis=1) for part in parts)


def _harmonic(n: int) -> Values:
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])


def _aurc(drawn: Drawn) -> Values:
    return drawn.aurc


def _optimum(drawn: Drawn) -> Values:
    n, wrong = drawn.n, drawn.n - drawn.right.sum(axis=1)
    harmonic = _harmonic(n)
    return (wrong - (n - wrong) * (harmonic[n] - harmonic[n - wrong])) / n


def _e_aurc(drawn: Drawn) -> Values:
    return np.maximum(drawn.aurc - _optimum(drawn), 0)  # only rounding can make it negative


def _e_aurc_analytic(drawn: Drawn) -> Values:
    return drawn.aurc - _analytic_optimum(1 - _accuracy(drawn))


def _auroc(drawn: Drawn) -> Values:
    right, wrong = drawn.right, drawn.total - drawn.right
    won = (right * (2 * (drawn.up_to - drawn.right_up_to) - wrong)).sum(axis=1)
    return _ratio(won, 2 * right.sum(axis=1) * wrong.sum(axis=1))


def _average_precision(positive: Counts, positive_so_far: Counts, so_far: Counts) -> Values:
    """Step-wise, one step a distinct score; `so_far`: at that score or one that comes before it."""
    precision = positive_so_far / np.maximum(so_far, 1)
    return _ratio((positive * precision).sum(axis=1), positive.sum(axis=1))


def _aupr(drawn: Drawn) -> Values:
    right_from = drawn.right_up_to[:, -1:] - drawn.right_up_to + drawn.right
    return _average_precision(drawn.right, right_from, drawn.n - drawn.up_to + drawn.total)


def _aupr_error(drawn: Drawn) -> Values:
    return _average_precision(drawn.total - drawn.right, drawn.up_to - drawn.right_up_to, drawn.up_to)


def _spearman(drawn: Drawn) -> Values:
    # Doubled, centred average ranks are integers, and so are all three sums (exact up to three million items).
    cells, p, q = drawn.cells, drawn.total, drawn.cells.by_target(drawn.counts)
    a = 2 * drawn.up_to - p - drawn.n
    b = 2 * np.cumsum(q, axis=1) - q - drawn.n
    sxy = (drawn.counts * spread(a, cells.row) * spread(b, cells.column)).sum(axis=1)
    sxx, syy = (p * a**2).sum(axis=1).astype(np.float64), (q * b**2).sum(axis=1)
    return np.clip(_ratio(sxy, np.sqrt(sxx * syy)), -1, 1)


# ---- the metrics


def _as_they_are(cells: Cells) -> Drawn:
    """The items themselves as the one resample."""
    return Drawn(cells, cells.count[None])


def _point(name: str, cells: Cells, on_drawn: Callable[[Drawn], Values]) -> float | None:
    return None if _why_undefined(name, cells) else float(on_drawn(_as_they_are(cells))[0])


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10) -> float | None:
    """ECE of confidence [n] in [0, 1] and correct [n] of 0/1: sum over bins of (n_b / n) |mean confidence - accuracy|.

    Bins are of equal width and closed on the right, 0 in the first; an item's bin is that of its integer percent
    (round half to even), its mean uses the confidence itself. None without items; ValueError for other input.
    """
    if n_bins != int(n_bins) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer, not {n_bins}")
    return _point("ece", _stated(confidence, correct), partial(_ece, n_bins=int(n_bins)))


def reliability_bins(
    confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10
) -> tuple[Counts, Counts, Values, Values]:
    """What ECE sums over: number of the bin, items in it, their mean confidence and their accuracy, as arrays [N].

    Bins as in expected_calibration_error, numbered from 0; those without items are left out.
    """
    cells = _stated(confidence, correct)
    if not cells.n:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    number, *sums = _binned(_as_they_are(cells), n_bins)
    total, stated, right = (part[0] for part in sums)
    return number, total, stated / total, right / total


def risk_coverage_curve(confidence: ArrayLike, correct: ArrayLike) -> tuple[Values, Values]:
    """Coverage i/n and risk (error rate among the i most confident), i = 1..n, as two arrays [n].

    Within a tie the risk is its expectation over all orders: the j-th of m tied items with e errors, after N items with
    E errors, has (E + e j / m) / (N + j).
    """
    cells = _judged(confidence, correct)
    return np.arange(1, cells.n + 1) / max(cells.n, 1), _risk(cells)


def _risk(cells: Cells) -> Values:
    if not cells.n:
        return np.zeros(0)
    drawn = _as_they_are(cells)
    total, wrong = drawn.total[0, ::-1], (drawn.total - drawn.right)[0, ::-1]
    tie = np.repeat(np.arange(len(total)), total)
    before, errors_before = np.cumsum(total) - total, np.cumsum(wrong) - wrong
    i = np.arange(1, cells.n + 1)
    # One division of two exact integers: each risk is rounded once, hence never below the optimum's at that coverage.
    return (errors_before[tie] * total[tie] + wrong[tie] * (i - before[tie])) / (total[tie] * i)


def _best_risk(n: int, wrong: int) -> Values:
    i = np.arange(1, n + 1)
    return np.maximum(i - (n - wrong), 0) / i


def _analytic_optimum(error: NDArray | float) -> Values:
    return error + special.xlogy(1 - error, 1 - error)


def aurc(confidence: ArrayLike, correct: ArrayLike) -> float | None:
    """Area under the risk-coverage curve: mean risk over coverages 1/n..1, ties in expectation over their orders.

    confidence [n], any finite numbers (only their order counts); correct [n] of 0/1. None without items.
    """
    risk = _risk(_judged(confidence, correct))
    return math.fsum(risk) / len(risk) if len(risk) else None


def e_aurc(confidence: ArrayLike, correct: ArrayLike) -> float | None:
    """AURC less the least possible with k errors among n items, (1/n) sum_{j=1..k} j / (n-k+j). Never negative."""
    cells = _judged(confidence, correct)
    if not cells.n:
        return None
    wrong = cells.n - int(cells.count[cells.target[cells.column] == 1].sum())
    # fsum rounds each sum once, so a perfect ranking gives exactly 0 and no ranking gives less.
    return (math.fsum(_risk(cells)) - math.fsum(_best_risk(cells.n, wrong))) / cells.n


def e_aurc_analytic(confidence: ArrayLike, correct: ArrayLike) -> float | None:
    """AURC less err + (1 - err) ln(1 - err), the optimum for n to infinity that the paper subtracts; above e_aurc."""
    area, cells = aurc(confidence, correct), _judged(confidence, correct)
    if area is None:
        return None
    return area - float(_analytic_optimum(1 - float(_accuracy(_as_they_are(cells))[0])))


def accuracy(confidence: ArrayLike, correct: ArrayLike) -> float | None:
    """Share of right answers; takes the confidence [n] only to look like the other metrics. None without items."""
    return _point("accuracy", _judged(confidence, correct), _accuracy)


def auroc(confidence: ArrayLike, correct: ArrayLike) -> float | None:
    """Probability that a right answer has the higher confidence than a wrong one, ties counting one half.

    None if all answers are right or all are wrong.
    """
    return _point("auroc", _judged(confidence, correct), _auroc)


def aupr(confidence: ArrayLike, correct: ArrayLike) -> float | None:
    """Average precision (step-wise, ties one step) with the right answers as positive class; None if there are none."""
    return _point("aupr", _judged(confidence, correct), _aupr)


def aupr_error(confidence: ArrayLike, correct: ArrayLike) -> float | None:
    """Average precision with the wrong answers as positive class, scored by low confidence; None if there are none."""
    return _point("aupr_error", _judged(confidence, correct), _aupr_error)


def brier(confidence: ArrayLike, correct: ArrayLike) -> float | None:
    """Mean of (confidence - correct)^2, confidence [n] in [0, 1]. None without items."""
    return _point("brier", _stated(confidence, correct), _brier)


def spearman(confidence: ArrayLike, target: ArrayLike) -> tuple[float, float] | tuple[None, None]:
    """(rho, p) of confidence [n] with any target [n] (correct, or kappa).

    Average ranks; p of a two-sided t test with n - 2 degrees of freedom, 0.0 where it underflows (see log10_p).
    (None, None) if one side is constant or n < 3.
    """
    cells = _cells(confidence, target)
    rho = _point("spearman", cells, _spearman)
    return (None, None) if rho is None else (rho, _p_value(rho, cells.n))


def _p_value(rho: float, n: int) -> float:
    return float(special.betainc((n - 2) / 2, 0.5, (1 - rho) * (1 + rho)))


def log10_p(rho: float, n: int) -> float | None:
    """log10 of the p-value of a rank correlation of n items, also where p itself underflows.

    Two-sided t test with n - 2 degrees of freedom, p = I_{1-rho^2}((n-2)/2, 1/2). None for |rho| = 1, where p is
    exactly 0. n >= 3, else ValueError.
    """
    if n < 3:
        raise ValueError(f"a p-value needs at least 3 items, not {n}")
    x, a = (1 - rho) * (1 + rho), (n - 2) / 2
    if x <= 0:
        return None
    p = _p_value(rho, n)
    if p > 1e-290:
        return math.log10(p)
    # DLMF 8.17.8: I_x(a, b) = x^a (1-x)^b / (a B(a, b)) 2F1(a+b, 1; a+1; x). Its k-th term is below x^k, and p this
    # small makes -ln x > 600 / a, so a / 15 terms leave nothing.
    k = np.arange(int(a / 10) + 50)
    series = 1 + np.cumprod(x * (a + 0.5 + k) / (a + 1 + k)).sum()
    log = a * math.log(x) + 0.5 * math.log1p(-x) - math.log(a) - float(special.betaln(a, 0.5)) + math.log(series)
    return log / math.log(10)


# ---- what a set of items leaves undefined


def _constant_target(cells: Cells) -> str | None:
    if len(cells.target) > 1:
        return None
    return {0.0: "all answers are wrong", 1.0: "all answers are right"}[float(cells.target[0])]


def _why_no_correlation(cells: Cells) -> str | None:
    if cells.n < 3:
        return "there are fewer than 3 items"
    if len(cells.confidence) == 1:
        return "every confidence is the same"
    if len(cells.target) == 1:
        return _constant_target(cells) if cells.target[0] in (0, 1) else "every target is the same"
    return None


_WHY: dict[str, Callable[[Cells], str | None]] = {
    "spearman": _why_no_correlation,
    "auroc": _constant_target,
    "aupr": lambda cells: None if 1 in cells.target else "all answers are wrong",
    "aupr_error": lambda cells: None if 0 in cells.target else "all answers are right",
}


def _why_undefined(name: str, cells: Cells) -> str | None:
    if not cells.n:
        return "there are no items"
    return _WHY[name](cells) if name in _WHY else None


# ---- intervals


@dataclass(frozen=True)
class Metric:
    """A metric twice: of arrays (confidence [n], target [n]), and of resamples of their cells."""

    of_arrays: Callable
    on_drawn: Callable[[Drawn], Values]
    read: Callable[[ArrayLike, ArrayLike], Cells] = _judged


METRICS: dict[str, Metric] = {
    "ece": Metric(expected_calibration_error, _ece, _stated),
    "ece_15": Metric(partial(expected_calibration_error, n_bins=15), partial(_ece, n_bins=15), _stated),
    "spearman": Metric(spearman, _spearman, _cells),
    "aurc": Metric(aurc, _aurc),
    "e_aurc": Metric(e_aurc, _e_aurc),
    "e_aurc_analytic": Metric(e_aurc_analytic, _e_aurc_analytic),
    "accuracy": Metric(accuracy, _accuracy),
    "auroc": Metric(auroc, _auroc),
    "aupr": Metric(aupr, _aupr),
    "aupr_error": Metric(aupr_error, _aupr_error),
    "brier": Metric(brier, _brier, _stated),
}


def _find(metric: str | Callable) -> str | None:
    """The name of a metric given by name or as this module's function; None for anyone else's function."""
    if callable(metric):
        return next((name for name, known in METRICS.items() if known.of_arrays is metric), None)
    if metric not in METRICS:
        raise ValueError(f"no metric {metric!r}; there are {', '.join(METRICS)}")
    return metric


def _scalar(value: float | tuple | None) -> float | None:
    return value[0] if isinstance(value, tuple) else value


def _resample(names: Iterable[str], cells: Cells, n_resamples: int, seed: int) -> dict[str, Values]:
    """Each metric on the same resamples: {name: [n_resamples]}, nan where undefined."""
    chunks = [
        {name: METRICS[name].on_drawn(drawn) for name in names}
        for drawn in (Drawn(cells, counts) for counts in draw(cells.count, n_resamples, seed))
    ]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}


def resample_differences(names: Iterable[str], a: Cells, b: Cells, n_resamples: int, seed: int) -> dict[str, Values]:
    """Each metric of a less that of b, on the same resamples of the same items: {name: [n_resamples]}, nan where undefined.

    a, b: what `METRICS[name].read` makes of two measurements of n items in the same order.
    """
    chunks = []
    for left, right in draw_pairs(a, b, n_resamples, seed):
        one, other = Drawn(a, left), Drawn(b, right)
        chunks.append({name: METRICS[name].on_drawn(one) - METRICS[name].on_drawn(other) for name in names})
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}


def undefined_reason(metric: str | Callable, confidence: ArrayLike, target: ArrayLike) -> str | None:
    """Why a metric of these arrays [n] is None, in words for a footnote; None if it is defined."""
    name = _find(metric)
    if name is None:
        raise ValueError(f"{metric} is no metric of this module; there are {', '.join(METRICS)}")
    return _why_undefined(name, METRICS[name].read(confidence, target))


def bootstrap(
    metric: str | Callable,
    confidence: ArrayLike,
    target: ArrayLike,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> tuple[float, float] | None:
    """Percentile interval (low, high) of a metric over items drawn with replacement.

    metric: a name in METRICS, a function of this module, or any function of two arrays (one call a resample then; of a
    tuple the first counts). Resamples on which it is undefined are left out; None if those are more than half, or
    if the metric is undefined on the items themselves.
    """
    name = _find(metric)
    if name is None:
        confidence, target = np.asarray(confidence), np.asarray(target)
        values = draw_items(lambda i: _scalar(metric(confidence[i], target[i])), len(confidence), n_resamples, seed)
        return interval(values, level)
    cells = METRICS[name].read(confidence, target)
    if _why_undefined(name, cells):
        return None
    return interval(_resample([name], cells, n_resamples, seed)[name], level)


def paired_bootstrap(
    metric: str | Callable,
    confidence_a: ArrayLike,
    correct_a: ArrayLike,
    confidence_b: ArrayLike,
    correct_b: ArrayLike,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> dict[str, float | None]:
    """Metric of a less metric of b, two methods on the same n items in the same order: {difference, low, high, p}.

    low, high: percentile interval of the difference. p: two-sided, twice the smaller share of resamples in which the
    difference is <= 0 or >= 0, the items themselves counted as one resample, at most 1. metric: as in bootstrap, but
    one of this module. All four are None where it is undefined on either side.
    """
    name = _find(metric)
    if name is None:
        raise ValueError(f"{metric} is no metric of this module; there are {', '.join(METRICS)}")
    known = METRICS[name]
    a, b = known.read(confidence_a, correct_a), known.read(confidence_b, correct_b)
    if a.n != b.n:
        raise ValueError(f"a and b must be the same items, not {a.n} and {b.n} of them")
    nothing = dict.fromkeys(("difference", "low", "high", "p"))
    if _why_undefined(name, a) or _why_undefined(name, b):
        return nothing
    values = resample_differences([name], a, b, n_resamples, seed)[name]
    bounds = interval(values, level)
    if bounds is None:
        return nothing
    difference = _scalar(known.of_arrays(confidence_a, correct_a)) - _scalar(known.of_arrays(confidence_b, correct_b))
    return {"difference": difference, "low": bounds[0], "high": bounds[1], "p": _two_sided(values)}


def _two_sided(differences: Values) -> float:
    # Rounding must not turn two equal methods into a "difference" of 1e-17 with p near 0.
    defined = differences[~np.isnan(differences)]
    smaller = min(int((defined <= 1e-12).sum()), int((defined >= -1e-12).sum()))
    return min(1.0, 2 * (smaller + 1) / (len(defined) + 1))


# ---- everything that metrics.json holds


def summarise(
    confidence: ArrayLike,
    correct: ArrayLike,
    kappa: ArrayLike | None = None,
    f1: ArrayLike | None = None,
    n_unparsed: dict[str, int] | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> dict:
    """Every metric of one cell of the tables, ready for JSON.

    confidence [n] in [0, 1], correct [n] of 0/1, kappa [n] and f1 [n] where they exist (f1: of each item),
    n_unparsed {"answer", "confidence"}: how many could not be read. Keys: each name in METRICS, f1, n, n_unparsed;
    spearman and (with kappa) spearman_surrogate as {rho, p, log10_p}; intervals: {metric: [low, high] or None}, of rho
    for the correlations; reasons: {metric: text} for each that is None.
    """
    cells = _stated(confidence, correct)
    reasons = {name: reason for name in METRICS if (reason := _why_undefined(name, cells))}
    defined = [name for name in METRICS if name not in reasons]
    samples = _resample(defined, cells, n_resamples, seed) if defined else {}
    values: dict = {name: METRICS[name].of_arrays(confidence, correct) for name in METRICS}
    values["spearman"] = _correlation("spearman", cells, reasons)
    if kappa is not None:
        with_kappa = _cells(confidence, kappa)
        values["spearman_surrogate"] = _correlation("spearman_surrogate", with_kappa, reasons)
        if "spearman_surrogate" not in reasons:
            drawn = _resample(["spearman"], with_kappa, n_resamples, seed)
            samples["spearman_surrogate"] = drawn["spearman"]
    values["f1"] = _mean_f1(f1, cells.n, n_resamples, seed, samples, reasons)
    intervals = {name: _as_list(interval(samples[name], LEVEL)) if name in samples else None for name in values}
    for name in samples:
        if intervals[name] is None:
            reasons[f"{name} interval"] = "it is undefined on more than half of the resamples"
    unparsed = {"answer": 0, "confidence": 0} | {key: int(count) for key, count in (n_unparsed or {}).items()}
    return values | {"n": cells.n, "n_unparsed": unparsed, "intervals": intervals, "reasons": reasons}


def _correlation(name: str, cells: Cells, reasons: dict[str, str]) -> dict[str, float | None]:
    rho = _point("spearman", cells, _spearman)
    if rho is None:
        reasons[name] = _why_undefined("spearman", cells)
        return {"rho": None, "p": None, "log10_p": None}
    log = log10_p(rho, cells.n)
    if log is None:
        reasons[f"{name} log10_p"] = "p is exactly 0"
    return {"rho": rho, "p": _p_value(rho, cells.n), "log10_p": log}


def _mean_f1(
    f1: ArrayLike | None, n: int, n_resamples: int, seed: int, samples: dict[str, Values], reasons: dict[str, str]
) -> float | None:
    if f1 is None:
        reasons["f1"] = "this task has no F1"
        return None
    cells = _cells(f1, np.zeros(np.shape(f1)))
    if cells.n != n:
        raise ValueError(f"f1 must have one value an item, {n}, not {cells.n}")
    if not n:
        reasons["f1"] = "there are no items"
        return None
    samples["f1"] = np.concatenate([_mean(Drawn(cells, part)) for part in draw(cells.count, n_resamples, seed)])
    return float(_mean(_as_they_are(cells))[0])


def _as_list(bounds: tuple[float, float] | None) -> list[float] | None:
    return None if bounds is None else list(bounds)
