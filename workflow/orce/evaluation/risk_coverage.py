"""Selective prediction: the error rate (risk) among the most confident answers, at every coverage. AURC and E-AURC.

Verbalised confidence is full of ties. Within a tie the risk is its expectation over all orders: the j-th of m tied
items with e errors, after N items with E errors, has risk (E + e j / m) / (N + j).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from orce.evaluation.counts import Counts, Tally, Values, judged, metric


def risk_coverage_curve(confidence: ArrayLike, correct: ArrayLike) -> tuple[Values, Values]:
    """Coverage i/n and risk among the i most confident, i = 1..n, as two arrays [n]; ties in expectation."""
    cells = judged(confidence, correct)
    if not cells.n:
        return np.zeros(0), np.zeros(0)
    tally, i = Tally(cells), np.arange(1, cells.n + 1)
    total, wrong = tally.total[0, ::-1], (tally.total - tally.right)[0, ::-1]
    tie = np.repeat(np.arange(len(total)), total)
    before, errors_before = np.cumsum(total) - total, np.cumsum(wrong) - wrong
    # One division of two exact integers, so each risk is rounded once.
    return i / cells.n, (errors_before[tie] * total[tie] + wrong[tie] * (i - before[tie])) / (total[tie] * i)


@metric()
def aurc(tally: Tally) -> Values:
    """Area under the risk-coverage curve: mean risk over coverages 1/n..1, ties in expectation. None without items.

    Only the order of the confidences counts, so any finite numbers will do.
    """
    # A tie's risks sum to e + (E m - e N) / m * (H[N + m] - H[N]), H being harmonic numbers: one step per tie, not per item.
    m, e = tally.total, tally.total - tally.right
    wrong_up_to = tally.up_to - tally.right_up_to
    above, errors_above = tally.n - tally.up_to, wrong_up_to[:, -1:] - wrong_up_to
    slope = (errors_above * m - e * above) / np.maximum(m, 1)
    return (e + slope * _harmonic_difference(tally.n, above, above + m)).sum(axis=1) / tally.n


@metric()
def e_aurc(tally: Tally) -> Values:
    """AURC less the least possible with k errors among n items, (1/n) sum_{j=1..k} j / (n-k+j). Never negative."""
    n, right = tally.n, tally.right.sum(axis=1)
    best = (n - right - right * _harmonic_difference(n, right, np.full_like(right, n))) / n
    excess = tally.of(aurc) - best
    # A right answer at or below a wrong one's confidence costs at least 1 / (2 n^2); anything less is rounding.
    return np.where(excess < 1 / (4 * n**2), 0.0, excess)


@metric()
def e_aurc_analytic(tally: Tally) -> Values:
    """AURC less err + (1 - err) ln(1 - err), the optimum for n to infinity, which the paper subtracts; above e_aurc."""
    right = tally.right.sum(axis=1) / tally.n
    return tally.of(aurc) - (1 - right + special.xlogy(right, right))


def _harmonic_difference(n: int, low: Counts, high: Counts) -> Values:
    """H[high] - H[low] of harmonic numbers up to H[n], each difference to full double precision."""
    head, tail = _harmonic(n)
    return (head[high] - head[low]) + (tail[high] - tail[low])


@lru_cache(maxsize=4)
def _harmonic(n: int) -> tuple[Values, NDArray[np.float64]]:
    """H[0..n] as the sum of two float64 arrays: cumulative sums in float64 would lose three digits at n = 10,000."""
    exact = np.concatenate([[0], np.cumsum(1 / np.arange(1, n + 1, dtype=np.longdouble))])
    head = exact.astype(np.float64)
    return head, (exact - head).astype(np.float64)
