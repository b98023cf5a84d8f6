"""Preference pairs: each prompt's highest- and lowest-rewarded confidences (paper, section 3.3, steps iii and iv).

`preference_records` goes from candidates to DPO's training records; the functions below it are its parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orce.llm.chat import expected, statement, to_percent
from orce.records import Candidate, Messages, Pair, Realised

Values = NDArray[np.float64]
Reward = Callable[[ArrayLike, ArrayLike, ArrayLike, ArrayLike, ArrayLike], Values]

# Which confidence of a candidate record goes into the reference set C.
REFERENCES: dict[str, Callable[[Candidate], float]] = {
    "stated": lambda candidate: candidate.stated,
    "mean": lambda candidate: expected(candidate.logprobs),
}


@dataclass(frozen=True)
class Pairs:
    """Preferred and rejected candidates. prompt [P] are row numbers, chosen [P] and rejected [P] column numbers.

    skipped: number of prompts without a pair, by reason ("one value", "equal rewards").
    """

    prompt: NDArray[np.int64]
    chosen: NDArray[np.int64]
    rejected: NDArray[np.int64]
    skipped: dict[str, int]


def preference_records(
    examples: Sequence[Realised],
    candidates: Sequence[Candidate],
    reward: Reward,
    *,
    reference: str,
    leave_one_out: bool,
    seed: int,
) -> tuple[list[Pair], dict[str, int]]:
    """Preference pairs, and the number of prompts without one, by reason.

    candidates: of the same prompts, in the same order; they are also the reference set (C, K). reference: a key of REFERENCES; reward: see orce.alignment.rewards.
    """
    confidences = np.array([one.confidences for one in candidates])
    correct = np.array([one.correct for one in candidates])
    stated, kappa = reference_set(candidates, reference)
    score = reward_without_own_pair if leave_one_out else reward_candidates
    rewards = score(reward, stated, kappa, confidences, kappa, correct)
    pairs = select_pairs(rewards, confidences, seed)
    records = [
        Pair(
            id=examples[i].id,
            prompt=examples[i].prompt,
            chosen=_turn(float(confidences[i, best])),
            rejected=_turn(float(confidences[i, worst])),
            reward_chosen=float(rewards[i, best]),
            reward_rejected=float(rewards[i, worst]),
        )
        for i, best, worst in zip(pairs.prompt.tolist(), pairs.chosen, pairs.rejected, strict=True)
    ]
    return records, pairs.skipped


def reference_set(candidates: Sequence[Candidate], reference: str) -> tuple[Values, Values]:
    """(C, K), float [P] each, of the candidates; reference: a key of REFERENCES."""
    stated = np.array([REFERENCES[reference](record) for record in candidates], dtype=np.float64)
    return stated, np.array([one.kappa for one in candidates], dtype=np.float64)


def add_reference_logprobs(pairs: Sequence[Pair], candidates: Sequence[Candidate]) -> None:
    """Add ref_chosen_logps and ref_rejected_logps: log-probabilities under the model that sampled the candidates."""
    known = {one.id: dict(zip(one.raw, one.completion_logprobs, strict=True)) for one in candidates}
    for pair in pairs:
        pair.ref_chosen_logps = known[pair.id][pair.chosen[0]["content"]]
        pair.ref_rejected_logps = known[pair.id][pair.rejected[0]["content"]]


def _turn(confidence: float) -> Messages:
    return [{"role": "assistant", "content": statement(to_percent(confidence))}]


def reward_candidates(
    reward: Reward,
    reference_confidence: ArrayLike,
    reference_surrogate: ArrayLike,
    confidence: ArrayLike,
    surrogate: ArrayLike,
    correct: ArrayLike,
) -> Values:
    """Rewards [P, M] of M candidates of each of P prompts: confidence [P, M], surrogate [P] and correct [P].

    The reference set is any two arrays [n]. Raises ValueError for other shapes, of the result too.
    """
    confidence, surrogate, correct = np.asarray(confidence), np.asarray(surrogate), np.asarray(correct)
    if confidence.ndim != 2 or surrogate.shape != confidence.shape[:1] or correct.shape != surrogate.shape:
        shapes = f"{confidence.shape}, {surrogate.shape} and {correct.shape}"
        raise ValueError(f"expected confidence [P, M], surrogate [P] and correct [P], not {shapes}")
    of_prompt = [np.broadcast_to(one[:, None], confidence.shape) for one in (surrogate, correct)]
    rewards = reward(reference_confidence, reference_surrogate, confidence, *of_prompt)
    if np.shape(rewards) != confidence.shape:
        raise ValueError(f"expected one reward a candidate, {confidence.shape}, not {np.shape(rewards)}")
    return rewards


def reward_without_own_pair(
    reward: Reward,
    reference_confidence: ArrayLike,
    reference_surrogate: ArrayLike,
    confidence: ArrayLike,
    surrogate: ArrayLike,
    correct: ArrayLike,
) -> Values:
    """Like reward_candidates, with prompt i's own pair, (C_i, K_i), left out of its reference set (leave-one-out).

    The reference set [P] belongs to the same prompts. Prompts with equal pairs share the reduced set, so the reward is
    called once per distinct pair.
    """
    c, k = np.asarray(reference_confidence), np.asarray(reference_surrogate)
    confidence, surrogate, correct = np.asarray(confidence), np.asarray(surrogate), np.asarray(correct)
    if c.shape != surrogate.shape or k.shape != surrogate.shape:
        raise ValueError(f"expected the reference pairs of the {len(surrogate)} prompts, not {c.shape} and {k.shape}")
    rewards = np.empty(confidence.shape)
    _, first, group = np.unique(np.stack([c, k]), axis=1, return_index=True, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    for own, prompts in zip(first, np.split(order, np.cumsum(np.bincount(group.ravel()))[:-1]), strict=True):
        rest = np.delete(c, own), np.delete(k, own)
        rewards[prompts] = reward_candidates(reward, *rest, confidence[prompts], surrogate[prompts], correct[prompts])
    return rewards


def select_pairs(rewards: ArrayLike, confidences: ArrayLike, seed: int) -> Pairs:
    """The highest- and the lowest-rewarded of each prompt's candidates.

    rewards [P, M], confidences [P, M]. Among equal rewards the most frequent value of the prompt's candidates wins, then
    a seeded choice. A prompt whose candidates all have one value, or all one reward, gives no pair.
    Raises ValueError for other shapes and for values that are not finite.
    """
    rewards, confidences = np.asarray(rewards, dtype=np.float64), np.asarray(confidences, dtype=np.float64)
    if rewards.ndim != 2 or rewards.shape != confidences.shape or not rewards.shape[1]:
        raise ValueError(f"expected two arrays [P, M >= 1], not {rewards.shape} and {confidences.shape}")
    if not (np.isfinite(rewards).all() and np.isfinite(confidences).all()):
        raise ValueError("rewards or confidences have values that are not finite numbers")
    one_value = np.ptp(confidences, axis=1) == 0
    equal_rewards = ~one_value & (np.ptp(rewards, axis=1) == 0)
    prompt = np.flatnonzero(~one_value & ~equal_rewards)
    shared = _shared(confidences)
    # Every prompt gets noise, with or without a pair, so no choice depends on other prompts.
    noise = np.random.default_rng(seed).random((2, *rewards.shape))
    chosen, rejected = _first(rewards, shared, noise[0]), _first(-rewards, shared, noise[1])
    skipped = {"one value": int(one_value.sum()), "equal rewards": int(equal_rewards.sum())}
    return Pairs(prompt, chosen[prompt], rejected[prompt], skipped)


def _shared(confidences: Values) -> NDArray[np.int64]:
    """For each candidate, the number of candidates in its row with the same value, [P, M]."""
    return np.stack([(confidences == column[:, None]).sum(axis=1) for column in confidences.T], axis=1)


def _first(score: Values, shared: NDArray, noise: Values) -> NDArray[np.int64]:
    """Column of the highest score in each row; ties go to the highest `shared`, then to the highest noise."""
    best = score == score.max(axis=1, keepdims=True)
    shared = np.where(best, shared, -1)
    best &= shared == shared.max(axis=1, keepdims=True)
    return np.where(best, noise, -1.0).argmax(axis=1)
