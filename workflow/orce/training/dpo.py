"""Alignment (section 3.3): DPO on pairs of statements, one that the reward prefers and one that it rejects.

Chosen and rejected are a few tokens after the same long prompt, which is computed once for both, as a token trie. The
log-probabilities of the reference, the model before alignment, are computed once, in the arithmetic of training: the policy
starts at it. In float32 those that the candidates were sampled with are the same, and kept.
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
from orce.llm.chat import completion_ids, prompts_ids
from orce.llm.trie import TokenTrie, node_logprobs, path_logprobs
from orce.runtime.process import Progress, speed
from orce.settings.stage import TrainingSettings, parse_training_job
from orce.training import common
from orce.training.steps import Batch, PackedTrainer, Row

CHECKED = 32  # pairs whose reference is computed again
# How much rounding may change a log-probability. Measured: 1e-5 in float32, 0.2 in bfloat16; other weights differ more.
TOLERANCE = {"float32": 1e-3, "bfloat16": 1.0, "float16": 1.0}


class Compared(Row, kw_only=True):
    """A pair; reference: log-probabilities of (chosen, rejected) under the reference."""

    reference: tuple[float, float] = (0.0, 0.0)


def rows(lm, pairs: Sequence[Pair]) -> list[Compared]:
    """Token ids of pairs, without the reference."""
    prompts, compared = (
        prompts_ids(lm.tokenizer, [pair.prompt for pair in pairs], lm.template_kwargs),
        [],
    )
    for pair, prompt in zip(pairs, prompts, strict=True):
        chosen, rejected = (
            completion_ids(lm.tokenizer, side[0]["content"])
            for side in (pair.chosen, pair.rejected)
        )
        trie = TokenTrie.of([chosen, rejected])
        compared.append(Compared(prompt_ids=prompt, trie=trie, more=len(chosen) + len(rejected)))
    return compared


def preference_loss(policy: torch.Tensor, reference: torch.Tensor, beta: float) -> torch.Tensor:
    """DPO loss (Rafailov et al., 2023; section 3.3), a mean over pairs: log-probabilities [B, 2] of (chosen, rejected)."""
    gain = policy - reference
    return -logsigmoid(beta * (gain[:, 0] - gain[:, 1])).mean()


class DpoTrainer(PackedTrainer[Compared]):
    """`preference_loss` of pairs."""

    def __init__(self, rows: Sequence[Compared], beta: float, **more):
        super().__init__(rows, **more)
        self.beta = beta
        # For the log, of each micro-batch of a step: its pairs, those with a positive margin, and the sum of the margins.
        self.outcomes: list[torch.Tensor] = []
        self.parts = 0  # micro-batches of the step

    def collate(self, rows: Sequence[Compared]) -> Batch:
        return super().collate(rows) | {"reference": torch.tensor([row.reference for row in rows])}

    def cut(self, rows: Sequence[Compared]) -> list[Batch]:
        parts = super().cut(rows)
        self.outcomes = []
        self.parts = len(parts)
        return parts

    def part_loss(self, model, inputs: Batch) -> torch.Tensor:
        logprobs = path_logprobs(node_logprobs(model, inputs), inputs)  # [B, 2]
        reference = inputs["reference"].to(logprobs)
        gain = self.beta * (logprobs - reference).detach()
        margin = gain[:, 0] - gain[:, 1]
        self.outcomes.append(
            torch.stack([torch.ones_like(margin), (margin > 0).to(margin), margin]).sum(1)
        )
        return preference_loss(logprobs, reference, self.beta)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds TRL's `rewards/accuracies` and `rewards/margins`: means over the pairs of a step, in all processes."""
        if "loss" in logs:  # of a step, not the summary at the end
            # Where other processes have more micro-batches, the last one comes again with weight 0; it counts once here.
            own = self.outcomes[: self.parts]
            pairs, right, margins = self.accelerator.reduce(torch.stack(own).sum(0), "sum").tolist()
            logs = logs | {"rewards/accuracies": right / pairs, "rewards/margins": margins / pairs}
        super().log(logs, start_time)


def reference_logprobs(
    lm, data: Sequence[Compared], tokens: int, label: str, dtype="float32"
) -> list[Compared]:
    """The rows with their log-probabilities under `lm`, `tokens` a forward pass, in the arithmetic of training in `dtype`."""
    logprobs = common.logprobs(
        lm, data, tokens, dtype, Progress(f"{label} reference", len(data)).update
    )
    return [
        replace(row, reference=tuple(pair))
        for row, pair in zip(data, logprobs.tolist(), strict=True)
    ]


def with_reference(
    lm, data: Sequence[Compared], pairs: Sequence[Pair], tokens: int, label: str, dtype: str
) -> list[Compared]:
    """The rows with the reference's log-probabilities in training's arithmetic; in float32 those in `pairs`, if any. dtype:
    of training. Raises BadInput if those in `pairs` were computed with other weights than `lm`."""
    known = [
        replace(row, reference=(pair.ref_chosen_logps, pair.ref_rejected_logps))
        for row, pair in zip(data, pairs, strict=True)
        if not isinstance(pair.ref_chosen_logps, UnsetType)
        and not isinstance(pair.ref_rejected_logps, UnsetType)
    ]
    if len(known) < len(data):
        return reference_logprobs(lm, data, tokens, label, dtype)
    keep = dtype == "float32"
    some, name = (data[:CHECKED], f"{label} check of the") if keep else (data, label)
    live = reference_logprobs(lm, some, tokens, name, dtype)
    given, computed = (
        np.array([row.reference for row in side]) for side in (known[: len(live)], live)
    )
    apart = np.abs(given - computed).max()
    if not apart < TOLERANCE[dtype]:
        raise BadInput(
            f"the pairs' ref_chosen_logps and ref_rejected_logps differ by up to {apart:.3g} from the reference's: the "
            "candidates were sampled from other weights; sample candidates and select pairs again"
        )
    return known if keep else live


def train(pairs: Sequence[Pair], settings: TrainingSettings, sft, start, out) -> None:
    """Align the confidence LLM in the folder `start`; the aligned one is left in the folder `out`. sft: folder of the reference."""
    chosen = parse_training_job(settings)

    def build(lm, arguments):
        data = rows(lm, pairs)
        common.check_lengths(lm, data)
        reference = lm if str(start) == str(sft) else common.trainable(settings, str(sft))
        tokens = 2 * speed("training")["micro_batch_tokens"]  # nothing is kept for a backward pass
        data = with_reference(reference, data, pairs, tokens, chosen.label, chosen.model.dtype)
        lm.model.train()
        for module in lm.model.modules():
            # the policy starts at the reference, which had none
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        return DpoTrainer(data, settings["stage"]["beta"], **arguments)

    judges = store.weights_digest(sft), store.weights_digest(start)
    common.train(build, pairs, settings, out, str(start), judges, stage="dpo", pairs=len(pairs))
