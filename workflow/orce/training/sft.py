"""Supervised warm start of the confidence LLM: it learns to state a given confidence (section 3.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from orce.llm.chat import completion_ids, prompts_ids, statement
from orce.llm.trie import TokenTrie, node_logprobs
from orce.settings.stage import TrainingSettings, parse_training_job
from orce.training import common
from orce.training.steps import Batch, PackedTrainer, Row


def rows(lm, examples: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Token ids of examples {prompt, percent}. The trie is the statement and its end token, so the
    loss is on these alone.
    """
    prompts = prompts_ids(
        lm.tokenizer, [example["prompt"] for example in examples], lm.template_kwargs
    )
    taught = []
    for example, prompt in zip(examples, prompts, strict=True):
        completion = completion_ids(lm.tokenizer, statement(example["percent"]))
        trie = TokenTrie.of([completion])
        taught.append(Row(prompt_ids=prompt, trie=trie, trie_tokens=len(completion)))
    return taught


class SftTrainer(PackedTrainer[Row]):
    """Cross-entropy of the statements, a mean over their tokens."""

    def loss_terms(self, row: Row) -> int:
        return row.trie_tokens

    def part_loss(self, model, inputs: Batch) -> torch.Tensor:
        return -node_logprobs(model, inputs).mean()


def train(examples: Sequence[Mapping[str, Any]], settings: TrainingSettings, out) -> None:
    """Train on examples {prompt, percent}, 0 to 100; the confidence LLM is left in the folder
    `out`.
    """

    def build(lm, arguments):
        data = rows(lm, examples)
        common.check_lengths(lm, data)
        if parse_training_job(settings).training.trainer == "trl":
            from orce.training import stock

            return stock.Sft(lm.model, arguments["args"], data, lm.tokenizer)
        return SftTrainer(data, **arguments)

    common.train(build, examples, settings, out, stage="sft", examples=len(examples))
