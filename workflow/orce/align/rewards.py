"""Rewards for candidate confidences, and the pairs that they choose (sections 3.2 and 3.3).

A reward says how good it would be to state confidence c for an answer whose prompt has correctness
likelihood kappa, given a reference set of pairs (C, K). All rewards have one signature, and so has
`reward` in a file of your own:

    reward(reference_confidence, reference_surrogate, confidence, surrogate, correct) -> array

reference_confidence (C) and reference_surrogate (K) are arrays [n]. confidence, surrogate and
correct describe the candidates and broadcast to one shape, which is also the result's; `correct`
says whether the answer shown to the confidence LLM is right. Confidences and kappas must lie in [0,
1], and `correct` must be 0 or 1 (else ValueError); they are compared without rounding.

Only the order of a prompt's rewards matters. SC rewards are of order 1/n, and computed from exact
integers.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orce.metrics.counts import as_exact, as_labels, as_unit
from orce.runtime.modules import Contract, from_file, keep_contracts, require

__all__ = [
    "REWARDS",
    "brier_reward",
    "log_score",
    "numeric_distance",
    "numeric_ranking_difference",
    "reward_candidates",
    "reward_without_own_pair",
    "sayself",
    "select_pairs",
    "spearman_marginal",
    "spearman_marginal_without_generation",
]
Values = NDArray[np.float64]
Reward = Callable[..., Values]


def _checked(formula: Reward, needs_correct: bool = False) -> Reward:
    """The reward of a formula: checks the five arguments and passes them on as float64 arrays.

    needs_correct: whether the formula reads `correct`, which is None for the others where it is not
        given.
    """

    @wraps(formula)
    def reward(
        reference_confidence, reference_surrogate, confidence, surrogate, correct=None
    ) -> Values:
        c = as_unit(reference_confidence, "reference_confidence")
        k = as_unit(reference_surrogate, "reference_surrogate")
        if c.ndim != 1 or c.shape != k.shape:
            raise ValueError(
                f"expected two reference arrays [n] of one length, not {c.shape} and {k.shape}"
            )
        if correct is not None:
            correct = as_labels(correct, "correct")
        elif needs_correct:
            raise ValueError("this reward needs `correct`: 0 or 1 for each candidate, or for all")
        return formula(
            c, k, as_unit(confidence, "confidence"), as_unit(surrogate, "surrogate"), correct
        )

    return reward


@_checked
def spearman_marginal(
    reference_confidence, reference_surrogate, confidence, surrogate, correct=None
):
    """SC reward: R_SC(c, kappa; C, K) = r_s(C + {c}, K + {kappa}) - r_s(C, K), with average ranks.

    r_s of a constant side counts as 0. Section 3.2, "Spearman correlation reward". Memory and time
    grow with the number of distinct confidences times the number of distinct kappas.
    """
    levels_c, row, new_row = _indexed(reference_confidence, confidence)
    levels_k, column, new_column = _indexed(reference_surrogate, surrogate)
    # The reference set as a contingency table: how many of its pairs have each C and each K.
    size = len(levels_c) * len(levels_k)
    counts = np.bincount(row * len(levels_k) + column, minlength=size)
    table = _marginal_table(counts.reshape(len(levels_c), len(levels_k)))
    return table[new_row, new_column]


def _indexed(
    reference: Values, values: Values
) -> tuple[Values, NDArray[np.int64], NDArray[np.int64]]:
    """The distinct numbers of both, ascending, and the index among them of each of `reference` [n]
    and of `values`.

    One sort of all numbers takes half as long as a search of each among the distinct ones.
    """
    distinct, index = np.unique(np.concatenate([reference, values.ravel()]), return_inverse=True)
    return distinct, index[: len(reference)], index[len(reference) :].reshape(values.shape)


def _marginal_table(counts: NDArray[np.int64]) -> Values:
    """R_SC of one more item in each cell [A, B] of a contingency table: counts of C by K, both in
    ascending order.

    a and b are average ranks, doubled and centred, hence integers; an empty row or column has the
    rank that a new item would get. A new item shifts the doubled, centred rank of every other item:
    by +1 if that is above the new one, by -1 if below, by 0 if tied. So all sums of the enlarged
    set follow from sums over the items above minus those below, and cumulative sums give these for
    all cells at once.
    """
    counts = as_exact(int(counts.sum()), counts)
    n = counts.sum()
    p = counts.sum(axis=1)  # items with each C
    q = counts.sum(axis=0)  # items with each K
    a = 2 * np.cumsum(p) - p - n
    b = 2 * np.cumsum(q) - q - n

    # r_s(C, K) = sxy / sqrt(sxx syy)
    sxx = p @ a**2
    syy = q @ b**2
    sxy = a @ counts @ b

    # sxx + {c}: sum (a + shift)^2 = sum a^2 + 2 sum a shift + sum shift^2. shift^2 is 1 for the n -
    # p items that are not tied with the new one, whose own square is a^2.
    sxx_new = sxx + 2 * _above_less_below(p * a) + n - p + a**2
    syy_new = syy + 2 * _above_less_below(q * b) + n - q + b**2

    # sxy + {(c, kappa)}: sum (a + shift_c)(b + shift_k), expanded, and the new item's own a b
    sxy_new = sxy + _above_less_below(a @ counts)  # sum a shift_k, one for each K
    sxy_new = sxy_new + _above_less_below(counts @ b)[:, None]  # sum b shift_c, one for each C
    sxy_new += np.outer(a, b)
    sxy_new += _above_less_below(_above_less_below(counts).T).T  # sum shift_c shift_k

    return _correlation(sxy_new, sxx_new[:, None], syy_new) - _correlation(sxy, sxx, syy)


def _above_less_below(weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each position on the last axis, the sum of all later weights minus the sum of all earlier
    ones.
    """
    up_to = np.cumsum(weights, axis=-1)
    return up_to[..., -1:] - 2 * up_to + weights


def _correlation(sxy: NDArray, sxx: NDArray, syy: NDArray) -> Values:
    """sxy / sqrt(sxx syy), and 0 where a side is constant."""
    # The product of the integers would overflow.
    sxy, sxx, syy = (np.asarray(sums, dtype=np.float64) for sums in (sxy, sxx, syy))
    scale = np.sqrt(sxx * syy)
    return np.divide(sxy, scale, out=np.zeros(np.shape(sxy)), where=scale > 0)


@_checked
def spearman_marginal_without_generation(
    reference_confidence, reference_surrogate, confidence, surrogate, correct=None
):
    """SC reward "w/o gen": R_SC(c, kappa; K, K), with K in place of the generated C. Table 4."""
    return spearman_marginal(reference_surrogate, reference_surrogate, confidence, surrogate)


@_checked
def numeric_ranking_difference(
    reference_confidence, reference_surrogate, confidence, surrogate, correct=None
):
    """NRD reward: R_NRD = -|rank of c in C + {c} - rank of kappa in K + {kappa}|, with average
    ranks. Section 3.2.
    """
    rank_c = _doubled_rank(reference_confidence, confidence)
    rank_k = _doubled_rank(reference_surrogate, surrogate)
    # 0 minus, not a sign: the reward of equal ranks is 0, not -0.
    return np.asarray(0.0 - np.abs(rank_c - rank_k) / 2, dtype=np.float64)


def _doubled_rank(reference: Values, value: Values) -> NDArray[np.int64]:
    """Twice the average rank of a value added to the reference, minus a constant."""
    ordered = np.sort(reference)
    return np.searchsorted(ordered, value, "left") + np.searchsorted(ordered, value, "right")


@_checked
def numeric_distance(
    reference_confidence, reference_surrogate, confidence, surrogate, correct=None
):
    """Numeric distance: -|c - kappa|. Table 4, "Numeric dist".

    Rounded to 12 decimals: 0.3 and 0.5 are equally far from 0.4, though not in floating point.
    """
    return np.asarray(0.0 - np.round(np.abs(confidence - surrogate), 12), dtype=np.float64)


@partial(_checked, needs_correct=True)
def sayself(reference_confidence, reference_surrogate, confidence, surrogate, correct):
    """SaySelf-inspired reward: c for a right answer, -c for a wrong one. Table 4."""
    return np.where(correct == 1, confidence, 0.0 - confidence)


@partial(_checked, needs_correct=True)
def brier_reward(reference_confidence, reference_surrogate, confidence, surrogate, correct):
    """RLCR's reward (Damani et al., 2025, arXiv 2507.16806): g - (c - g)^2, with g = 1 for a right
    answer and 0 for a wrong one.

    The answer is fixed here, so g only shifts the rewards of its candidates: they are ordered as by
        the Brier score.
    """
    return correct - (confidence - correct) ** 2


@partial(_checked, needs_correct=True)
def log_score(reference_confidence, reference_surrogate, confidence, surrogate, correct):
    """Logarithmic score (Good, 1952; as a reward Stangel et al., 2025): ln c for a right answer,
    ln(1 - c) for a wrong one.

    c is kept half a percent away from 0 and 1, where the score would be infinite.
    """
    confidence = np.clip(confidence, 0.005, 0.995)
    return np.where(correct == 1, np.log(confidence), np.log1p(-confidence))


# (name, row, reward): the paper's ablation table, and the proper scoring rules that others train
# with
_TABLE = (
    ("sc", "ORCE", spearman_marginal),
    ("sayself", "SaySelf-inspired RL objective", sayself),
    ("sc-surrogate", "W/o gen (SC)", spearman_marginal_without_generation),
    ("numeric", "Numeric dist", numeric_distance),
    ("nrd", "NRD", numeric_ranking_difference),
    ("rlcr", "Brier reward (RLCR)", brier_reward),
    ("logscore", "Log-score reward", log_score),
)
REWARDS: dict[str, Reward] = {name: reward for name, _, reward in _TABLE}
LABELS = {name: label for name, label, _ in _TABLE}


# The rewards of a configuration: the names above, and `reward` in a Python file, whose LABEL is its
# row


REWARD = Contract(
    "reward(reference_confidence, reference_surrogate, confidence, surrogate, correct) -> an array of the shape of confidence, "
    "all of it finite",
    lambda value, arguments: (
        np.shape(value) == np.shape(arguments[2]) and bool(np.isfinite(value).all())
    ),
)


def from_path(path: str):
    """The module of a user's reward, watched. Raises BadInput for what it lacks."""
    module = from_file(path)
    require(module, path, ("LABEL", "reward"), "a reward")
    return keep_contracts(module, path, (REWARD,))


def row_label(module: str) -> str:
    """The row in the tables of a reward: of a name above, or of a user's file."""
    return from_path(module).LABEL if module.endswith(".py") else LABELS[module]


def load(module: str) -> Reward:
    """The reward of a name above, or of a user's file."""
    return from_path(module).reward if module.endswith(".py") else REWARDS[module]


# The rewards of many prompts, and each prompt's pair


def reward_candidates(
    reward: Reward, reference_confidence, reference_surrogate, confidence, surrogate, correct
) -> Values:
    """Rewards [P, M] of M candidates of each of P prompts: confidence [P, M], surrogate [P] and
    correct [P].

    The reference set is any two arrays [n]. Raises ValueError for other shapes, of the result too.
    """
    confidence = np.asarray(confidence)
    surrogate = np.asarray(surrogate)
    correct = np.asarray(correct)
    prompts = confidence.shape[:1]
    if confidence.ndim != 2 or surrogate.shape != prompts or correct.shape != prompts:
        shapes = f"{confidence.shape}, {surrogate.shape} and {correct.shape}"
        raise ValueError(f"expected confidence [P, M], surrogate [P] and correct [P], not {shapes}")
    # Candidates of one prompt share its kappa and its answer.
    kappas = np.broadcast_to(surrogate[:, None], confidence.shape)
    labels = np.broadcast_to(correct[:, None], confidence.shape)
    rewards = reward(reference_confidence, reference_surrogate, confidence, kappas, labels)
    if np.shape(rewards) != confidence.shape:
        raise ValueError(
            f"expected one reward a candidate, {confidence.shape}, not {np.shape(rewards)}"
        )
    return rewards


def reward_without_own_pair(
    reward: Reward, reference_confidence, reference_surrogate, confidence, surrogate, correct
) -> Values:
    """Like reward_candidates, with prompt i's own pair, (C_i, K_i), left out of its reference set
    (leave-one-out).

    The reference set [P] belongs to the same prompts. Prompts with equal pairs share the reduced
    set, so the reward is called once per distinct pair.
    """
    c = np.asarray(reference_confidence)
    k = np.asarray(reference_surrogate)
    confidence = np.asarray(confidence)
    surrogate = np.asarray(surrogate)
    correct = np.asarray(correct)
    if c.shape != surrogate.shape or k.shape != surrogate.shape:
        raise ValueError(
            f"expected the reference pairs of the {len(surrogate)} prompts, not {c.shape} and {k.shape}"
        )
    rewards = np.empty(confidence.shape)
    _, first, group = np.unique(np.stack([c, k]), axis=1, return_index=True, return_inverse=True)
    for number, own_pair in enumerate(first):
        prompts = group.ravel() == number
        rewards[prompts] = reward_candidates(
            reward,
            np.delete(c, own_pair),
            np.delete(k, own_pair),
            confidence[prompts],
            surrogate[prompts],
            correct[prompts],
        )
    return rewards


class Pairs(NamedTuple):
    """Preferred and rejected candidates. prompt [P] are row numbers, chosen [P] and rejected [P]
    column numbers.

    skipped: number of prompts without a pair, by reason ("one value", "equal rewards", "no
        improvement").
    """

    prompt: NDArray[np.int64]
    chosen: NDArray[np.int64]
    rejected: NDArray[np.int64]
    skipped: dict[str, int]


def select_pairs(
    rewards: ArrayLike, confidences: ArrayLike, seed: int, gains: ArrayLike | None = None
) -> Pairs:
    """The highest- and the lowest-rewarded of each prompt's candidates.

    rewards [P, M], confidences [P, M]. Among equal rewards the most frequent value of the prompt's
    candidates wins, then a seeded choice. A prompt whose candidates all have one value, or all one
    reward, gives no pair; nor does one whose preferred candidate has no positive gain, where gains
    [P, M] are given. Raises ValueError for other shapes and for values that are not finite.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    confidences = np.asarray(confidences, dtype=np.float64)
    if rewards.ndim != 2 or rewards.shape != confidences.shape or not rewards.shape[1]:
        raise ValueError(
            f"expected two arrays [P, M >= 1], not {rewards.shape} and {confidences.shape}"
        )
    if not (np.isfinite(rewards).all() and np.isfinite(confidences).all()):
        raise ValueError("rewards or confidences have values that are not finite numbers")
    one_value = np.ptp(confidences, axis=1) == 0
    equal_rewards = ~one_value & (np.ptp(rewards, axis=1) == 0)
    prompt = np.flatnonzero(~one_value & ~equal_rewards)
    # How many candidates of its prompt have a candidate's value, [P, M].
    shared = (confidences[:, :, None] == confidences[:, None, :]).sum(axis=2)
    # Every prompt gets noise, with or without a pair, so no choice depends on other prompts.
    noise = np.random.default_rng(seed).random((2, *rewards.shape))

    def best_column(score: Values, tie_breaker: Values) -> NDArray[np.int64]:
        # np.lexsort sorts by its last key first: score, then frequency, then noise.
        return np.lexsort((tie_breaker, shared, score))[:, -1]

    chosen = best_column(rewards, noise[0])
    rejected = best_column(-rewards, noise[1])
    skipped = {"one value": int(one_value.sum()), "equal rewards": int(equal_rewards.sum())}
    if gains is not None:
        improving = np.asarray(gains)[prompt, chosen[prompt]] > 0
        skipped["no improvement"] = int((~improving).sum())
        prompt = prompt[improving]
    return Pairs(prompt, chosen[prompt], rejected[prompt], skipped)
