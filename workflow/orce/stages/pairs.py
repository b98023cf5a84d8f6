"""DPO pairs: each prompt's highest- and lowest-rewarded statements among its candidates (section
3.3).

Records are in TRL's conversational preference format. Where DPO's reference model sampled the
candidates, or the first round has its log-probabilities of all statements, they also hold those of
both statements, under TRL's names. The manifest has r_s(C, K), Spearman's correlation of the
reference set, as `reference_spearman`: the paper asks that the warm start make it positive; how
many values C has (`reference_values`), and how often it cannot tell two candidates of a prompt
apart (`tied`).
"""

import math
from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from msgspec import UNSET

from orce import methods, stages, tasks
from orce.align.rewards import (
    Reward,
    Values,
    doubled_rank,
    load,
    numeric_ranking_difference,
    reward_candidates,
    reward_without_own_pair,
    select_pairs,
    spearman_marginal,
)
from orce.artefacts import store
from orce.artefacts.records import Candidate, Pair, Realised
from orce.config import picking
from orce.errors import BadInput
from orce.llm.chat import expected, statement
from orce.metrics.definitions import spearman
from orce.runtime.process import say
from orce.settings.schema import Config
from orce.settings.stage import TaskSettings

# With fewer values of C, or more candidates that tie among them, a warning: there is little to order.
FEW_VALUES = 5
MOSTLY_TIED = 0.5
BY_ORDER = (spearman_marginal, numeric_ranking_difference)  # the rewards that see the order of C


class PairsSettings(TaskSettings, kw_only=True):
    reward: str
    module: str
    reference: str
    leave_one_out: bool
    seed: int
    accept: str = "all"

    @classmethod
    def of(cls, config: Config, dataset: str, model: str, reward: str) -> Self:
        more = {"reward": reward, "module": methods.of(config).rewards[reward]}
        return picking.pick(cls, config, f"pairs {reward}", dataset, model, config.dpo, **more)


def run(
    settings: PairsSettings,
    surrogate: str,
    prompts: stages.Prompts,
    candidates: str,
    out: str,
    manifest: str,
    from_reference: Annotated[
        bool, "the candidates were sampled from the reference of DPO"
    ] = False,
    reference: Annotated[
        str | None, "of later rounds: candidates.jsonl of the first one, with DPO's reference"
    ] = None,
):
    """Reads candidates.jsonl; writes pairs.jsonl: of each prompt the candidate with the highest
    reward R and the one with the lowest, where they differ (section 3.3).
    """
    examples = stages.read_realised(tasks.get(settings.task), surrogate, prompts)
    drawn = store.records(candidates, Candidate)
    if [example.id for example in examples] != [candidate.id for candidate in drawn]:
        others = f"its ids are not the ids of {' '.join(prompts.values())}"
        raise BadInput(f"{candidates}: {others}; draw it again")
    stated, kappa = reference_set(drawn, settings.reference)
    correlation, _ = spearman(stated, kappa)
    say(f"[{settings.label}] {warm_start_message(correlation)}")
    distinct = len(np.unique(stated))
    tied = tied_candidates(stated, [candidate.confidences for candidate in drawn])
    reward = load(settings.module)
    blurred = reward in BY_ORDER and (distinct < FEW_VALUES or tied > MOSTLY_TIED)
    if settings.reference == "stated" and correlation is not None and blurred:
        say(f"[{settings.label}] {few_values_message(distinct, tied)}")
    records, skipped = preference_records(examples, drawn, reward, settings)
    say(f"[{settings.label}] {len(records)} pairs of {len(examples)} prompts; skipped: {skipped}")
    if from_reference or reference:
        first = store.records(reference, Candidate) if reference else drawn
        add_reference_logprobs(records, first)
    if not records:
        remedy = "give SFT more examples or epochs, or raise confidence.temperature"
        if skipped["equal rewards"] and len(np.unique(kappa)) == 1:
            remedy = "every kappa is the same; choose questions of mixed difficulty"
        elif skipped.get("no improvement"):
            remedy += ", or set dpo.accept: all"
        raise BadInput(
            f"{candidates}: no prompt gives a pair under reward {settings.reward!r} ({skipped}; the reference states "
            f"{distinct} distinct value(s)): {remedy}"
        )
    order = {"reference_spearman": correlation, "reference_values": distinct, "tied": tied}
    store.write(out, records, settings, manifest, skipped=skipped, **order)


def warm_start_message(correlation: float | None) -> str:
    """One line about r_s(C, K): a warning where it is not positive, as the SC reward then has no
    order to improve.
    """
    named = "r_s(C, K) of the reference set"
    remedy = "the paper asks that the warm start make it positive: give SFT more examples or epochs (sft.epochs)"
    if correlation is None:
        undefined = f"warning: {named} is undefined, as every C or every K is the same"
        return f"{undefined}; {remedy}, or set dpo.reference: mean"
    if correlation > 0:
        return f"{named}: {correlation:.3f}"
    return f"warning: {named} is {correlation:.3f}; {remedy}"


def tied_candidates(stated: Values, candidates: Sequence[Sequence[float]]) -> float:
    """Of two different candidates of a prompt, the share that no order of C tells apart: both lie
    between the same two values of C. C [P], float; 0 where no prompt has two different candidates.
    """
    values = np.unique(stated)
    pairs = 0
    tied = 0
    for confidences in candidates:
        drawn = np.unique(confidences)
        _, together = np.unique(doubled_rank(values, drawn), return_counts=True)
        pairs += math.comb(len(drawn), 2)
        tied += sum(math.comb(n, 2) for n in together.tolist())
    return tied / pairs if pairs else 0.0


def few_values_message(distinct: int, tied: float) -> str:
    return (
        f"warning: the reference states {distinct} distinct value(s), and {tied:.0%} of two candidates of a prompt have the "
        "same rank among them, so the reward cannot tell these apart"
    )


def reference_set(candidates: Sequence[Candidate], reference: str) -> tuple[Values, Values]:
    """(C, K), float [P] each. reference: whether C is what the model states, or the `mean` of its
    distribution.
    """
    c = []
    k = []
    for candidate in candidates:
        c.append(expected(candidate.logprobs) if reference == "mean" else candidate.stated)
        k.append(candidate.kappa)
    return np.array(c, dtype=np.float64), np.array(k, dtype=np.float64)


def preference_records(
    examples: Sequence[Realised],
    candidates: Sequence[Candidate],
    reward: Reward,
    settings: PairsSettings,
) -> tuple[list[Pair], dict[str, int]]:
    """Preference pairs, and the number of prompts without one, by reason.

    candidates: of the same prompts, in the same order; they are also the reference set (C, K).
    """
    confidences = np.array([candidate.confidences for candidate in candidates])
    correct = np.array([candidate.correct for candidate in candidates])
    stated, kappa = reference_set(candidates, settings.reference)
    score = reward_without_own_pair if settings.leave_one_out else reward_candidates
    rewards = score(reward, stated, kappa, confidences, kappa, correct)
    # Each reward accepts by itself: r_s of the generated list would put order into rewards that an
    # ablation has without it.
    gains = rewards if settings.accept == "improving" and reward is spearman_marginal else None
    chosen = select_pairs(rewards, confidences, settings.seed, gains)
    records = []
    for i, best, worst in zip(chosen.prompt, chosen.chosen, chosen.rejected, strict=True):
        turns = [{"role": "assistant", "content": text} for text in candidates[i].raw]
        pair = Pair(
            id=examples[i].id,
            prompt=examples[i].prompt,
            chosen=[turns[best]],
            rejected=[turns[worst]],
            reward_chosen=float(rewards[i, best]),
            reward_rejected=float(rewards[i, worst]),
        )
        records.append(pair)
    return records, chosen.skipped


def add_reference_logprobs(pairs: Sequence[Pair], candidates: Sequence[Candidate]) -> None:
    """Add ref_chosen_logps and ref_rejected_logps: log-probabilities under the model that sampled
    the candidates, in the arithmetic of training where they have these.
    """
    statements = [statement(percent) for percent in range(101)]
    known = {}
    for row in candidates:
        turns = zip(row.raw, row.completion_logprobs, strict=True)
        if row.reference is not UNSET:
            turns = zip(statements, row.reference, strict=True)
        known[row.id] = dict(turns)
    for pair in pairs:
        pair.ref_chosen_logps = known[pair.id][pair.chosen[0]["content"]]
        pair.ref_rejected_logps = known[pair.id][pair.rejected[0]["content"]]
