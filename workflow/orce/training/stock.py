"""TRL's own SFTTrainer and DPOTrainer on this project's token ids (`training.trainer: trl`).

Loss, collator and step are TRL's, on padded rows without shared prompts; the token ids, the
reference's log-probabilities, checkpoints, seals and resuming are as everywhere here. Whoever
doubts the packed trainer trains a cell by the library that everyone knows, and compares.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from accelerate.utils.memory import should_reduce_batch_size
from datasets import Dataset
from transformers import TrainingArguments
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from orce.errors import BadInput
from orce.runtime.process import speed
from orce.training.steps import PreferenceRow, Row, WatchedTrainer, longest

OUT_OF_MEMORY = "out of memory: TRL's trainers do not cut a step anew; lower training.micro_batch_tokens, and run it again"


class Stock(WatchedTrainer):
    """A trainer of TRL as orce.training.common knows it."""

    began: float | None = None  # when the step began whose micro-batches run now
    tokens_so_far = 0  # of these

    def training_step(self, model, inputs: dict[str, Any], num_items_in_batch=None):
        self.began = self.began or time.monotonic()
        try:
            loss = super().training_step(model, inputs, num_items_in_batch)
        except RuntimeError as error:
            if not should_reduce_batch_size(error):
                raise
            raise BadInput(f"[{self.args.run_name}] {OUT_OF_MEMORY}") from None
        self.tokens_so_far += inputs["input_ids"].numel()
        if self.accelerator.sync_gradients:  # in the last of them
            self.note_step(self.began, self.tokens_so_far)
            self.began = None
            self.tokens_so_far = 0
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
        super().__init__(
            rows,
            model=model,
            args=as_config(SFTConfig, args, longest(rows)),
            train_dataset=Dataset.from_list(examples),
            processing_class=tokenizer,
        )


class Dpo(Stock, DPOTrainer):
    """TRL's DPO loss of pairs whose reference's log-probabilities are known."""

    def __init__(
        self, model, args: TrainingArguments, rows: Sequence[PreferenceRow], tokenizer, beta: float
    ):
        examples = []
        for row in rows:
            chosen, rejected = row.continuations
            examples.append({
                "prompt_ids": row.prompt_ids,
                "chosen_ids": chosen,
                "rejected_ids": rejected,
                "ref_chosen_logps": row.reference[0],
                "ref_rejected_logps": row.reference[1],
            })  # fmt: skip
        size = 2 * longest(rows)  # a prompt stands in two padded rows
        super().__init__(
            rows,
            model=model,
            args=as_config(DPOConfig, args, size, beta=beta, precompute_ref_log_probs=True),
            train_dataset=Dataset.from_list(examples),
            processing_class=tokenizer,
        )
        # TRL copies the adapter for its reference, and would save the copy beside the policy.
        if "ref" in getattr(model, "peft_config", {}):
            model.delete_adapter("ref")

    def _prepare_dataset(self, dataset, *args, **options):
        return dataset  # token ids already

    def _precompute_ref_logps(self, dataset, *args, **options):
        return dataset  # known already


def as_config(kind: type, args: TrainingArguments, size: int, **more) -> Any:
    """TRL's arguments from those of all trainings: a step of as many examples, in micro-batches of
    equally many that have room in training.micro_batch_tokens. size: the tokens of the longest
    example.
    """
    step = args.per_device_train_batch_size
    room = max(1, speed("training")["micro_batch_tokens"] // size)
    together = max(n for n in range(1, step + 1) if step % n == 0 and n <= room)
    common = {
        field.name: getattr(args, field.name) for field in dataclasses.fields(args) if field.init
    }
    common["per_device_train_batch_size"] = together
    common["gradient_accumulation_steps"] = step // together
    return kind(**common, max_length=None, **more)
