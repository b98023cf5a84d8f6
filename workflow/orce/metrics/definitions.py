"""The metrics of the paper and three that others report (METRICS, EXTRA), each a function of counts
(orce.metrics.counts).

A metric that is undefined for a set of items (every confidence the same, every answer right) is
None, never nan and never a silent 0. docs/metrics.md has the definitions and the differences from
other code.

Verbalised confidence is full of ties. Within a tie the risk of a risk-coverage curve is its
expectation over all orders: the j-th of m tied items with e errors, after N items with E errors,
has risk (E + e j / m) / (N + j).
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from orce.metrics.counts import (
    Cells,
    Counts,
    Metric,
    Tally,
    Values,
    as_exact,
    labelled_cells,
    probability_cells,
    tabulate,
)

__all__ = [
    "ALL", "EXTRA", "METRICS", "accuracy", "augrc", "aupr", "aupr_error", "aurc", "auroc", "brier", "e_aurc", "e_aurc_analytic",
    "expected_calibration_error", "log10_p", "nll", "p_value", "prr", "reliability_bins", "risk_coverage_curve", "spearman",
    "undefined_reason",
]  # fmt: skip
# half a percent: a stated 0 or 100 % counts as 0.5 or 99.5 %, where the log loss is finite
MARGIN = 0.005


# Calibration: are answers with a stated confidence of 70 % right in 70 % of cases?


@Metric
def accuracy(tally: Tally) -> Values:
    """Share of right answers; the confidence [n] is not used. None without items."""
    return tally.mean(tally.target)


@partial(Metric, read=probability_cells)
def brier(tally: Tally) -> Values:
    """Mean of (confidence - correct)^2. None without items."""
    return tally.mean((tally.stated - tally.target) ** 2)


@partial(Metric, read=probability_cells)
def nll(tally: Tally) -> Values:
    """Mean of -ln of the probability given to the outcome, with c kept half a percent away from 0
    and 1.
    """
    stated = np.clip(tally.stated, MARGIN, 1 - MARGIN)
    return tally.mean(-np.log(np.where(tally.target == 1, stated, 1 - stated)))


def ece(n_bins: int) -> Metric:
    """Expected calibration error with n_bins bins, as a Metric; see expected_calibration_error."""
    if n_bins != int(n_bins) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer, not {n_bins}")

    def excess(tally: Tally) -> Values:
        """Sum of confidences minus right answers in each bin, [B, N]."""
        _, _, stated, right = _binned(tally, int(n_bins))
        return stated - right

    def gaps(tally: Tally) -> Values:
        return excess(tally) / tally.n

    @partial(Metric, read=probability_cells, gaps=gaps)
    def ece(tally: Tally) -> Values:
        return np.abs(excess(tally)).sum(axis=1) / tally.n

    return ece


def expected_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10
) -> float | None:
    """ECE of confidence [n] in [0, 1] and correct [n] of 0/1; None without items, ValueError for
    other input.

    Bins are of equal width and closed on the right, with 0 in the first, on the confidence itself;
    whole percents are compared with the edges as integers.
    """
    return ece(n_bins)(confidence, correct)


def reliability_bins(
    confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10
) -> tuple[Counts, Counts, Values, Values]:
    """The bins of ECE that hold items, as arrays [N]: number from 0, items, their mean confidence
    and their accuracy.
    """
    tally = Tally(probability_cells(confidence, correct))
    number, *sums = _binned(tally, n_bins)
    total, stated, right = (per_bin[0] for per_bin in sums)  # the only resample: the items
    return number, total, stated / total, right / total


def _binned(tally: Tally, n_bins: int) -> tuple[Counts, Counts, Values, Counts]:
    """Numbers of the bins that hold items [N]; then items, sum of confidence and right answers in
    each, all [B, N].
    """
    # Whole percents by integers: a bin's edge 3/10 may differ from the float 0.3, but 30 * 10
    # equals 100 * 3.
    stated = 100 * tally.cells.confidence
    percent = np.rint(stated).astype(np.int64)
    whole = np.abs(stated - percent) < 1e-9
    upper = np.where(whole, -(-percent * n_bins // 100), np.ceil(stated * n_bins / 100))
    bins = np.maximum(upper.astype(np.int64) - 1, 0)  # closed on the right, 0 in the first
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    total = np.add.reduceat(tally.total, starts, axis=1)
    stated = np.add.reduceat(tally.total * tally.cells.confidence, starts, axis=1)
    right = np.add.reduceat(tally.right, starts, axis=1)
    return bins[starts], total, stated, right


# Ranking: do right answers get higher confidence than wrong ones?


def _constant_target(cells: Cells) -> str | None:
    if len(cells.target) > 1:
        return None
    reasons = {0.0: "all answers are wrong", 1.0: "all answers are right"}
    return reasons.get(float(cells.target[0]), "every target is the same")


def _no_right_answer(cells: Cells) -> str | None:
    return None if 1 in cells.target else "all answers are wrong"


def _no_wrong_answer(cells: Cells) -> str | None:
    return None if 0 in cells.target else "all answers are right"


@partial(Metric, undefined=_constant_target)
def auroc(tally: Tally) -> Values:
    """Probability that a right answer has a higher confidence than a wrong one, ties counting one
    half.
    """
    # A right answer wins against the wrong ones below it, and half of those at its confidence:
    # doubled, integers.
    wrong = tally.total - tally.right
    won = (tally.right * (2 * (tally.up_to - tally.right_up_to) - wrong)).sum(axis=1)
    return _ratio(won, 2 * tally.right.sum(axis=1) * wrong.sum(axis=1))


@partial(Metric, undefined=_no_right_answer)
def aupr(tally: Tally) -> Values:
    """Average precision (stepwise, one step per tie) with right answers as the positive class."""
    right_from = tally.right_up_to[:, -1:] - tally.right_up_to + tally.right
    return _average_precision(tally.right, right_from, tally.n - tally.up_to + tally.total)


@partial(Metric, undefined=_no_wrong_answer)
def aupr_error(tally: Tally) -> Values:
    """Average precision with wrong answers as the positive class, ranked by low confidence."""
    return _average_precision(
        tally.total - tally.right, tally.up_to - tally.right_up_to, tally.up_to
    )


def _average_precision(positive: Counts, positive_retrieved: Counts, retrieved: Counts) -> Values:
    """One step per distinct score; the last two count the items at or before that score."""
    precision = positive_retrieved / np.maximum(retrieved, 1)
    return _ratio((positive * precision).sum(axis=1), positive.sum(axis=1))


def _why_no_correlation(cells: Cells) -> str | None:
    if cells.n < 3:
        return "there are fewer than 3 items"
    if len(cells.confidence) == 1:
        return "every confidence is the same"
    return _constant_target(cells)


@partial(Metric, read=tabulate, undefined=_why_no_correlation)
def rank_correlation(tally: Tally) -> Values:
    """Spearman's rho, with average ranks, of confidence and any target. None if a side is constant
    or n < 3.
    """
    # Doubled, centred average ranks are integers, and so are all three sums.
    cells = tally.cells
    counts = as_exact(tally.n, tally.counts)
    p = as_exact(tally.n, tally.total)
    q = as_exact(tally.n, tally.per_target)
    a = 2 * np.cumsum(p, axis=1) - p - tally.n
    b = 2 * np.cumsum(q, axis=1) - q - tally.n
    sxy = (counts * a[:, cells.row] * b[:, cells.column]).sum(axis=1).astype(np.float64)
    sxx = (p * a**2).sum(axis=1).astype(np.float64)
    syy = (q * b**2).sum(axis=1).astype(np.float64)
    return np.clip(_ratio(sxy, np.sqrt(sxx * syy)), -1, 1)


def spearman(confidence: ArrayLike, target: ArrayLike) -> tuple[float, float] | tuple[None, None]:
    """(rho, p) of confidence [n] with any target [n] (correct, or kappa); see rank_correlation and
    p_value.
    """
    rho = rank_correlation(confidence, target)
    return (None, None) if rho is None else (rho, p_value(rho, np.asarray(target).size))


def p_value(rho: float, n: int) -> float:
    """Two-sided p of a rank correlation of n items: t test, n - 2 degrees of freedom; 0.0 where it
    underflows.
    """
    from scipy import special  # here and below: stages that compute no metric start without scipy

    return float(special.betainc((n - 2) / 2, 0.5, (1 - rho) * (1 + rho)))


def log10_p(rho: float, n: int) -> float | None:
    """log10 of p_value, also where p itself underflows. None for |rho| = 1, where p is 0.
    ValueError if n < 3.
    """
    from scipy import special

    if n < 3:
        raise ValueError(f"a p-value needs at least 3 items, not {n}")
    x = (1 - rho) * (1 + rho)
    a = (n - 2) / 2
    if x <= 0:
        return None
    p = p_value(rho, n)
    if p > 1e-290:
        return math.log10(p)
    # DLMF 8.17.8: I_x(a, b) = x^a (1-x)^b / (a B(a, b)) 2F1(a+b, 1; a+1; x). Its k-th term is below
    # x^k, and p this small makes -ln x > 600 / a, so a / 15 terms leave nothing.
    k = np.arange(int(a / 10) + 50)
    series = 1 + np.cumprod(x * (a + 0.5 + k) / (a + 1 + k)).sum()
    log = (
        a * math.log(x)
        + 0.5 * math.log1p(-x)
        - math.log(a)
        - float(special.betaln(a, 0.5))
        + math.log(series)
    )
    return log / math.log(10)


# Selective prediction: the error rate (risk) among the most confident answers, at every coverage


def risk_coverage_curve(confidence: ArrayLike, correct: ArrayLike) -> tuple[Values, Values]:
    """Coverage i/n and risk among the i most confident, i = 1..n, as two arrays [n]; ties in
    expectation.
    """
    tally = Tally(labelled_cells(confidence, correct))
    i = np.arange(1, tally.n + 1)
    # items and errors of each tie, the most confident first, and before it
    total = tally.total[0, ::-1]
    wrong = (tally.total - tally.right)[0, ::-1]
    before = np.cumsum(total) - total
    errors_before = np.cumsum(wrong) - wrong
    tie = np.repeat(np.arange(len(total)), total)  # of the i-th item
    # (E + e j / m) / i as one division of two exact integers, so each risk is rounded once.
    errors = errors_before[tie] * total[tie] + wrong[tie] * (i - before[tie])
    return i / tally.n, errors / (total[tie] * i)


@Metric
def aurc(tally: Tally) -> Values:
    """Area under the risk-coverage curve: mean risk over coverages 1/n..1, ties in expectation, of
    any finite numbers.
    """
    # A tie's risks sum to e + (E m - e N) / m * (H[N + m] - H[N]), H being harmonic numbers: one
    # step per tie, not per item. Here m, e are items and errors of the tie, N, E those above it.
    m = tally.total
    e = tally.total - tally.right
    above = tally.n - tally.up_to
    wrong_up_to = tally.up_to - tally.right_up_to
    errors_above = wrong_up_to[:, -1:] - wrong_up_to
    slope = (errors_above * m - e * above) / np.maximum(m, 1)
    # N + m is the N of the next lower confidence, so each H is looked up once.
    edges = np.column_stack([np.full(len(m), tally.n), above])
    head, tail = (sums.take(edges) for sums in _harmonic(tally.n))
    steps = (head[:, :-1] - head[:, 1:]) + (tail[:, :-1] - tail[:, 1:])
    return (e + slope * steps).sum(axis=1) / tally.n


@Metric
def e_aurc(tally: Tally) -> Values:
    """AURC minus the least possible with k errors among n items, (1/n) sum_{j=1..k} j / (n-k+j).
    Never negative.
    """
    n = tally.n
    right = tally.right.sum(axis=1)
    head, tail = _harmonic(n)
    best = (n - right - right * ((head[n] - head[right]) + (tail[n] - tail[right]))) / n
    excess = tally.of(aurc) - best
    # A right answer at or below a wrong one's confidence costs at least 1 / (2 n^2); anything less
    # is rounding.
    return np.where(excess < 1 / (4 * n**2), 0.0, excess)


@Metric
def e_aurc_analytic(tally: Tally) -> Values:
    """AURC minus err + (1 - err) ln(1 - err), the optimum for n to infinity, which the paper
    subtracts; above e_aurc.
    """
    from scipy import special

    right = tally.right.sum(axis=1) / tally.n
    return tally.of(aurc) - (1 - right + special.xlogy(right, right))


@Metric
def augrc(tally: Tally) -> Values:
    """Area under the generalised risk-coverage curve (Traub et al., 2024): (1 - AUROC) a (1 - a) +
    (1 - a)^2 / 2.

    a is the accuracy. This is the trapezoid from coverage 0 on, in expectation over the orders of
    ties.
    """
    right = tally.right.sum(axis=1)
    wrong = tally.n - right
    won = np.nan_to_num(tally.of(auroc))  # undefined only where one of the two counts is 0
    return ((1 - won) * right * wrong + wrong**2 / 2) / tally.n**2


@partial(Metric, undefined=_constant_target)
def prr(tally: Tally) -> Values:
    """Prediction-rejection ratio (Malinin et al., 2020), as lm-polygraph computes it: (err - AURC)
    / (err - least AURC).
    """
    error = 1 - tally.right.sum(axis=1) / tally.n
    least = tally.of(aurc) - tally.of(e_aurc)
    # Rounding must not make a ratio of what is 0 by definition.
    possible = np.where(np.isclose(error, least, atol=1e-12), 0, error - least)
    return _ratio(error - tally.of(aurc), possible)


def _ratio(numerator: Values, denominator: Values | Counts) -> Values:
    """numerator / denominator [B], nan where the denominator is 0."""
    undefined = np.full(len(denominator), np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)


@lru_cache(maxsize=4)
def _harmonic(n: int) -> tuple[Values, Values]:
    """H[0..n] as the sum of two float64 arrays: cumulative sums in float64 would lose three digits
    at n = 10,000.
    """
    exact = np.concatenate([[0], np.cumsum(1 / np.arange(1, n + 1, dtype=np.longdouble))])
    head = exact.astype(np.float64)
    return head, (exact - head).astype(np.float64)


# The columns of metrics.json and, of those that the paper has not, extra.json. metrics.csv has all.
METRICS: dict[str, Metric] = {
    "ece": ece(10),
    "ece_15": ece(15),
    "spearman": rank_correlation,
    "aurc": aurc,
    "e_aurc": e_aurc,
    "e_aurc_analytic": e_aurc_analytic,
    "accuracy": accuracy,
    "auroc": auroc,
    "aupr": aupr,
    "aupr_error": aupr_error,
    "brier": brier,
}
EXTRA: dict[str, Metric] = {"nll": nll, "augrc": augrc, "prr": prr}
ALL = METRICS | EXTRA
# Columns of the screen, by name: what `orce measure` prints of a method, and the
# rows of a run so far. The paper's tables have theirs, with titles and arrows, in
# orce.config.layout.
ON_SCREEN = ("accuracy", "ece", "brier", "auroc", "aurc")
SO_FAR = ("accuracy", "ece", "aurc", "auroc", "spearman")
NAMES: dict[Any, str] = {metric: name for name, metric in ALL.items()} | {
    expected_calibration_error: "ece",
    spearman: "spearman",
}


def undefined_reason(
    metric: str | Callable, confidence: ArrayLike, target: ArrayLike
) -> str | None:
    """Why a metric of these arrays [n] is None, in words for a footnote; None if it is defined."""
    known = named(metric)
    return known.why_undefined(known.read(confidence, target))


def named(metric: str | Callable) -> Metric:
    """The metric of a name, or of a function of this module. ValueError for any other."""
    name = metric if isinstance(metric, str) else NAMES.get(metric)
    if name not in ALL:
        raise ValueError(f"no metric {metric!r}; there are {', '.join(ALL)}")
    return ALL[name]
