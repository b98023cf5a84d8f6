"""ConfTuner (Li et al., 2025) in the decoupled setting: the tokenized Brier score with the answer fixed.

The loss is the expected Brier score under the model's own distribution q over the confidences that it could state,
sum_c q(c) (y - c)^2, with q renormalised over them as its authors do. q is exact for every tokenizer: a value's
probability is the product over its tokens (its authors take the first token only, which is constant for Mistral's).
q says nothing of whether the model states a confidence at all. What its authors call the consistency loss, the
cross-entropy of the text around the number, is here -log P(any of the values is stated), minus the log-probability
that the turn ends behind one value drawn for each example, both times ``format_weight``.
"""

import time
from functools import cache

import numpy as np
import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments, set_seed

from orce.confidence.distribution import value_logprobs, value_tree
from orce.llm.chat import completion_ids, prompt_ids, statement
from orce.llm.trie import Packed, TokenTree, node_logprobs, pack
from orce.runtime import files
from orce.training import common
from orce.training.frozen import FromFrozenStates


def tokenized_brier(logprobs: torch.Tensor, correct: torch.Tensor) -> torch.Tensor:
    """Mean over pairs of the expected Brier score; logprobs: [B, 101] of 0..100 percent, correct: [B] in {0, 1}."""
    stated = torch.linspace(0, 1, 101, device=logprobs.device)
    weights = logprobs.softmax(-1)
    return (weights * (correct.unsqueeze(1) - stated) ** 2).sum(1).mean()


@cache
def ending_tree(tokenizer, percent: int) -> TokenTree:
    """The value tree with one more node, the last: the end of the turn behind `percent`."""
    return value_tree(tokenizer, completion_ids(tokenizer, statement(percent)))


class BrierTrainer(FromFrozenStates, Trainer):
    def __init__(self, *args, tree, format_weight, **kwargs):
        super().__init__(*args, **kwargs)
        self.tree, self.format_weight = tree, format_weight

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        correct = inputs["correct"]
        nodes = node_logprobs(model, Packed.of(inputs)).view(len(correct), -1)
        logprobs, end = value_logprobs(nodes[:, :-1], self.tree), nodes[:, -1]
        form = logprobs.logsumexp(1) + end
        loss = tokenized_brier(logprobs, correct.to(logprobs)) - self.format_weight * form.mean()
        # A Trainer that hands out num_items_in_batch expects sums over the whole step; ours is a mean a micro-batch.
        return loss / self.args.gradient_accumulation_steps if num_items_in_batch is not None else loss


def train(examples: list[dict], settings: dict, out) -> None:
    """Train on [{prompt, correct}] and leave the confidence LLM in the folder `out`."""
    with common.work_folder(out, files.digest(examples, settings)) as work:
        if work is not None:
            _train(examples, settings, work, out)


def _train(examples: list[dict], settings: dict, work, out) -> None:
    started = time.monotonic()
    lm, peft_config = common.trainable(settings, None)
    tree, model = value_tree(lm.tokenizer), lm.model
    if peft_config is not None:
        from peft import get_peft_model

        set_seed(settings["seed"])  # of the new adapter's weights; TRL's trainers do it themselves
        model = get_peft_model(model, peft_config)

    def collate(batch):
        trees = [ending_tree(lm.tokenizer, row["ending"]) for row in batch]
        packed = pack([row["prompt_ids"] for row in batch], trees)
        return vars(packed) | {"correct": torch.tensor([float(row["correct"]) for row in batch])}

    endings = np.random.default_rng(settings["seed"]).integers(0, 101, len(examples)).tolist()
    data = [
        {
            "prompt_ids": prompt_ids(lm.tokenizer, example["prompt"], lm.template_kwargs),
            "correct": example["correct"],
            "ending": ending,
        }
        for example, ending in zip(examples, endings, strict=True)
    ]
    trainer = BrierTrainer(
        model=model,
        args=TrainingArguments(**common.arguments(settings, work), label_names=["correct"]),
        train_dataset=Dataset.from_list(data),
        data_collator=collate,
        callbacks=[common.Report(settings["label"])],
        tree=tree,
        format_weight=settings["stage"]["format_weight"],
    )
    common.quiet(trainer)
    common.fit(trainer, work, settings["label"])
    facts = {"stage": settings["method"], "examples": len(examples), "settings": settings}
    common.publish(trainer, lm, work, out, facts, started)
