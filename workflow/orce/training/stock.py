"""TRL's own SFTTrainer and DPOTrainer on this project's token ids (`training.trainer: trl`).

Loss, collator and step are TRL's, on padded rows without shared prompts; the token ids, the
reference's log-probabilities, checkpoints, seals and resuming are as everywhere here. Whoever
doubts the packed trainer trains a cell by the library that everyone knows, and compares.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils.memory import should_reduce_batch_size
from datasets import Dataset
from transformers import TrainingArguments
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from orce.errors import BadInput
from orce.runtime.process import speed
from orce.training.steps import PreferenceRow, Row, WatchedTrainer

OUT_OF_MEMORY = "out of memory: TRL's trainers do not cut a step anew; lower training.micro_batch_tokens, and run it again"


class Stock(WatchedTrainer):
    """A trainer of TRL as orce.training.common knows it."""

    def training_step(self, model, inputs: dict[str, Any], num_items_in_batch=None):
        started = time.monotonic()
        try:
            loss = super().training_step(model, inputs, num_items_in_batch)
        except RuntimeError as error:
            if not should_reduce_batch_size(error):
                raise
            raise BadInput(f"[{self.args.run_name}] {OUT_OF_MEMORY}") from None
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.monotonic() - started)
        self.tokens.append(inputs["input_ids"].numel())
        return loss


class Sft(Stock, SFTTrainer):
    """TRL's cross-entropy of the statements."""

    def __init__(self, model, args: TrainingArguments, rows: Sequence[Row], tokenizer):
        examples = []
        for row in rows:
            statement = row.trie.tokens
            examples.append({
                "input_ids": row.prompt_ids + statement,
                "labels": [-100] * len(row.prompt_ids) + statement,
            })  # fmt: skip
        longest = max(len(example["input_ids"]) for example in examples)
        config = as_config(SFTConfig, args, longest)
        super().__init__(
            model, config, train_dataset=Dataset.from_list(examples), processing_class=tokenizer
        )
        self.watch(rows)


class Dpo(Stock, DPOTrainer):
    """TRL's DPO loss of pairs whose reference's log-probabilities are known."""

    def __init__(
        self, model, args: TrainingArguments, rows: Sequence[PreferenceRow], tokenizer, beta: float
    ):
        examples = []
        for row in rows:
            chosen, rejected = ([row.trie.tokens[i] for i in path] for path in row.trie.paths)
            examples.append({
                "prompt_ids": row.prompt_ids,
                "chosen_ids": chosen,
                "rejected_ids": rejected,
                "ref_chosen_logps": row.reference[0],
                "ref_rejected_logps": row.reference[1],
            })  # fmt: skip
        # a prompt stands in two padded rows
        longest = 2 * max(len(row.prompt_ids) + max(map(len, row.trie.paths)) for row in rows)
        config = as_config(DPOConfig, args, longest, beta=beta, precompute_ref_log_probs=True)
        super().__init__(
            model,
            args=config,
            train_dataset=Dataset.from_list(examples),
            processing_class=tokenizer,
        )
        # TRL copies the adapter for its reference, and would save the copy beside the policy.
        if "ref" in getattr(model, "peft_config", {}):
            model.delete_adapter("ref")
        self.watch(rows)

    def _prepare_dataset(self, dataset, *args, **options):
        return dataset  # token ids already

    def _precompute_ref_logps(self, dataset, *args, **options):
        return dataset  # known already


def as_config(kind: type, args: TrainingArguments, longest: int, **more) -> Any:
    """TRL's arguments from those of all trainings: a step of as many examples, in micro-batches of
    equally many that have room in training.micro_batch_tokens. longest: tokens of an example.
    """
    step = args.per_device_train_batch_size
    room = max(1, speed("training")["micro_batch_tokens"] // longest)
    together = max(size for size in range(1, step + 1) if step % size == 0 and size <= room)
    common = {
        field.name: getattr(args, field.name) for field in dataclasses.fields(args) if field.init
    }
    common["per_device_train_batch_size"] = together
    common["gradient_accumulation_steps"] = step // together
    return kind(**common, max_length=None, **more)
