"""Rewards for candidate confidences: the paper's (section 3.2, and the ablations of table 4), and two scoring rules.

A reward says how good it would be to state `confidence` c for an answer whose prompt has correctness likelihood `surrogate`
(kappa), given a reference set (C, K): arrays [n]. `correct` says whether the answer shown to the confidence LLM is right. What
describes the candidates broadcasts to one shape, which is also the result's. Confidences and kappas lie in [0, 1], `correct` is 0 or
1 (else ValueError); they are compared without rounding. Only the order of a prompt's rewards matters. SC rewards are of order 1/n,
so they come from exact integers, in float64.
"""

import numpy as np
from numpy.typing import ArrayLike as Arr
from numpy.typing import NDArray

from orce.numbers import exact, unit, zero_or_one

Values = NDArray[np.float64]


def spearman_marginal(
    reference_confidence: Arr, reference_surrogate: Arr, confidence: Arr, surrogate: Arr, correct: Arr | None = None
) -> Values:
    """SC reward: R_SC(c, kappa; C, K) = r_s(C + {c}, K + {kappa}) - r_s(C, K), with average ranks.

    r_s of a constant side counts as 0. Section 3.2, "Spearman correlation reward". Memory and time grow with the
    number of distinct confidences times the number of distinct kappas.
    """
    c, k, confidence, surrogate, _ = _read(reference_confidence, reference_surrogate, confidence, surrogate, correct)
    rows, columns = np.union1d(c, confidence), np.union1d(k, surrogate)
    cell = np.searchsorted(rows, c) * len(columns) + np.searchsorted(columns, k)
    counts = np.bincount(cell, minlength=len(rows) * len(columns)).reshape(len(rows), len(columns))
    return _marginal_table(counts)[np.searchsorted(rows, confidence), np.searchsorted(columns, surrogate)]


def _marginal_table(counts: NDArray[np.int64]) -> Values:
    """R_SC of one more item in each cell [A, B] of a contingency table: counts of C by K, both in ascending order.

    a and b are average ranks, doubled and centred, hence integers; an empty row or column has the rank that a new item
    would get. A new item shifts the rank of every other item: by +1 if that is above the new one, by -1 if below, by 0 if
    tied. Expanding sum (a + shift)^2, and so on, gives sums over the items above less those below, so cumulative sums
    give all cells at once.
    """
    counts = exact(int(counts.sum()), counts)
    p, q, n = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    a, b = 2 * np.cumsum(p) - p - n, 2 * np.cumsum(q) - q - n
    sxx, syy, sxy = p @ a**2, q @ b**2, a @ counts @ b
    sxx_new = sxx + 2 * _above_less_below(p * a) + n - p + a**2
    syy_new = syy + 2 * _above_less_below(q * b) + n - q + b**2
    sxy_new = sxy + _above_less_below(a @ counts) + _above_less_below(counts @ b)[:, None] + np.outer(a, b)
    sxy_new += _above_less_below(_above_less_below(counts).T).T
    return _correlation(sxy_new, sxx_new[:, None], syy_new) - _correlation(sxy, sxx, syy)


def _above_less_below(weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each place on the last axis, the sum of all later weights minus the sum of all earlier ones."""
    up_to = np.cumsum(weights, axis=-1)
    return up_to[..., -1:] - 2 * up_to + weights


def _correlation(sxy: NDArray, sxx: NDArray, syy: NDArray) -> Values:
    # The product of the integers would overflow.
    sxy, sxx, syy = (np.asarray(part, dtype=np.float64) for part in (sxy, sxx, syy))
    scale = np.sqrt(sxx * syy)
    return np.divide(sxy, scale, out=np.zeros(np.shape(sxy)), where=scale > 0)


def spearman_marginal_without_generation(
    reference_confidence: Arr, reference_surrogate: Arr, confidence: Arr, surrogate: Arr, correct: Arr | None = None
) -> Values:
    """SC reward "w/o gen": R_SC(c, kappa; K, K), with K in place of the generated C. Table 4."""
    _, k, confidence, surrogate, _ = _read(reference_confidence, reference_surrogate, confidence, surrogate, correct)
    return spearman_marginal(k, k, confidence, surrogate)


def numeric_ranking_difference(
    reference_confidence: Arr, reference_surrogate: Arr, confidence: Arr, surrogate: Arr, correct: Arr | None = None
) -> Values:
    """NRD reward: R_NRD = -|rank of c in C + {c} - rank of kappa in K + {kappa}|, with average ranks. Section 3.2."""
    c, k, confidence, surrogate, _ = _read(reference_confidence, reference_surrogate, confidence, surrogate, correct)
    rank_c, rank_k = _doubled_rank(c, confidence), _doubled_rank(k, surrogate)
    return np.asarray(0.0 - np.abs(rank_c - rank_k) / 2, dtype=np.float64)


def _doubled_rank(reference: Values, value: Values) -> NDArray[np.int64]:
    """Twice the average rank of a value added to the reference, less a constant."""
    ordered = np.sort(reference)
    return np.searchsorted(ordered, value, "left") + np.searchsorted(ordered, value, "right")


def numeric_distance(
    reference_confidence: Arr, reference_surrogate: Arr, confidence: Arr, surrogate: Arr, correct: Arr | None = None
) -> Values:
    """Numeric distance: -|c - kappa|. Table 4, "Numeric dist".

    Rounded to 12 decimals: 0.3 and 0.5 are equally far from 0.4, though not in floating point.
    """
    _, _, confidence, surrogate, _ = _read(reference_confidence, reference_surrogate, confidence, surrogate, correct)
    return np.asarray(0.0 - np.round(np.abs(confidence - surrogate), 12), dtype=np.float64)


def sayself(
    reference_confidence: Arr, reference_surrogate: Arr, confidence: Arr, surrogate: Arr, correct: Arr
) -> Values:
    """SaySelf-inspired reward: c for a right answer, -c for a wrong one. Table 4."""
    _, _, confidence, _, right = _read(reference_confidence, reference_surrogate, confidence, surrogate, correct, True)
    return np.where(right == 1, confidence, 0.0 - confidence)


def brier_reward(
    reference_confidence: Arr, reference_surrogate: Arr, confidence: Arr, surrogate: Arr, correct: Arr
) -> Values:
    """RLCR's reward (Damani et al., 2025, arXiv 2507.16806): g - (c - g)^2, with g = 1 for a right answer and 0 for a wrong one.

    The answer is fixed here, so g only shifts the rewards of its candidates: they are ordered as by the Brier score.
    """
    _, _, confidence, _, right = _read(reference_confidence, reference_surrogate, confidence, surrogate, correct, True)
    return right - (confidence - right) ** 2


def log_score(
    reference_confidence: Arr, reference_surrogate: Arr, confidence: Arr, surrogate: Arr, correct: Arr
) -> Values:
    """Logarithmic score (Good, 1952; as a reward Stangel et al., 2025): ln c for a right answer, ln(1 - c) for a wrong one.

    c is kept half a percent away from 0 and 1, where the score would be infinite.
    """
    _, _, confidence, _, right = _read(reference_confidence, reference_surrogate, confidence, surrogate, correct, True)
    kept = np.clip(confidence, 0.005, 0.995)
    return np.where(right == 1, np.log(kept), np.log1p(-kept))


REWARDS = {
    "sc": spearman_marginal,
    "nrd": numeric_ranking_difference,
    "numeric": numeric_distance,
    "sayself": sayself,
    "sc-surrogate": spearman_marginal_without_generation,
    "rlcr": brier_reward,
    "logscore": log_score,
}


def _read(
    reference_confidence: Arr,
    reference_surrogate: Arr,
    confidence: Arr,
    surrogate: Arr,
    correct: Arr | None,
    needed=False,
) -> tuple[Values, Values, Values, Values, Values]:
    """The arguments of a reward as float64. ValueError for what is not a confidence, a kappa or a judgement."""
    c, k = unit(reference_confidence, "reference_confidence"), unit(reference_surrogate, "reference_surrogate")
    if c.ndim != 1 or c.shape != k.shape:
        raise ValueError(f"expected two reference arrays [n] of one length, not {c.shape} and {k.shape}")
    if needed and correct is None:
        raise ValueError("this reward needs `correct`: 0 or 1 for each candidate, or for all")
    right = np.zeros(0) if correct is None else zero_or_one(correct, "correct")
    return c, k, unit(confidence, "confidence"), unit(surrogate, "surrogate"), right
