"""Supervised warm start of the confidence LLM: it learns to state a given confidence."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct

from orce.llm.chat import completion_ids, prompts_ids, statement
from orce.llm.trie import Packed, TokenTrie, node_logprobs, pack
from orce.stage_settings import TrainingSettings
from orce.training import common
from orce.training.steps import Batch, PackedTrainer


class Row(Struct):
    """labels: -100 where the loss is not on the token."""

    input_ids: list[int]
    labels: list[int]

    @property
    def prompt(self) -> list[int]:
        return self.input_ids[: self.labels.count(-100)]

    @property
    def completion(self) -> list[int]:
        return self.input_ids[self.labels.count(-100) :]


def rows(lm, examples: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Token ids and labels. The loss is on the statement and its end token only."""
    out: list[Row] = []
    prompts = prompts_ids(lm.tokenizer, [example["prompt"] for example in examples], lm.template_kwargs)
    for example, prompt in zip(examples, prompts, strict=True):
        completion = completion_ids(lm.tokenizer, statement(example["percent"]))
        out.append(Row(prompt + completion, [-100] * len(prompt) + completion))
    return out


class SftTrainer(PackedTrainer[Row]):
    """Cross-entropy of the statements. Each is a trie with a single path after its prompt."""

    def collate(self, rows: Sequence[Row]) -> Batch:
        return vars(pack([row.prompt for row in rows], [TokenTrie.of([row.completion]) for row in rows]))

    def measure(self, row: Row) -> tuple[list[int], int]:
        return row.prompt, len(row.completion)

    def items(self, row: Row) -> int:
        return len(row.completion)

    def part_loss(self, model, inputs: Batch) -> torch.Tensor:
        return -node_logprobs(model, Packed.of(inputs)).mean()


def train(examples: Sequence[Mapping[str, Any]], settings: TrainingSettings, out) -> None:
    """Train on examples {prompt, percent}, 0 to 100; the confidence LLM is left in the folder `out`."""
    with common.work_folder(out, examples, settings) as work:
        if work is None:
            return
        started = time.monotonic()
        lm = common.trainable(settings, None)
        data = rows(lm, examples)
        common.check_lengths(lm, [len(row.input_ids) for row in data])
        trainer = SftTrainer(data, **common.arguments(lm, settings, work))
        common.fit(trainer, work)
        common.publish(trainer, lm, work, out, started, settings, stage="sft", examples=len(examples))
