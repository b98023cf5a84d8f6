"""Alignment (section 3.3): DPO on pairs of statements, one that the reward prefers and one that it rejects.

Chosen and rejected are a few tokens that follow the same long prompt. `SharedPrefixTrainer` computes the prompt once
for both, as a token trie; with ``shared_prefix: false`` TRL's own loss runs on the same token ids. The reference is the
warm-started model before alignment. Its log-probabilities are computed once, before the first step, in the arithmetic of
training: the policy starts at the reference. In float32 those that the candidates were sampled with are the same, and kept.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from datasets import Dataset
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace
from torch.nn.functional import logsigmoid
from trl import DPOConfig, DPOTrainer
from trl.trainer import dpo_trainer

from orce.artefacts import store
from orce.errors import BadInput
from orce.llm import batches
from orce.llm.chat import completion_ids, prompts_ids
from orce.llm.trie import Packed, TokenTrie, node_logprobs, pack, path_logprobs
from orce.records import Pair
from orce.runtime.progress import Progress
from orce.stage_settings import TrainingSettings, job, plain, typed
from orce.training import common, micro_batches
from orce.training.frozen import FromFrozenStates
from orce.training.steps import Batch, InParts

CHECKED = 32  # pairs whose reference is computed again
# How much rounding may change a log-probability. Measured: 1e-5 in float32, 0.2 in bfloat16; other weights differ more.
TOLERANCE = {"float32": 1e-3, "bfloat16": 1.0, "float16": 1.0}


class Row(Struct, kw_only=True):
    """A pair as token ids; ref_*: its log-probabilities under the reference, under TRL's names."""

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
    ref_chosen_logps: float | UnsetType = UNSET
    ref_rejected_logps: float | UnsetType = UNSET


def rows(lm, pairs: Sequence[Pair]) -> list[Row]:
    """Token ids of pairs, without the reference."""
    prompts = prompts_ids(lm.tokenizer, [pair.prompt for pair in pairs], lm.template_kwargs)
    return [
        Row(
            prompt_ids=prompt,
            chosen_ids=completion_ids(lm.tokenizer, pair.chosen[0]["content"]),
            rejected_ids=completion_ids(lm.tokenizer, pair.rejected[0]["content"]),
        )
        for pair, prompt in zip(pairs, prompts, strict=True)
    ]


def collate(examples: Sequence[Row | Mapping[str, Any]]) -> Batch:
    """A batch of B pairs as one packed row, with the reference's log-probabilities [B, 2] if they are known."""
    data = [typed(Row, row) for row in examples]
    tries = [TokenTrie.of([row.chosen_ids, row.rejected_ids]) for row in data]
    batch = vars(pack([row.prompt_ids for row in data], tries))
    known = data[0].ref_chosen_logps is not UNSET
    return batch | ({"reference": torch.tensor([reference_of(row) for row in data])} if known else {})


def reference_of(row: Row) -> tuple[float, float]:
    """The reference's log-probabilities of (chosen, rejected)."""
    return cast(tuple[float, float], (row.ref_chosen_logps, row.ref_rejected_logps))


def referenced(row: Row, chosen: float, rejected: float) -> Row:
    """The row with the reference's log-probabilities."""
    return replace(row, ref_chosen_logps=chosen, ref_rejected_logps=rejected)


def measure(row: Row | Mapping[str, Any]) -> tuple[list[int], int]:
    """A row's prompt, and the most tokens that a pair's trie adds to it."""
    row = typed(Row, row)
    return row.prompt_ids, len(row.chosen_ids) + len(row.rejected_ids)


def measure_padded(row: Mapping[str, Any]) -> tuple[list[int], int]:
    """The same for TRL's two padded rows, each with the prompt."""
    prompt, more = measure(row)
    return 2 * prompt, more


def pair_logprobs(model, batch: Batch) -> torch.Tensor:
    """log P(chosen | prompt) and log P(rejected | prompt) of a collated batch: [B, 2]."""
    packed = Packed.of(batch)
    return path_logprobs(node_logprobs(model, packed), packed)


def preference_loss(policy: torch.Tensor, reference: torch.Tensor, beta: float) -> torch.Tensor:
    """DPO loss (Rafailov et al., 2023; section 3.3), a mean over pairs.

    policy, reference: [B, 2], log-probabilities of (chosen, rejected) under the trained model and under the reference.
    beta: strength of the pull towards the reference.
    """
    gain = policy - reference
    return -logsigmoid(beta * (gain[:, 0] - gain[:, 1])).mean()


class PairTrainer(InParts, DPOTrainer):
    """TRL's trainer for pairs that already have token ids and the reference's log-probabilities."""

    def __init__(self, *args, **kwargs):
        # TRL hashes all weights to name a cache of the reference's log-probabilities, which are here already. At 8B that
        # takes half a minute, and weights in shards cannot be hashed.
        hashed, dpo_trainer.hash_module = dpo_trainer.hash_module, lambda module: ""
        try:
            super().__init__(*args, **kwargs)
        finally:
            dpo_trainer.hash_module = hashed

    def _prepare_dataset(self, dataset, *args, **kwargs):
        return dataset

    def _precompute_ref_logps(self, dataset, *args, **kwargs):
        return dataset


class SharedPrefixTrainer(FromFrozenStates, PairTrainer):
    """The same loss, with the prompt of a pair computed once; `anchor` times the chosen turn's negative log-likelihood is added.

    Without an anchor, both turns of a pair may become less likely (Pal et al., 2024, arXiv 2402.13228).
    """

    anchor = 0.0

    def part_loss(self, model, inputs):
        """`preference_loss` of a packed batch; logs TRL's reward accuracies and margins."""
        logprobs = pair_logprobs(model, inputs)
        gain = self.beta * (logprobs - inputs["reference"].to(logprobs)).detach()
        metrics = self._metrics["train"]
        metrics["rewards/accuracies"].append((gain[:, 0] > gain[:, 1]).float().mean().item())
        metrics["rewards/margins"].append((gain[:, 0] - gain[:, 1]).mean().item())
        loss = preference_loss(logprobs, inputs["reference"].to(logprobs), self.beta)
        return loss - self.anchor * logprobs[:, 0].mean() if self.anchor else loss


@torch.no_grad()  # not inference_mode: FSDP2 keeps the tensors that it gathers into, and training reuses them
def reference_logprobs(lm, data: Sequence[Row], tokens: int, label: str, dtype: str = "float32") -> list[Row]:
    """The rows with ref_chosen_logps and ref_rejected_logps added, the log-probabilities under `lm`.

    tokens: of one forward pass. dtype: bfloat16 for mixed precision, as the trainer has it.
    """
    mixed = torch.autocast(lm.model.device.type, torch.bfloat16, enabled=dtype == "bfloat16")
    lm.model.eval()
    progress = Progress(f"{label} reference", len(data))
    found: list[Any] = [None] * len(data)
    done = 0
    prompts, more = zip(*map(measure, data), strict=True)
    for batch in batches.packed(prompts, more, tokens):
        with mixed:
            logprobs = pair_logprobs(lm.model, collate([data[i] for i in batch]))
        for i, (chosen, rejected) in zip(batch, logprobs.tolist(), strict=True):
            found[i] = referenced(data[i], chosen, rejected)
        done += len(batch)
        progress.update(done)
    return found


def with_reference(lm, data: Sequence[Row], pairs: Sequence[Pair], tokens: int, label: str, dtype: str) -> list[Row]:
    """The rows with the reference's log-probabilities in training's arithmetic; in float32 those in `pairs`, if any.

    dtype: of training. Raises BadInput if those in `pairs` were computed with other weights than `lm`.
    """
    known = [
        referenced(row, pair.ref_chosen_logps, pair.ref_rejected_logps)
        for row, pair in zip(data, pairs, strict=True)
        if not isinstance(pair.ref_chosen_logps, UnsetType) and not isinstance(pair.ref_rejected_logps, UnsetType)
    ]
    if len(known) < len(data):
        return reference_logprobs(lm, data, tokens, label, dtype)
    keep = dtype == "float32"
    some, name = (data[:CHECKED], f"{label} check of the") if keep else (data, label)
    live = reference_logprobs(lm, some, tokens, name, dtype)
    both = [(reference_of(one), reference_of(other)) for one, other in zip(known, live, strict=False)]
    apart = np.abs(np.subtract(*zip(*both, strict=True))).max()
    if not apart < TOLERANCE[dtype]:
        raise BadInput(
            f"the pairs' ref_chosen_logps and ref_rejected_logps differ by up to {apart:.3g} from the reference's: the "
            "candidates were sampled from other weights; sample candidates and select pairs again"
        )
    return known if keep else live


def train(pairs: Sequence[Pair], settings: TrainingSettings, sft, start, out) -> None:
    """Align the confidence LLM in the folder `start`; the aligned one is left in the folder `out`. sft: folder of the reference."""
    judges = store.weights_digest(sft), store.weights_digest(start)
    with common.work_folder(out, pairs, settings, *judges) as work:
        if work is not None:
            _train(pairs, settings, sft, start, work, out)


def _train(pairs: Sequence[Pair], settings: TrainingSettings, sft, start, work, out) -> None:
    started = time.monotonic()
    chosen, stage = job(settings), settings["stage"]
    label = chosen.label
    lm, _ = common.trainable(settings, str(start))
    data = rows(lm, pairs)
    common.check_lengths(lm, [len(row.prompt_ids) + max(len(row.chosen_ids), len(row.rejected_ids)) for row in data])
    tokens = micro_batches.budget(lm, chosen, "dpo", [row.prompt_ids for row in data])
    reference = lm if str(start) == str(sft) else common.trainable(settings, str(sft))[0]
    data = with_reference(reference, data, pairs, 2 * tokens, label, chosen.model.dtype)
    del reference
    lm.model.train()
    args = DPOConfig(
        **common.arguments(settings, work),
        beta=stage["beta"],
        loss_type=["sigmoid"],
        precompute_ref_log_probs=True,
        max_length=None,
    )
    shared = chosen.training.shared_prefix
    if (anchor := stage.get("anchor", 0.0)) and not shared:
        raise BadInput("dpo.anchor needs training.shared_prefix: true; TRL's own loss has no such term")
    trainer = (SharedPrefixTrainer if shared else PairTrainer)(
        model=lm.model,
        args=args,
        train_dataset=Dataset.from_list([*map(plain, data)]),
        processing_class=lm.tokenizer,
        callbacks=[common.Report(label)],
    )
    measured = (collate, measure) if shared else (None, measure_padded)
    common.in_parts(trainer, chosen.training, *measured, lambda row: 1, tokens)
    if isinstance(trainer, SharedPrefixTrainer):
        trainer.anchor = anchor
    model: Any = trainer.model
    if "ref" in getattr(model, "peft_config", {}):
        # TRL's copy of the adapter is not needed, and with a second adapter a checkpoint does not restore the first.
        model.delete_adapter("ref")
    common.quiet(trainer)
    common.fit(trainer, work, label)
    common.publish(trainer, lm, work, out, started, settings, stage="dpo", pairs=len(pairs))
