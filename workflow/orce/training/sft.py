"""Warm start (section 3.2, 'Warm start via SFT'): the confidence LLM learns to state kappa for a realised answer."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from datasets import Dataset
from msgspec import Struct
from trl import SFTConfig, SFTTrainer

from orce.llm.chat import completion_ids, prompts_ids, statement
from orce.llm.trie import Packed, TokenTrie, node_logprobs, pack
from orce.records import Taught
from orce.stage_settings import TrainingSettings, job, plain, typed
from orce.training import common, micro_batches
from orce.training.frozen import FromFrozenStates
from orce.training.steps import Batch, InParts


class Row(Struct):
    """labels: -100 where the loss is not on the token."""

    input_ids: list[int]
    labels: list[int]


def rows(lm, examples: Sequence[Taught]) -> list[Row]:
    """Token ids and labels. The loss is on the statement and its end token only."""
    out: list[Row] = []
    prompts = prompts_ids(lm.tokenizer, [example["prompt"] for example in examples], lm.template_kwargs)
    for example, prompt in zip(examples, prompts, strict=True):
        completion = completion_ids(lm.tokenizer, statement(example["percent"]))
        out.append(Row(prompt + completion, [-100] * len(prompt) + completion))
    return out


def collate(examples: Sequence[Row | Mapping[str, Any]]) -> Batch:
    """A batch as one packed row; each completion is a trie with a single path."""
    data = [typed(Row, row) for row in examples]
    prompts = [measure(row)[0] for row in data]
    completions = [row.input_ids[len(prompt) :] for prompt, row in zip(prompts, data, strict=True)]
    return vars(pack(prompts, [TokenTrie.of([completion]) for completion in completions]))


def items(row: Row | Mapping[str, Any]) -> int:
    """Tokens of a row that the loss is on."""
    return measure(row)[1]


def measure(row: Row | Mapping[str, Any]) -> tuple[list[int], int]:
    """A row's prompt, and how many tokens follow it."""
    row = typed(Row, row)
    length = row.labels.count(-100)
    return row.input_ids[:length], len(row.labels) - length


class PaddedTrainer(InParts, SFTTrainer):
    """TRL's loss on padded rows: the mean cross-entropy of a batch's completion tokens."""


class SharedPrefixTrainer(FromFrozenStates, PaddedTrainer):
    """The same loss, with the shared prefix computed once."""

    def part_loss(self, model, inputs):
        """Mean cross-entropy over the completion tokens of a packed batch: a scalar."""
        return -node_logprobs(model, Packed.of(inputs)).mean()


def train(examples: Sequence[Taught], settings: TrainingSettings, out) -> None:
    """Train on examples; the confidence LLM is left in the folder `out`."""
    with common.work_folder(out, examples, settings) as work:
        if work is not None:
            _train(examples, settings, work, out)


def _train(examples: Sequence[Taught], settings: TrainingSettings, work, out) -> None:
    started = time.monotonic()
    chosen = job(settings)
    lm, peft_config = common.trainable(settings, None)
    data = rows(lm, examples)
    shared = chosen.training.shared_prefix
    if shared:
        common.check_lengths(lm, [len(row.input_ids) for row in data])
    plain_rows = [*map(plain, data)]
    trainer = (SharedPrefixTrainer if shared else PaddedTrainer)(
        model=lm.model,
        args=SFTConfig(**common.arguments(settings, work), max_length=None),
        train_dataset=Dataset.from_list(plain_rows),
        processing_class=lm.tokenizer,
        peft_config=peft_config,
        callbacks=[common.Report(chosen.label)],
    )
    tokens = micro_batches.budget(lm, chosen, "sft", [measure(row)[0] for row in plain_rows])
    common.in_parts(trainer, chosen.training, collate if shared else None, measure, items, tokens)
    common.quiet(trainer)
    common.fit(trainer, work, chosen.label)
    common.publish(trainer, lm, work, out, started, settings, stage="sft", examples=len(examples))
