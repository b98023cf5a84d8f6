"""The tokenized Brier score (Li et al., 2025) in the decoupled setting, with the answer fixed.

The loss is the expected Brier score under the model's own distribution q over the 101 confidences
it could state, sum_c q(c) (y - c)^2, with q renormalised over them. A value's probability is the
product over its tokens, and over the turn's end where a longer value would continue it. (Its
authors take the first token only, one and the same for Mistral's tokenizer.)

q does not say whether the model states a confidence at all. Its authors' consistency loss is here
-log P(any of the 101) and -log P(the turn ends) after one value drawn for each example, both times
``format_weight``. ``spread`` times the cross-entropy of the uniform distribution and q keeps every
value possible; without it, one digit and the end wins (docs/choices.md).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from orce.judge.reader import value_trie
from orce.llm.chat import prompts_ids
from orce.llm.trie import node_logprobs, path_logprobs
from orce.settings.stage import TrainingSettings
from orce.training import common
from orce.training.steps import Batch, PackedTrainer, Row

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class LabelledRow(Row, kw_only=True):
    """A prompt with its value trie. ending: the percent after which the turn is to end, the trie's
    last path.
    """

    correct: bool | int | float
    ending: int


def rows(lm, examples: Sequence[Mapping[str, Any]], seed: int) -> list[LabelledRow]:
    """Token ids of examples {prompt, correct}, each with a drawn `ending`."""
    endings = np.random.default_rng(seed).integers(0, 101, len(examples)).tolist()
    prompts = prompts_ids(
        lm.tokenizer, [example["prompt"] for example in examples], lm.template_kwargs
    )
    labelled = []
    for example, prompt, ending in zip(examples, prompts, endings, strict=True):
        trie = value_trie(lm.tokenizer, ending)
        row = LabelledRow(
            prompt_ids=prompt,
            trie=trie,
            trie_tokens=len(trie.inner),
            correct=example["correct"],
            ending=ending,
        )
        labelled.append(row)
    return labelled


def tokenized_brier(
    logprobs: torch.Tensor, correct: torch.Tensor, spread: float = 0.0
) -> torch.Tensor:
    """Expected Brier score sum_c q(c) (y - c)^2, a mean over examples, and `spread` times the
    cross-entropy (see the module).

    logprobs: [B, 101], of 0 to 100 percent, not normalised; correct: y [B] in {0, 1}.
    """
    stated = torch.linspace(0, 1, 101, device=logprobs.device)
    weights = logprobs.softmax(-1)
    score = (weights * (correct.unsqueeze(1) - stated) ** 2).sum(1).mean()
    return score - spread * logprobs.log_softmax(-1).mean()


class BrierTrainer(PackedTrainer[LabelledRow]):
    """Trains on value tries. format_weight: weight of the form's loss (see the module); loss: see
    `train`.
    """

    def __init__(self, rows: Sequence[LabelledRow], format_weight: float, loss: Loss, **options):
        super().__init__(rows, **options)
        self.format_weight = format_weight
        self.loss = loss

    def collate(self, rows: Sequence[LabelledRow]) -> Batch:
        correct = torch.tensor([row.correct for row in rows])
        ending = torch.tensor([row.ending for row in rows])
        return super().collate(rows) | {"correct": correct, "ending": ending}

    def part_loss(self, model, inputs: Batch) -> torch.Tensor:
        """The loss of the distribution and of the form, a mean over the examples of a micro-batch."""
        logprobs, ends = self.distributions(model, inputs)
        loss = self.distribution_loss(logprobs, inputs)
        form = logprobs.logsumexp(1) + ends
        return loss - self.format_weight * form.mean()

    def distribution_loss(self, logprobs: torch.Tensor, inputs: Batch) -> torch.Tensor:
        return self.loss(logprobs, inputs["correct"].to(logprobs))

    def distributions(self, model, inputs: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """log P(c) [B, 101] of a part's examples, and log P of the end after the drawn values [B],
        0 where P(c) has it.
        """
        paths = path_logprobs(node_logprobs(model, inputs), inputs)
        logprobs = paths[:, :-1]
        ending = inputs["ending"].to(logprobs.device)[:, None]
        # The last path is a drawn value and its end, so the difference is the end's
        # log-probability.
        return logprobs, paths[:, -1] - logprobs.gather(1, ending)[:, 0]


def train(
    examples: Sequence[Mapping[str, Any]],
    settings: TrainingSettings,
    out,
    loss: Loss = tokenized_brier,
    trainer: type[BrierTrainer] = BrierTrainer,
) -> None:
    """Train on examples {prompt, correct}, 0 to 1; the confidence LLM is left in the folder `out`.

    loss: a mean over examples, from log P(c) [B, 101] and the examples' `correct` [B]; the form's
    is added. trainer: a subclass, for a loss that is not such a mean (evidence/methods/ordered.py).
    """

    def build(lm, arguments):
        data = rows(lm, examples, settings["seed"])
        common.check_lengths(lm, data)
        return trainer(data, settings["stage"]["format_weight"], loss, **arguments)

    common.train(
        build,
        examples,
        settings,
        out,
        stage=settings.get("method"),
        examples=len(examples),
    )
