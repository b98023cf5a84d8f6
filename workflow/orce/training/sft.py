"""Warm start (section 3.2, 'Warm start via SFT'): the confidence LLM learns to state kappa for a realised answer."""

import time

from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from orce.llm.chat import completion_ids, prompt_ids, statement
from orce.llm.trie import Packed, TokenTrie, node_logprobs, pack
from orce.training import common
from orce.training.frozen import FromFrozenStates


def rows(lm, examples: list[dict]) -> list[dict]:
    """Token ids and labels of examples {prompt, percent}. The loss is on the statement and its end token only."""
    out = []
    for example in examples:
        prompt = prompt_ids(lm.tokenizer, example["prompt"], lm.template_kwargs)
        completion = completion_ids(lm.tokenizer, statement(example["percent"]))
        out.append({"input_ids": prompt + completion, "labels": [-100] * len(prompt) + completion})
    return out


def collate(examples: list[dict]) -> dict:
    """A batch as one packed row; each completion is a trie with a single path."""
    lengths = [row["labels"].count(-100) for row in examples]
    prompts = [row["input_ids"][:n] for n, row in zip(lengths, examples, strict=True)]
    completions = [row["input_ids"][n:] for n, row in zip(lengths, examples, strict=True)]
    return vars(pack(prompts, [TokenTrie.of([completion]) for completion in completions]))


class SharedPrefixTrainer(FromFrozenStates, SFTTrainer):
    """TRL's loss, the mean cross-entropy of a batch's completion tokens; the shared prefix is computed once."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Mean cross-entropy over the completion tokens of a packed batch: a scalar."""
        return -node_logprobs(model, Packed.of(inputs)).mean()


def train(examples: list[dict], settings: dict, out) -> None:
    """Train on examples {prompt: chat messages, percent: 0 to 100}; the confidence LLM is left in the folder `out`."""
    with common.work_folder(out, examples, settings) as work:
        if work is not None:
            _train(examples, settings, work, out)


def _train(examples: list[dict], settings: dict, work, out) -> None:
    started = time.monotonic()
    lm, peft_config = common.trainable(settings, None)
    data = rows(lm, examples)
    shared = settings["training"]["shared_prefix"]
    if shared:
        common.check_lengths(lm, [len(row["input_ids"]) for row in data])
    trainer = (SharedPrefixTrainer if shared else SFTTrainer)(
        model=lm.model,
        args=SFTConfig(**common.arguments(settings, work), max_length=None),
        train_dataset=Dataset.from_list(data),
        processing_class=lm.tokenizer,
        data_collator=collate if shared else None,
        peft_config=peft_config,
        callbacks=[common.Report(settings["label"])],
    )
    common.quiet(trainer)
    common.fit(trainer, work, settings["label"])
    common.publish(trainer, lm, work, out, {"stage": "sft", "examples": len(examples), "settings": settings}, started)
