"""Supervised warm start of the confidence LLM: it learns to state a given confidence."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from orce.llm.chat import completion_ids, prompts_ids, statement
from orce.llm.trie import TokenTrie, node_logprobs
from orce.settings.stage import TrainingSettings
from orce.training import common
from orce.training.steps import Batch, PackedTrainer, Row


def rows(lm, examples: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The loss is on the statement and its end token only."""
    prompts = prompts_ids(
        lm.tokenizer, [example["prompt"] for example in examples], lm.template_kwargs
    )
    completions = [
        completion_ids(lm.tokenizer, statement(example["percent"])) for example in examples
    ]
    return [
        Row(prompt_ids=prompt, trie=TokenTrie.of([completion]), more=len(completion))
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


class SftTrainer(PackedTrainer[Row]):
    """Cross-entropy of the statements."""

    def items(self, row: Row) -> int:
        return row.more

    def part_loss(self, model, inputs: Batch) -> torch.Tensor:
        return -node_logprobs(model, inputs).mean()


def train(examples: Sequence[Mapping[str, Any]], settings: TrainingSettings, out) -> None:
    """Train on examples {prompt, percent}, 0 to 100; the confidence LLM is left in the folder `out`."""

    def build(lm, arguments):
        data = rows(lm, examples)
        common.check_lengths(lm, data)
        return SftTrainer(data, **arguments)

    common.train(build, examples, settings, out, stage="sft", examples=len(examples))
