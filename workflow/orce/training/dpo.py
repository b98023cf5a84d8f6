"""Alignment (section 3.3): DPO on pairs of statements, one that the reward prefers and one that it
rejects.

Chosen and rejected are a few tokens after the same long prompt, which is computed once for both, as
a token trie. The log-probabilities of the reference, the model before alignment, come with the
pairs: in float32 those that the candidates were sampled with, otherwise those of all 101 turns, computed
once for the rounds and rewards of a cell in the arithmetic of training, as the policy starts there.
Where pairs have others, or none, they are computed before the first step.
"""

from collections.abc import Sequence

import numpy as np
import torch
from msgspec import UnsetType
from msgspec.structs import replace
from torch.nn.functional import logsigmoid

from orce.artefacts import store
from orce.artefacts.records import Pair
from orce.errors import BadInput
from orce.llm.chat import Messages, completion_ids, prompts_ids, statement
from orce.llm.trie import TokenTrie, node_logprobs, path_logprobs
from orce.runtime.process import Progress, speed
from orce.settings.stage import TrainingSettings, parse_training_job
from orce.training import common
from orce.training.steps import Batch, PackedTrainer, PreferenceRow, Row

CHECKED = 32  # pairs whose reference is computed again
# How much rounding may change a log-probability. Measured: 1e-5 in float32, 0.2 in bfloat16; other
# weights differ more.
TOLERANCE = {"float32": 1e-3, "bfloat16": 1.0, "float16": 1.0}
# How much of it there is within the arithmetic of training. Measured: 6e-4 in bfloat16, and .06 to
# .2 beside what a reader computes.
SAME = {"float32": 1e-3, "bfloat16": 1e-2, "float16": 1e-2}


# A pair as token ids


def rows(lm, pairs: Sequence[Pair]) -> list[PreferenceRow]:
    """Token ids of pairs, without the reference."""
    prompts = prompts_ids(lm.tokenizer, [pair.prompt for pair in pairs], lm.template_kwargs)
    rows = []
    for pair, prompt in zip(pairs, prompts, strict=True):
        chosen = completion_ids(lm.tokenizer, pair.chosen[0]["content"])
        rejected = completion_ids(lm.tokenizer, pair.rejected[0]["content"])
        trie = TokenTrie.of([chosen, rejected])
        tokens = len(chosen) + len(rejected)
        rows.append(PreferenceRow(prompt_ids=prompt, trie=trie, trie_tokens=tokens))
    return rows


# The reference, log pi_ref


def turn_logprobs(lm, prompts: Sequence[Messages], tokens: int, dtype: str) -> list[list[float]]:
    """log P of the 101 turns that state a confidence after each prompt, [prompts, 101], `tokens` a
    forward pass, in the arithmetic of training in `dtype`: of whichever pair, DPO's reference.
    """
    turns = [completion_ids(lm.tokenizer, statement(percent)) for percent in range(101)]
    trie = TokenTrie.of(turns)
    rows = [
        Row(prompt_ids=ids, trie=trie, trie_tokens=len(trie.inner))
        for ids in prompts_ids(lm.tokenizer, prompts, lm.template_kwargs)
    ]
    return common.logprobs(lm, rows, tokens, dtype).tolist()


def reference_logprobs(
    lm, data: Sequence[PreferenceRow], tokens: int, label: str, dtype="float32"
) -> list[PreferenceRow]:
    """The rows with their log-probabilities under `lm`, `tokens` a forward pass, in the arithmetic
    of training in `dtype`.
    """
    progress = Progress(f"{label} reference", len(data))
    logprobs = common.logprobs(lm, data, tokens, dtype, progress.update).tolist()
    return [replace(row, reference=tuple(both)) for row, both in zip(data, logprobs, strict=True)]


def with_reference(
    lm, data: Sequence[PreferenceRow], pairs: Sequence[Pair], tokens: int, label: str, dtype: str
) -> list[PreferenceRow]:
    """The rows with the reference's log-probabilities in training's arithmetic: those in `pairs`,
    if they are. dtype: of training. Raises BadInput if those in `pairs` were computed with other
    weights than `lm`.
    """
    recorded = []
    for row, pair in zip(data, pairs, strict=True):
        chosen = pair.ref_chosen_logps
        rejected = pair.ref_rejected_logps
        if isinstance(chosen, UnsetType) or isinstance(rejected, UnsetType):
            return reference_logprobs(lm, data, tokens, label, dtype)
        recorded.append(replace(row, reference=(chosen, rejected)))

    computed = reference_logprobs(lm, data[:CHECKED], tokens, f"{label} check of the", dtype)
    before = np.array([row.reference for row in recorded[: len(computed)]])
    now = np.array([row.reference for row in computed])
    difference = np.abs(before - now).max()
    if not difference < TOLERANCE[dtype]:
        raise BadInput(
            f"the pairs' ref_chosen_logps and ref_rejected_logps differ by up to {difference:.3g} from the reference's: the "
            "candidates were sampled from other weights; sample candidates and select pairs again"
        )
    if difference < SAME[dtype]:
        return recorded
    # A reader's: the policy would not start at them.
    return reference_logprobs(lm, data, tokens, label, dtype)


# The loss, and a step of it


def dpo_loss(policy: torch.Tensor, reference: torch.Tensor, beta: float) -> torch.Tensor:
    """The DPO loss (section 3.3; Rafailov et al., 2023, equation 7), a mean over pairs; TRL's
    `loss_type` sigmoid.

    -ln sigmoid(beta (log pi(c+ | x) / pi_ref(c+ | x) - log pi(c- | x) / pi_ref(c- | x))). policy,
    reference: log-probabilities [B, 2] of (chosen, rejected), sums over the tokens of a statement
    and its end. beta > 0, usually .1 to .5: the strength of the pull to the reference. The loss is
    ln 2 where policy and reference agree.
    """
    gain = policy - reference
    return -logsigmoid(beta * (gain[:, 0] - gain[:, 1])).mean()


class DpoTrainer(PackedTrainer[PreferenceRow]):
    """Trains on `dpo_loss`."""

    def __init__(self, rows: Sequence[PreferenceRow], beta: float, **options):
        super().__init__(rows, **options)
        self.beta = beta
        # For the log, of each micro-batch of a step: its pairs, those with a positive margin, and
        # the sum of the margins.
        self.outcomes: list[torch.Tensor] = []
        self.parts = 0  # micro-batches of the step

    def collate(self, rows: Sequence[PreferenceRow]) -> Batch:
        return super().collate(rows) | {"reference": torch.tensor([row.reference for row in rows])}

    def micro_batches(self, rows: Sequence[PreferenceRow]) -> list[Batch]:
        parts = super().micro_batches(rows)
        self.outcomes = []
        self.parts = len(parts)
        return parts

    def part_loss(self, model, inputs: Batch) -> torch.Tensor:
        """The loss of a micro-batch: one forward pass of its prompts, each with both statements
        behind it.
        """
        policy = path_logprobs(node_logprobs(model, inputs), inputs)  # log pi(c | x), [B, 2]
        reference = inputs["reference"].to(policy)
        self._note_margins(policy.detach() - reference)
        return dpo_loss(policy, reference, self.beta)

    def _note_margins(self, gain: torch.Tensor) -> None:
        """Adds the pairs of a micro-batch to the log's sums; gain: of policy over reference, [B,
        2].
        """
        rewards = self.beta * gain
        margin = rewards[:, 0] - rewards[:, 1]
        pair = torch.ones_like(margin)
        right = (margin > 0).to(margin)
        self.outcomes.append(torch.stack([pair, right, margin]).sum(1))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds TRL's `rewards/accuracies` and `rewards/margins`: means over the pairs of a step, in
        all processes.
        """
        if "loss" in logs:  # of a step, not the summary at the end
            # Where other processes have more micro-batches, the last one comes again with weight 0;
            # it counts once here.
            own = self.outcomes[: self.parts]
            pairs, right, margins = self.accelerator.reduce(torch.stack(own).sum(0), "sum").tolist()
            logs = logs | {"rewards/accuracies": right / pairs, "rewards/margins": margins / pairs}
        super().log(logs, start_time)


# The training


def train(pairs: Sequence[Pair], settings: TrainingSettings, sft, start, out) -> None:
    """Align the confidence LLM in the folder `start`; the aligned one is left in the folder `out`.
    sft: folder of the reference.
    """
    options = parse_training_job(settings)

    def build(lm, arguments):
        data = rows(lm, pairs)
        common.check_lengths(lm, data)
        reference = lm if str(start) == str(sft) else common.trainable(settings, str(sft))
        tokens = 2 * speed("training")["micro_batch_tokens"]  # nothing is kept for a backward pass
        data = with_reference(reference, data, pairs, tokens, options.label, options.model.dtype)
        lm.model.train()
        # Without dropout: the policy starts at the reference, which had none.
        for module in lm.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        beta = settings["stage"]["beta"]
        if options.training.trainer == "trl":
            from orce.training import stock

            return stock.Dpo(lm.model, arguments["args"], data, lm.tokenizer, beta)
        return DpoTrainer(data, beta, **arguments)

    judges = (store.weights_digest(sft), store.weights_digest(start))
    common.train(build, pairs, settings, out, str(start), judges, stage="dpo", pairs=len(pairs))
