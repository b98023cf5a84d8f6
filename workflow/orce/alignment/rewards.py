"""Rewards of candidate confidences and the preference pairs they give (paper, section "Order-aware reward via Spearman
correlation", and the ablations of table 4).

A reward says how good it would be to state confidence c for a prompt whose correctness likelihood is kappa. Confidences
and kappas are in [0, 1] and equal only as exact floats. Only the order of the rewards within a prompt is used: the SC
reward is of size 1/n, so everything is float64 computed from integers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]
_BUCKETS = 2048


def _floats(values: ArrayLike, name: str) -> Values:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has values that are no finite number")
    return array


def _distinct(values: Values) -> tuple[Values, NDArray[np.intp]]:
    """Distinct values [D], ascending, and each value's place among them, in the shape of the values.

    Percents and shares of K samples are few and far apart: mostly each has one of _BUCKETS equal intervals to itself,
    and then nothing needs to be sorted.
    """
    span = np.ptp(values) if values.size else 0.0
    if span > 1e-6:
        bucket = ((values - values.min()) * ((_BUCKETS - 1) / span)).astype(np.intp)
        held = np.full(_BUCKETS, np.nan)
        held[bucket] = values
        if (held[bucket] == values).all():
            used = ~np.isnan(held)
            return held[used], (np.cumsum(used) - 1)[bucket]
    return np.unique(values, return_inverse=True)


def _before(counts: NDArray) -> NDArray:
    """Prefix sums with a leading 0, so that [i] sums all before i."""
    return np.concatenate([[0], np.cumsum(counts)])


class ReferenceSet:
    """The pairs (C, K) against which the SC reward is measured, as counts of their distinct values.

    confidence [n] and surrogate [n], n >= 1; count [n] says how often each pair occurs (once if left out). Memory is
    distinct confidences times distinct surrogates. Average ranks are held doubled and centred, which makes them and all
    sums of their products integers, exact up to three million pairs.
    """

    def __init__(self, confidence: ArrayLike, surrogate: ArrayLike, count: ArrayLike | None = None):
        confidence, surrogate = _floats(confidence, "confidence"), _floats(surrogate, "surrogate")
        if confidence.ndim != 1 or confidence.shape != surrogate.shape or not len(confidence):
            raise ValueError(
                f"expected two arrays [n >= 1] of one length, not {confidence.shape} and {surrogate.shape}"
            )
        self._c, row = _distinct(confidence)
        self._k, column = _distinct(surrogate)
        shape = len(self._c), len(self._k)
        cells = np.bincount(row * shape[1] + column, weights=count, minlength=shape[0] * shape[1])
        self._counts = np.rint(cells).astype(np.int64).reshape(shape)
        self._sum_up()

    def _sum_up(self) -> None:
        counts = self._counts
        p, q = counts.sum(axis=1), counts.sum(axis=0)
        self.n = int(p.sum())
        a = 2 * np.cumsum(p) - p - self.n
        b = 2 * np.cumsum(q) - q - self.n
        self._sxx, self._syy, self._sxy = int(p @ a**2), int(q @ b**2), int(a @ counts @ b)
        self._p, self._q = _before(p), _before(q)
        self._pa, self._qb = _before(p * a), _before(q * b)
        self._a_at_k, self._b_at_c = _before(a @ counts), _before(counts @ b)
        self._quadrant = np.zeros((len(self._c) + 1, len(self._k) + 1), dtype=np.int64)
        self._quadrant[1:, 1:] = counts.cumsum(axis=0).cumsum(axis=1)

    @property
    def correlation(self) -> float:
        """Spearman's r_s(C, K); 0 if a side is constant, which is what the reward takes it for."""
        return float(_correlation(np.array(self._sxy), np.array(self._sxx), np.array(self._syy)))

    def reward(self, confidence: ArrayLike, surrogate: ArrayLike) -> Values:
        """R_SC(c, kappa; C, K) = r_s(C + c, K + kappa) - r_s(C, K) of each candidate, in the shape of c and kappa.

        Any values, in the set or not. Candidates repeat few values, so a table of the distinct pairs is computed, unless
        it would be larger than the candidates.
        """
        confidence, surrogate = _floats(confidence, "confidence"), _floats(surrogate, "surrogate")
        c, row = _distinct(confidence)
        k, column = _distinct(surrogate)
        if len(c) * len(k) > np.broadcast(confidence, surrogate).size:
            return self._insert(confidence, surrogate)
        return self._insert(c[:, None], k).take(row * len(k) + column)

    def _insert(self, c: Values, k: Values) -> Values:
        """The reward of c and kappa, broadcast against each other.

        What a new point does to the sums of the ranks: it moves every old doubled, centred rank by -1, 0 or +1 (below,
        tied with, above the point), so no rank is computed anew.
        """
        c0, c1 = np.searchsorted(self._c, c, "left"), np.searchsorted(self._c, c, "right")
        k0, k1 = np.searchsorted(self._k, k, "left"), np.searchsorted(self._k, k, "right")
        c_below, c_above = self._p[c0], self.n - self._p[c1]
        k_below, k_above = self._q[k0], self.n - self._q[k1]
        x, y = c_below - c_above, k_below - k_above

        def above_less_below(before: NDArray, low: NDArray, high: NDArray) -> NDArray:
            return before[-1] - before[high] - before[low]

        sxx = self._sxx + 2 * above_less_below(self._pa, c0, c1) + c_below + c_above + x**2
        syy = self._syy + 2 * above_less_below(self._qb, k0, k1) + k_below + k_above + y**2
        low_low, low_high = self._quadrant[c0, k0], c_below - self._quadrant[c0, k1]
        high_low = k_below - self._quadrant[c1, k0]
        high_high = self.n - self._p[c1] - self._q[k1] + self._quadrant[c1, k1]
        sxy = self._sxy + above_less_below(self._a_at_k, k0, k1) + above_less_below(self._b_at_c, c0, c1)
        sxy = sxy + low_low + high_high - low_high - high_low + x * y
        return _correlation(sxy, sxx, syy) - self.correlation

    def reward_without_own(
        self, confidence: ArrayLike, surrogate: ArrayLike, own_confidence: ArrayLike, own_surrogate: ArrayLike
    ) -> Values:
        """The reward of candidates [n, M] for surrogate [n], prompt i measured against the set less its own pair.

        own_confidence [n], own_surrogate [n]: that pair, which must be in the set (else ValueError). Prompts that share
        a pair share the smaller set, so there are at most as many of those as distinct pairs.
        """
        confidence, surrogate = _floats(confidence, "confidence"), _floats(surrogate, "surrogate")
        own = np.stack([_floats(own_confidence, "own_confidence"), _floats(own_surrogate, "own_surrogate")])
        out = np.empty(confidence.shape)
        pairs, of_prompt = np.unique(own, axis=1, return_inverse=True)
        for number, (c, k) in enumerate(pairs.T):
            prompts = np.flatnonzero(of_prompt.ravel() == number)
            rest = self._without(c, k)
            # A single pair leaves an empty set, whose r_s, and that of any one point added to it, is taken as 0.
            out[prompts] = rest.reward(confidence[prompts], surrogate[prompts, None]) if rest else 0.0
        return out

    def _without(self, c: float, k: float) -> "ReferenceSet | None":
        row, column = np.searchsorted(self._c, c), np.searchsorted(self._k, k)
        inside = row < len(self._c) and column < len(self._k) and (self._c[row], self._k[column]) == (c, k)
        if not inside or not self._counts[row, column]:
            raise ValueError(f"the pair ({c}, {k}) is not in the reference set")
        counts = self._counts.copy()
        counts[row, column] -= 1
        left = np.nonzero(counts)
        return ReferenceSet(self._c[left[0]], self._k[left[1]], counts[left]) if len(left[0]) else None


def _correlation(sxy: NDArray, sxx: NDArray, syy: NDArray) -> Values:
    scale = np.sqrt(sxx.astype(np.float64) * syy)  # the product of the integers would overflow
    return np.divide(sxy, scale, out=np.zeros(np.shape(sxy)), where=scale > 0)


def spearman_marginal(
    reference_confidence: ArrayLike, reference_surrogate: ArrayLike, confidence: ArrayLike, surrogate: ArrayLike
) -> Values:
    """SC reward r_s(C + c, K + kappa) - r_s(C, K), one a candidate, in the shape of confidence and surrogate together.

    C and K: reference_confidence [n], reference_surrogate [n]. Average ranks; r_s of a constant side counts as 0.
    """
    return ReferenceSet(reference_confidence, reference_surrogate).reward(confidence, surrogate)


def numeric_ranking_difference(
    reference_confidence: ArrayLike,
    reference_surrogate: ArrayLike,
    confidence: ArrayLike,
    surrogate: ArrayLike,
    own_confidence: ArrayLike | None = None,
    own_surrogate: ArrayLike | None = None,
) -> Values:
    """NRD reward -|rank(c in C + c) - rank(kappa in K + kappa)|, average ranks, in the shape of the candidates.

    own_confidence, own_surrogate (of that shape too): an entry of C and K to leave out for each candidate.
    """
    rank_c = _rank_inserted(reference_confidence, confidence, own_confidence)
    rank_k = _rank_inserted(reference_surrogate, surrogate, own_surrogate)
    return 0.0 - np.abs(rank_c - rank_k)


def _rank_inserted(reference: ArrayLike, value: ArrayLike, own: ArrayLike | None) -> Values:
    ordered, value = np.sort(_floats(reference, "reference")), _floats(value, "candidates")
    distinct, place = _distinct(value)
    doubled = (np.searchsorted(ordered, distinct, "left") + np.searchsorted(ordered, distinct, "right"))[place]
    if own is not None:
        own = _floats(own, "own entries")
        doubled = doubled - (own < value) - (own <= value)
    return doubled / 2 + 1


def numeric_distance(confidence: ArrayLike, surrogate: ArrayLike) -> Values:
    """-|c - kappa| ("Numeric dist"), to 12 decimals: 0.3 and 0.5 are equally far from 0.4, though not as floats."""
    return 0.0 - np.round(np.abs(_floats(confidence, "confidence") - _floats(surrogate, "surrogate")), 12)


def sayself(confidence: ArrayLike, answer_correct: ArrayLike) -> Values:
    """c for a right answer, -c for a wrong one ("SaySelf-inspired"): right wants the highest, wrong the lowest."""
    confidence = _floats(confidence, "confidence")
    return np.where(np.asarray(answer_correct, dtype=bool), confidence, 0.0 - confidence)


# ---- the rewards by name, all of (candidates [n, M], kappa [n], answer_correct [n], C, K, leave_one_out)


def _sc(candidates, kappa, answer_correct, reference_confidence, reference_surrogate, leave_one_out) -> Values:
    reference = ReferenceSet(reference_confidence, reference_surrogate)
    if leave_one_out:
        return reference.reward_without_own(candidates, kappa, reference_confidence, reference_surrogate)
    return reference.reward(candidates, kappa[:, None])


def _sc_surrogate(
    candidates, kappa, answer_correct, reference_confidence, reference_surrogate, leave_one_out
) -> Values:
    """SC "w/o gen": K takes the place of the generated C."""
    return _sc(candidates, kappa, answer_correct, reference_surrogate, reference_surrogate, leave_one_out)


def _nrd(candidates, kappa, answer_correct, reference_confidence, reference_surrogate, leave_one_out) -> Values:
    own = (np.asarray(side)[:, None] if leave_one_out else None for side in (reference_confidence, reference_surrogate))
    return numeric_ranking_difference(reference_confidence, reference_surrogate, candidates, kappa[:, None], *own)


def _numeric(candidates, kappa, answer_correct, reference_confidence, reference_surrogate, leave_one_out) -> Values:
    return numeric_distance(candidates, kappa[:, None])


def _sayself(candidates, kappa, answer_correct, reference_confidence, reference_surrogate, leave_one_out) -> Values:
    return sayself(candidates, answer_correct[:, None])


REWARDS: dict[str, Callable[..., Values]] = {
    "sc": _sc,
    "nrd": _nrd,
    "numeric": _numeric,
    "sayself": _sayself,
    "sc-surrogate": _sc_surrogate,
}


def reward(
    name: str,
    candidates: ArrayLike,
    kappa: ArrayLike,
    answer_correct: ArrayLike,
    reference_confidence: ArrayLike,
    reference_surrogate: ArrayLike,
    leave_one_out: bool = False,
) -> Values:
    """Reward of each of M candidate confidences [n, M] of n prompts, as [n, M].

    name: one of REWARDS. kappa [n], answer_correct [n] of the realised answers, (C, K): the reference set. With
    leave_one_out the reference set must be that of the same n prompts in the same order, and prompt i's own pair is
    left out of it (sc, sc-surrogate, nrd; the others use none). ValueError for an unknown name or other shapes.
    """
    if name not in REWARDS:
        raise ValueError(f"no reward {name!r}; there are {', '.join(REWARDS)}")
    candidates, kappa = _floats(candidates, "candidates"), _floats(kappa, "kappa")
    answer_correct = np.asarray(answer_correct)
    n = len(kappa)
    if candidates.ndim != 2 or candidates.shape[0] != n or kappa.shape != (n,) or answer_correct.shape != (n,):
        shapes = f"{candidates.shape}, {kappa.shape}, {answer_correct.shape}"
        raise ValueError(f"expected candidates [n, M], kappa [n] and answer_correct [n], not {shapes}")
    if leave_one_out and (len(reference_confidence), len(reference_surrogate)) != (n, n):
        raise ValueError(
            f"leave_one_out needs the {n} prompts' own reference set, not {len(reference_confidence)} pairs"
        )
    return REWARDS[name](candidates, kappa, answer_correct, reference_confidence, reference_surrogate, leave_one_out)


# ---- preference pairs


@dataclass(frozen=True)
class Pairs:
    """Preferred and rejected samples: prompt, chosen, rejected are arrays [P] of row and column numbers.

    skipped: how many prompts gave no pair, by reason ("one value", "equal rewards").
    """

    prompt: NDArray[np.int64]
    chosen: NDArray[np.int64]
    rejected: NDArray[np.int64]
    skipped: dict[str, int]


def select_pairs(rewards: ArrayLike, confidences: ArrayLike, seed: int) -> Pairs:
    """The highest and the lowest rewarded of each prompt's samples (paper, "Alignment strategy", step iv).

    rewards [n, M], confidences [n, M]. Among samples of equal reward the value that most samples share wins, then a
    seeded choice. A prompt whose samples are all one value, or all earn the same, gives no pair.
    """
    rewards, confidences = _floats(rewards, "rewards"), _floats(confidences, "confidences")
    if rewards.ndim != 2 or rewards.shape != confidences.shape or not rewards.shape[1]:
        raise ValueError(f"expected two arrays [n, M >= 1], not {rewards.shape} and {confidences.shape}")
    one_value = np.ptp(confidences, axis=1) == 0
    equal_rewards = ~one_value & (np.ptp(rewards, axis=1) == 0)
    prompt = np.flatnonzero(~one_value & ~equal_rewards)
    shared = _shared(confidences)
    # Noise for every prompt, also those without a pair, so that one prompt's choice does not hang on another's fate.
    noise = np.random.default_rng(seed).random((2, *rewards.shape))
    chosen, rejected = _first(rewards, shared, noise[0]), _first(-rewards, shared, noise[1])
    skipped = {"one value": int(one_value.sum()), "equal rewards": int(equal_rewards.sum())}
    return Pairs(prompt, chosen[prompt], rejected[prompt], skipped)


def _shared(confidences: Values) -> NDArray[np.int64]:
    """How many samples of its row have each sample's value, [n, M]."""
    return np.stack([(confidences == column[:, None]).sum(axis=1) for column in confidences.T], axis=1)


def _first(score: Values, shared: NDArray, noise: Values) -> NDArray[np.int64]:
    """Column of the highest score in each row, ties by the higher shared, then by the higher noise."""
    best = score == score.max(axis=1, keepdims=True)
    shared = np.where(best, shared, -1)
    best &= shared == shared.max(axis=1, keepdims=True)
    return np.where(best, noise, -1.0).argmax(axis=1)
