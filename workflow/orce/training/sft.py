"""Supervised warm start of the confidence LLM: it learns to state a given confidence."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct

from orce.llm.chat import completion_ids, prompts_ids, statement
from orce.llm.trie import TokenTrie, node_logprobs, pack
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
    prompts = prompts_ids(lm.tokenizer, [example["prompt"] for example in examples], lm.template_kwargs)
    completions = [completion_ids(lm.tokenizer, statement(example["percent"])) for example in examples]
    return [
        Row(prompt + completion, [-100] * len(prompt) + completion)
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


class SftTrainer(PackedTrainer[Row]):
    """Cross-entropy of the statements. Each is a trie with a single path after its prompt."""

    def collate(self, rows: Sequence[Row]) -> Batch:
        return pack([row.prompt for row in rows], [TokenTrie.of([row.completion]) for row in rows])

    def measure(self, row: Row) -> tuple[list[int], int]:
        return row.prompt, len(row.completion)

    def items(self, row: Row) -> int:
        return len(row.completion)

    def part_loss(self, model, inputs: Batch) -> torch.Tensor:
        return -node_logprobs(model, inputs).mean()


def train(examples: Sequence[Mapping[str, Any]], settings: TrainingSettings, out) -> None:
    """Train on examples {prompt, percent}, 0 to 100; the confidence LLM is left in the folder `out`."""

    def build(lm, arguments):
        data = rows(lm, examples)
        common.check_lengths(lm, [len(row.input_ids) for row in data])
        return SftTrainer(data, **arguments)

    common.train(build, examples, settings, out, stage="sft", examples=len(examples))
