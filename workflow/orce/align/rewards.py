"""Section 3.2, the rewards of a stated confidence, and section 3.3, the pairs that they choose.

A reward says how good it would be to state confidence c for an answer whose prompt has kappa, given
a reference set of pairs (C, K). All rewards have one signature, and so has `reward` in a file of
your own:

    reward(reference_confidence, reference_surrogate, confidence, surrogate, correct) -> array

reference_confidence (C) and reference_surrogate (K) are arrays [n]. confidence (c), surrogate
(kappa) and correct describe the candidates and broadcast to one shape, which is also the result's;
`correct` says whether the answer shown to the confidence LLM is right. Confidences and kappas must
lie in [0, 1], and `correct` must be 0 or 1 (else ValueError); they are compared without rounding.

Only the order of a prompt's rewards matters. SC rewards are of order 1/n, and computed from exact
integers.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orce.metrics.counts import as_exact, as_labels, as_unit, clear_of_ends
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
Integers = NDArray[np.int64]
Values = NDArray[np.float64]
Reward = Callable[..., Values]


def _checked(formula: Reward, needs_correct: bool = False) -> Reward:
    """Decorates the formula of a reward, which then gets its arguments checked and as float64 arrays.

    needs_correct: whether the formula reads `correct`. Others may be called without it.
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
        confidence = as_unit(confidence, "confidence")
        surrogate = as_unit(surrogate, "surrogate")
        return formula(c, k, confidence, surrogate, correct)

    return reward


# The order-aware reward


@_checked
def spearman_marginal(
    reference_confidence, reference_surrogate, confidence, surrogate, correct=None
):
    """SC reward: R_SC(c, kappa; C, K) = r_s(C + {c}, K + {kappa}) - r_s(C, K). Section 3.2,
    "Spearman correlation reward".

    r_s has average ranks, and counts as 0 where a side is constant. Memory and time grow with the
    number of distinct confidences times the number of distinct kappas.
    """
    c_levels, row, new_row = _indexed(reference_confidence, confidence)
    k_levels, column, new_column = _indexed(reference_surrogate, surrogate)
    # The reference set as a contingency table: how many of its pairs have each C and each K.
    size = len(c_levels) * len(k_levels)
    counts = np.bincount(row * len(k_levels) + column, minlength=size)
    table = _marginal_table(counts.reshape(len(c_levels), len(k_levels)))
    return table[new_row, new_column]


def _indexed(reference: Values, values: Values) -> tuple[Values, Integers, Integers]:
    """The distinct numbers of both, ascending, and the index among them of each of `reference` [n]
    and of `values`.

    One sort of all numbers takes half as long as a search of each among the distinct ones.
    """
    levels, index = np.unique(np.concatenate([reference, values.ravel()]), return_inverse=True)
    old, new = np.split(index, [len(reference)])
    return levels, old, new.reshape(values.shape)


def _marginal_table(counts: Integers) -> Values:
    """R_SC of one more item in each cell [A, B] of the contingency table of (C, K), whose rows and
    columns ascend.

    a [A] and b [B] are the average ranks of each C and each K, doubled and centred, hence integers;
    an empty row or column has the rank that a new item would get. A new item shifts the doubled,
    centred rank of every other item: by +1 above the new one, by -1 below it, by 0 if tied. So each
    sum over the enlarged set follows from sums over the items above minus those below, and
    cumulative sums give these for all cells at once.
    """
    n = int(counts.sum())
    counts = as_exact(n, counts)
    p = counts.sum(axis=1)  # items with each C
    q = counts.sum(axis=0)  # items with each K
    a = 2 * np.cumsum(p) - p - n
    b = 2 * np.cumsum(q) - q - n

    # r_s(C, K) = sxy / sqrt(sxx syy)
    sxx = p @ a**2
    syy = q @ b**2
    sxy = a @ counts @ b

    # With c: sum (a + shift)^2 = sum a^2 + 2 sum a shift + sum shift^2, and the new item's own a^2.
    # shift^2 is 1 for the n - p items that are not tied with it.
    sxx_new = sxx + 2 * _above_less_below(p * a) + n - p + a**2
    syy_new = syy + 2 * _above_less_below(q * b) + n - q + b**2

    # With (c, kappa): sum (a + shift_c)(b + shift_k), term by term, and the new item's own a b.
    sxy_new = np.outer(a, b) + sxy
    sxy_new += _above_less_below(a @ counts)  # sum a shift_k, for each K
    sxy_new += _above_less_below(counts @ b)[:, None]  # sum b shift_c, for each C
    sxy_new += _above_less_below(_above_less_below(counts).T).T  # sum shift_c shift_k

    return _correlation(sxy_new, sxx_new[:, None], syy_new) - _correlation(sxy, sxx, syy)


def _above_less_below(weights: Integers) -> Integers:
    """For each position on the last axis, the sum of all later weights minus that of all earlier
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


# What it is compared with


@_checked
def numeric_ranking_difference(
    reference_confidence, reference_surrogate, confidence, surrogate, correct=None
):
    """NRD reward: R_NRD = -|rank of c in C + {c} - rank of kappa in K + {kappa}|, with average
    ranks. Section 3.2.
    """
    rank_c = doubled_rank(np.sort(reference_confidence), confidence)
    rank_k = doubled_rank(np.sort(reference_surrogate), surrogate)
    # 0 minus, not a sign: the reward of equal ranks is 0, not -0.
    return 0.0 - np.abs(rank_c - rank_k) / 2


def doubled_rank(ordered: Values, value: Values) -> Integers:
    """Twice the average rank of a value among ascending numbers and itself, minus a constant."""
    return np.searchsorted(ordered, value, "left") + np.searchsorted(ordered, value, "right")


@_checked
def spearman_marginal_without_generation(
    reference_confidence, reference_surrogate, confidence, surrogate, correct=None
):
    """SC reward "w/o gen": R_SC(c, kappa; K, K), with K in place of the generated C. Table 4."""
    return spearman_marginal(reference_surrogate, reference_surrogate, confidence, surrogate)


@_checked
def numeric_distance(
    reference_confidence, reference_surrogate, confidence, surrogate, correct=None
):
    """Numeric distance: -|c - kappa|. Table 4, "Numeric dist".

    Rounded to 12 decimals: 0.3 and 0.5 are equally far from 0.4, though not in floating point.
    """
    return 0.0 - np.round(np.abs(confidence - surrogate), 12)


@partial(_checked, needs_correct=True)
def sayself(reference_confidence, reference_surrogate, confidence, surrogate, correct):
    """SaySelf-inspired reward: c for a right answer, -c for a wrong one. Table 4."""
    return np.where(correct == 1, confidence, 0.0 - confidence)


@partial(_checked, needs_correct=True)
def brier_reward(reference_confidence, reference_surrogate, confidence, surrogate, correct):
    """RLCR's reward (Damani et al., 2025, arXiv 2507.16806): g - (c - g)^2, with g = 1 for a right
    answer and 0 for a wrong one.

    The candidates of a prompt share its answer, so g only shifts their rewards: their order is that
    of the Brier score.
    """
    return correct - (confidence - correct) ** 2


@partial(_checked, needs_correct=True)
def log_score(reference_confidence, reference_surrogate, confidence, surrogate, correct):
    """Logarithmic score (Good, 1952; as a reward Stangel et al., 2025): ln c for a right answer,
    ln(1 - c) for a wrong one.

    c is kept half a percent away from 0 and 1, where the score would be infinite.
    """
    confidence = clear_of_ends(confidence)
    return np.where(correct == 1, np.log(confidence), np.log1p(-confidence))


# The rewards of a configuration: of the paper's ablation table, of others' proper scoring rules,
# and in users' files

REWARDS: dict[str, Reward] = {
    "sc": spearman_marginal,
    "sayself": sayself,
    "sc-surrogate": spearman_marginal_without_generation,
    "numeric": numeric_distance,
    "nrd": numeric_ranking_difference,
    "rlcr": brier_reward,
    "logscore": log_score,
}
LABELS = {  # rows of the tables
    "sc": "ORCE",
    "sayself": "SaySelf-inspired RL objective",
    "sc-surrogate": "W/o gen (SC)",
    "numeric": "Numeric dist",
    "nrd": "NRD",
    "rlcr": "Brier reward (RLCR)",
    "logscore": "Log-score reward",
}


def _fits_candidates(rewards, arguments: tuple) -> bool:
    confidence = arguments[2]
    return np.shape(rewards) == np.shape(confidence) and bool(np.isfinite(rewards).all())


CONTRACT = Contract(
    "reward(reference_confidence, reference_surrogate, confidence, surrogate, correct) -> an array of the shape of confidence, "
    "all of it finite",
    _fits_candidates,
)


def from_path(path: str):
    """The module in a user's file: `reward`, whose results are checked, and LABEL, its row in the
    tables. Raises BadInput for what it lacks.
    """
    module = from_file(path)
    require(module, path, ("LABEL", "reward"), "a reward")
    return keep_contracts(module, path, (CONTRACT,))


def row_label(module: str) -> str:
    """The row in the tables of a reward: of a name above, or of a user's file."""
    return from_path(module).LABEL if module.endswith(".py") else LABELS[module]


def load(module: str) -> Reward:
    """The reward of a name above, or of a user's file."""
    return from_path(module).reward if module.endswith(".py") else REWARDS[module]


# Section 3.3: the candidates of all prompts are scored, and each prompt's best and worst are a pair


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
    reference = np.column_stack([reference_confidence, reference_surrogate])  # [P, 2]
    confidence = np.asarray(confidence)
    surrogate = np.asarray(surrogate)
    correct = np.asarray(correct)
    if len(reference) != len(surrogate):
        raise ValueError(
            f"expected the reference pairs of the {len(surrogate)} prompts, not {len(reference)}"
        )
    rewards = np.empty(confidence.shape)
    _, first, group = np.unique(reference, axis=0, return_index=True, return_inverse=True)
    for number, own_pair in enumerate(first):
        prompts = group.ravel() == number
        c, k = np.delete(reference, own_pair, axis=0).T
        rewards[prompts] = reward_candidates(
            reward, c, k, confidence[prompts], surrogate[prompts], correct[prompts]
        )
    return rewards


class Pairs(NamedTuple):
    """Preferred and rejected candidates. prompt [P] are row numbers, chosen [P] and rejected [P]
    column numbers.

    skipped: number of prompts without a pair, by reason ("one value", "equal rewards", "no
    improvement").
    """

    prompt: Integers
    chosen: Integers
    rejected: Integers
    skipped: dict[str, int]


def select_pairs(
    rewards: ArrayLike, confidences: ArrayLike, seed: int, gains: ArrayLike | None = None
) -> Pairs:
    """The highest- and the lowest-rewarded of each prompt's candidates, z+ and z-.

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
    shared = np.zeros(confidences.shape, dtype=np.int64)
    for column in confidences.T:  # all at once would take [P, M, M]
        shared += confidences == column[:, None]
    # Every prompt gets noise, with or without a pair, so no choice depends on other prompts.
    noise = np.random.default_rng(seed).random((2, *rewards.shape))

    def best_column(score: Values, tie_breaker: Values) -> Integers:
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
