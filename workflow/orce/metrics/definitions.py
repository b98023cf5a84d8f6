"""The metrics of the paper (METRICS) and three that others report (EXTRA), as functions of counts.

Notation: n items, of which each has a confidence c and is right (y = 1) or wrong (y = 0). A Tally
(orce.metrics.counts) has the counts of B resamples at once, so a metric returns B values. A metric
that a set of items leaves undefined (every confidence the same, every answer right) is None, never
nan and never a silent 0. docs/metrics.md says where other code differs.

Stated confidence is full of ties. Within a tie the risk of a risk-coverage curve is its expectation
over all orders: the j-th of m tied items with e errors, after N items with E errors, has risk
(E + e j / m) / (N + j).
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
    above,
    as_exact,
    below,
    clear_of_ends,
    labelled_cells,
    probability_cells,
    tabulate,
)

__all__ = [
    "ALL", "EXTRA", "METRICS", "accuracy", "augrc", "aupr", "aupr_error", "aurc", "auroc", "brier", "e_aurc", "e_aurc_analytic",
    "expected_calibration_error", "log10_p", "nll", "p_value", "prr", "reliability_bins", "risk_coverage_curve", "spearman",
    "undefined_reason",
]  # fmt: skip


# Calibration: are answers with a stated confidence of 70 % right in 70 % of cases?


@Metric
def accuracy(tally: Tally) -> Values:
    """Mean y: the share of right answers. The confidence does not matter."""
    return tally.mean(tally.target)


@partial(Metric, read=probability_cells)
def brier(tally: Tally) -> Values:
    """Mean (c - y)^2."""
    return tally.mean((tally.stated - tally.target) ** 2)


@partial(Metric, read=probability_cells)
def nll(tally: Tally) -> Values:
    """Mean of -ln c for a right answer and -ln (1 - c) for a wrong one, c kept half a percent away
    from 0 and 1.
    """
    stated = clear_of_ends(tally.stated)
    return tally.mean(-np.log(np.where(tally.target == 1, stated, 1 - stated)))


def expected_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10
) -> float | None:
    """ECE: the sum over bins of n_b / n |mean c - mean y|, of the n_b items in each bin.

    confidence [n] in [0, 1], correct [n] of 0/1; None without items, ValueError for other input.
    Bins have equal width and are closed on the right, with 0 in the first.
    """
    return ece(n_bins)(confidence, correct)


def ece(n_bins: int) -> Metric:
    """The metric `expected_calibration_error` with n_bins bins. ValueError unless a positive
    integer.
    """
    if n_bins != int(n_bins) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer, not {n_bins}")

    def excess(tally: Tally) -> Values:
        """Sum of c - y over the items of each bin, [B, N]."""
        _, _, stated, right = _binned(tally, int(n_bins))
        return stated - right

    def gaps(tally: Tally) -> Values:
        return excess(tally) / tally.n

    @partial(Metric, read=probability_cells, gaps=gaps)
    def ece(tally: Tally) -> Values:
        return np.abs(excess(tally)).sum(axis=1) / tally.n

    return ece


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
    """The bins that hold items: their numbers [N]; items, sum of c and right answers in each,
    all [B, N].
    """
    confidence = tally.cells.confidence
    bins = _bin_numbers(confidence, n_bins)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    total = np.add.reduceat(tally.total, starts, axis=1)
    stated = np.add.reduceat(tally.total * confidence, starts, axis=1)
    right = np.add.reduceat(tally.right, starts, axis=1)
    return bins[starts], total, stated, right


def _bin_numbers(confidence: Values, n_bins: int) -> Counts:
    """The bin of each confidence, from 0: closed on the right, 0 in the first."""
    percent = 100 * confidence
    nearest = np.rint(percent).astype(np.int64)
    # Whole percents are compared with the edges as integers: the edge 3/10 may differ from the
    # float 0.3, but 30 * 10 equals 100 * 3. -(-a // b) is a / b rounded up.
    is_whole = np.abs(percent - nearest) < 1e-9
    upper = np.where(is_whole, -(-nearest * n_bins // 100), np.ceil(percent * n_bins / 100))
    return np.maximum(upper.astype(np.int64) - 1, 0)


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
    """Probability that a right answer has a higher c than a wrong one, a tie counting one half."""
    won = 2 * below(tally.wrong) + tally.wrong  # doubled, so that halves are integers
    return _ratio((tally.right * won).sum(axis=1), 2 * tally.n_right * tally.n_wrong)


@partial(Metric, undefined=_no_right_answer)
def aupr(tally: Tally) -> Values:
    """Average precision of the right answers, by high c."""
    right_retrieved = above(tally.right) + tally.right
    return _average_precision(tally.right, right_retrieved, above(tally.total) + tally.total)


@partial(Metric, undefined=_no_wrong_answer)
def aupr_error(tally: Tally) -> Values:
    """Average precision of the wrong answers, by low c."""
    wrong_retrieved = below(tally.wrong) + tally.wrong
    return _average_precision(tally.wrong, wrong_retrieved, below(tally.total) + tally.total)


def _average_precision(positive: Counts, positive_retrieved: Counts, retrieved: Counts) -> Values:
    """Mean over the positives of the precision where they are retrieved, a tie in one step.

    positive [B, V] at each confidence; of these, and of all items, those retrieved by then.
    """
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
    """Spearman's rho of c and any target, Pearson's correlation of their average ranks.

    None if a side is constant or n < 3.
    """
    counts = as_exact(tally.n, tally.counts)
    p = as_exact(tally.n, tally.total)  # items with each confidence
    q = as_exact(tally.n, tally.per_target)  # items with each target
    # Average ranks, doubled and centred: integers, and so are all three sums.
    a = 2 * below(p) + p - tally.n
    b = 2 * below(q) + q - tally.n
    a_of_cell = a[:, tally.cells.row]
    b_of_cell = b[:, tally.cells.column]
    sxy = (counts * a_of_cell * b_of_cell).sum(axis=1).astype(np.float64)
    sxx = (p * a**2).sum(axis=1).astype(np.float64)
    syy = (q * b**2).sum(axis=1).astype(np.float64)
    return np.clip(_ratio(sxy, np.sqrt(sxx * syy)), -1, 1)


def spearman(confidence: ArrayLike, target: ArrayLike) -> tuple[float, float] | tuple[None, None]:
    """(rho, p) of confidence [n] with any target [n] (correct, or kappa): `rank_correlation` and
    `p_value`.
    """
    cells = tabulate(confidence, target)
    rho = rank_correlation.value(cells)
    return (None, None) if rho is None else (rho, p_value(rho, cells.n))


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
    ties = np.arange(tally.total.shape[1])
    tie = np.repeat(ties, tally.total[0])[::-1]  # of the i-th item
    m = tally.total[0, tie]
    e = tally.wrong[0, tie]
    N = above(tally.total)[0, tie]
    E = above(tally.wrong)[0, tie]
    # (E + e j / m) / i for j = i - N, as one division of two exact integers: rounded once.
    return i / tally.n, (E * m + e * (i - N)) / (m * i)


@Metric
def aurc(tally: Tally) -> Values:
    """Area under the risk-coverage curve: mean over i = 1..n of the error rate among the i most
    confident, ties in expectation. c may be any finite number.
    """
    m = tally.total
    e = tally.wrong
    N = above(m)
    E = above(e)
    # The sum of (E + e j / m) / (N + j) over j = 1..m: one step for each tie, not for each item.
    slope = (E * m - e * N) / np.maximum(m, 1)
    return (e + slope * _harmonic(N, N + m, tally.n)).sum(axis=1) / tally.n


@Metric
def e_aurc(tally: Tally) -> Values:
    """AURC minus the least possible with k errors among n items, (1/n) sum_{j=1..k} j / (n-k+j).
    Never negative.
    """
    n = tally.n
    right = tally.n_right
    least = (n - right - right * _harmonic(right, n, n)) / n
    excess = tally.of(aurc) - least
    # A right answer at or below a wrong one's confidence costs at least 1 / (2 n^2); anything less
    # is rounding.
    return np.where(excess < 1 / (4 * n**2), 0.0, excess)


@Metric
def e_aurc_analytic(tally: Tally) -> Values:
    """AURC minus err + (1 - err) ln(1 - err), the optimum for n to infinity, which the paper
    subtracts; above e_aurc.
    """
    from scipy import special

    right = tally.n_right / tally.n
    return tally.of(aurc) - (1 - right + special.xlogy(right, right))


@Metric
def augrc(tally: Tally) -> Values:
    """Area under the generalised risk-coverage curve (Traub et al., 2024): (1 - AUROC) a (1 - a) +
    (1 - a)^2 / 2 at accuracy a.

    This is the trapezoid from coverage 0 on, in expectation over the orders of ties.
    """
    won = np.nan_to_num(tally.of(auroc))  # undefined only where a (1 - a) is 0
    return ((1 - won) * tally.n_right * tally.n_wrong + tally.n_wrong**2 / 2) / tally.n**2


@partial(Metric, undefined=_constant_target)
def prr(tally: Tally) -> Values:
    """Prediction-rejection ratio (Malinin et al., 2020), as lm-polygraph computes it: (err - AURC)
    / (err - least AURC).
    """
    error = 1 - tally.n_right / tally.n
    least = tally.of(aurc) - tally.of(e_aurc)
    # Rounding must not make a ratio of what is 0 by definition.
    possible = np.where(np.isclose(error, least, atol=1e-12), 0, error - least)
    return _ratio(error - tally.of(aurc), possible)


def _ratio(numerator: Values, denominator: Values | Counts) -> Values:
    """numerator / denominator [B], nan where the denominator is 0."""
    undefined = np.full(len(denominator), np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)


def _harmonic(low: Counts, high: Counts | int, n: int) -> Values:
    """1 / (low + 1) + ... + 1 / high, for integers from 0 to n."""
    head, tail = _harmonic_numbers(n)
    return (head.take(high) - head.take(low)) + (tail.take(high) - tail.take(low))


@lru_cache(maxsize=4)
def _harmonic_numbers(n: int) -> tuple[Values, Values]:
    """H[0..n] as the sum of two float64 arrays: cumulative sums in float64 would lose three digits
    at n = 10,000.
    """
    terms = 1 / np.arange(1, n + 1, dtype=np.longdouble)
    exact = np.concatenate([[0], np.cumsum(terms)])
    head = exact.astype(np.float64)
    return head, (exact - head).astype(np.float64)


# METRICS are in metrics.json, EXTRA in extra.json, and all of them in metrics.csv.
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
# What the screen shows: `orce measure` of a method, and a run of its rows so far. The columns of
# the paper's tables are in orce.config.layout.
ON_SCREEN = ("accuracy", "ece", "brier", "auroc", "aurc")
SO_FAR = ("accuracy", "ece", "aurc", "auroc", "spearman")
NAMES: dict[Any, str] = {metric: name for name, metric in ALL.items()}
NAMES |= {expected_calibration_error: "ece", spearman: "spearman"}


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
