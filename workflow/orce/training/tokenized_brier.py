"""The tokenized Brier score (Li et al., 2025) in the decoupled setting, with the answer fixed.

The loss is the expected Brier score under the model's own distribution q over the 101 confidences it could state,
sum_c q(c) (y - c)^2, with q renormalised over them. A value's probability is the product over its tokens, and over the turn's
end where a longer value would continue it. (Its authors take the first token only, one and the same for Mistral's tokenizer.)

q does not say whether the model states a confidence at all. Its authors' consistency loss is here -log P(any of the 101) and
-log P(the turn ends) after one value drawn for each example, both times ``format_weight``. ``spread`` times the cross-entropy
of the uniform distribution and q keeps every value possible; without it, one digit and the end wins (docs/choices.md).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object

from orce.judge.reader import value_trie
from orce.llm.chat import prompts_ids
from orce.llm.trie import node_logprobs, path_logprobs
from orce.settings.stage import TrainingSettings, parse_training_job
from orce.training import common
from orce.training.steps import Batch, PackedTrainer, Row

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Labelled(Row, kw_only=True):
    """ending: the percent after which the turn is to end."""

    correct: bool | int | float
    ending: int


def tokenized_brier(
    logprobs: torch.Tensor, correct: torch.Tensor, spread: float = 0.0
) -> torch.Tensor:
    """Expected Brier score, a mean over pairs. logprobs: [B, 101] of 0 to 100 percent; correct: [B] in {0, 1}."""
    stated = torch.linspace(0, 1, 101, device=logprobs.device)
    weights = logprobs.softmax(-1)
    score = (weights * (correct.unsqueeze(1) - stated) ** 2).sum(1).mean()
    return score - spread * logprobs.log_softmax(-1).mean()


class BrierTrainer(PackedTrainer[Labelled]):
    """Trains on value tries. format_weight: weight of the form's loss (see the module); loss, whole: see train."""

    def __init__(
        self, rows: Sequence[Labelled], format_weight: float, loss: Loss, whole: Loss | None, **more
    ):
        super().__init__(rows, **more)
        self.format_weight, self.loss, self.whole = format_weight, loss, whole

    def collate(self, rows: Sequence[Labelled]) -> Batch:
        columns = {
            name: torch.tensor([getattr(row, name) for row in rows])
            for name in ("correct", "ending")
        }
        return super().collate(rows) | columns

    def step(self, model, parts: list[Batch], items: int) -> torch.Tensor:
        """A step that is cut in parts sees all of its examples for the loss `whole`."""
        if self.whole is not None and (len(parts) > 1 or self.accelerator.num_processes > 1):
            parts = self._pulled(model, parts, self.whole)
        return super().step(model, parts, items)

    def part_loss(self, model, inputs):
        """Brier score plus form, a mean over a packed batch, and the whole step's loss."""
        logprobs, ends = self._distributions(model, inputs)
        correct = inputs["correct"].to(logprobs)
        loss = self.loss(logprobs, correct)
        if "pull" in inputs:
            pulled = (inputs["pull"] * logprobs).sum()
            loss = loss + pulled - pulled.detach() + inputs["whole"]
        elif self.whole is not None:
            loss = loss + self.whole(logprobs, correct)
        form = logprobs.logsumexp(1) + ends
        return loss - self.format_weight * form.mean()

    def _distributions(self, model, inputs) -> tuple[torch.Tensor, torch.Tensor]:
        """log P(c) [B, 101] of a part's examples, and log P of the end after the drawn values [B], 0 where P(c) has it."""
        paths = path_logprobs(node_logprobs(model, inputs), inputs)
        logprobs, drawn = paths[:, :-1], paths[:, -1]
        return logprobs, drawn - logprobs.gather(1, inputs["ending"].to(logprobs.device)[:, None])[
            :, 0
        ]

    def _pulled(self, model, parts: list[Batch], whole_loss: Loss) -> list[Batch]:
        """The parts, each with the loss of the whole step and its gradient with respect to the part's log P(c).

        The examples of all processes are one step. `pull` undoes the weight by which a part's loss will count, its share
        of the step's examples.
        """
        with torch.no_grad(), self.compute_loss_context_manager():
            own = [
                self._distributions(model, self._prepare_inputs(batch))[0].float().cpu()
                for batch in parts
            ]
        # by process
        seen = gather_object([(torch.cat(own), torch.cat([batch["correct"] for batch in parts]))])
        logprobs = torch.cat([values for values, _ in seen]).requires_grad_()
        whole = whole_loss(logprobs, torch.cat([correct for _, correct in seen]).to(logprobs))
        (gradient,) = torch.autograd.grad(whole, logprobs)
        mine = gradient.split([len(values) for values, _ in seen])[self.accelerator.process_index]
        pulls = mine.split([len(values) for values in own])
        return [
            batch | {"pull": pull * len(logprobs) / len(pull), "whole": whole.detach()}
            for batch, pull in zip(parts, pulls, strict=True)
        ]


def rows(lm, examples: Sequence[Mapping[str, Any]], seed: int) -> list[Labelled]:
    """Token ids of examples, each with a drawn `ending`."""
    endings = np.random.default_rng(seed).integers(0, 101, len(examples)).tolist()
    prompts = prompts_ids(
        lm.tokenizer, [example["prompt"] for example in examples], lm.template_kwargs
    )
    tries = [value_trie(lm.tokenizer, ending) for ending in endings]
    return [
        Labelled(
            prompt_ids=prompt,
            trie=trie,
            more=len(trie.inner),
            correct=example["correct"],
            ending=ending,
        )
        for example, prompt, trie, ending in zip(examples, prompts, tries, endings, strict=True)
    ]


def train(
    examples: Sequence[Mapping[str, Any]],
    settings: TrainingSettings,
    out,
    loss: Loss = tokenized_brier,
    whole: Loss | None = None,
) -> None:
    """Train on examples {prompt, correct}, 0 to 1; the confidence LLM is left in the folder `out`.

    loss: a mean over examples, from log P(c) [B, 101] and the examples' `correct` [B]; the form's is added. whole: of all
    the examples of a step together, such as their order, from the same two; added too.
    """

    def build(lm, arguments):
        data = rows(lm, examples, settings["seed"])
        common.check_lengths(lm, data)
        return BrierTrainer(data, settings["stage"]["format_weight"], loss, whole, **arguments)

    common.train(
        build,
        examples,
        settings,
        out,
        stage=parse_training_job(settings).method,
        examples=len(examples),
    )
