"""One optimizer step in micro-batches that are cut by their tokens: memory has a limit whatever the lengths.

A trainer's batch is all examples of a step (of this process). The collator cuts it into parts of at most
``training.micro_batch_tokens``, and the step adds up their gradients. A part's loss is weighted by its share of the
step's items (tokens of SFT, pairs of DPO), so the loss of a step does not depend on the cut but for rounding. With LoRA
dropout, the cut also changes which activations are dropped.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Sampler

from orce.llm import batches

if TYPE_CHECKING:
    from transformers import Trainer
else:
    Trainer = object


Row = Mapping[str, Any]  # an example as token ids, as its trainer writes it
Batch = dict[str, Any]  # the tensors of a micro-batch


class TokenBatches:
    """A collator: the examples of a step as {parts: [micro-batch, ...]}.

    collate: makes a micro-batch of some examples. measure: an example's prompt (token ids) and how many tokens follow it.
    items: how many items of the loss an example has. budget: columns of a micro-batch. padded: whether `collate` pads
    its rows, each of all the tokens, instead of packing them.
    """

    def __init__(
        self,
        collate: Callable[[list[Any]], Batch],
        measure: Callable[[Any], tuple[list[int], int]],
        items: Callable[[Any], int],
        budget: int,
        padded: bool = False,
    ):
        self.collate, self.measure, self.items, self.budget, self.padded = collate, measure, items, budget, padded
        self.tokens: list[int] = []  # of each step so far

    def __call__(self, rows: Sequence[Row]) -> Batch:
        total = sum(map(self.items, rows))
        parts = [[rows[i] for i in part] for part in self.cut(rows, self.budget)]
        cut = [self.part(mine, sum(map(self.items, mine)) / total) for mine in parts]
        self.tokens.append(sum(part["input_ids"].numel() for part in cut))
        return {"parts": cut, "items": total}

    def part(self, rows: list[Any], share: float = 1.0) -> Batch:
        """A micro-batch of these examples; share: the weight of its loss in the step's."""
        return dict(self.collate(rows)) | {"share": share}

    def cut(self, rows: Sequence[Row], budget: int) -> list[list[int]]:
        """Indices of the examples of each micro-batch of at most `budget` tokens."""
        prompts, more = zip(*(self.measure(row) for row in rows), strict=True)
        if not self.padded:
            return batches.packed(prompts, more, budget)
        found: list[list[int]] = []
        lengths = [len(prompt) + own for prompt, own in zip(prompts, more, strict=True)]
        for i in sorted(range(len(rows)), key=lambda i: (lengths[i], i)):
            if not found or lengths[i] * (len(found[-1]) + 1) > budget:
                found.append([])
            found[-1].append(i)
        return found


class FamilySampler(Sampler):
    """Shuffles families of prompts (token ids), such as the questions about one passage, and keeps each together."""

    def __init__(self, prompts: list[list[int]], seed: int):
        self.families, self.size, self.seed, self.epoch = batches.families_of(prompts), len(prompts), seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called before each epoch, so that a resumed training sees the order that it had."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        draw = torch.Generator().manual_seed(self.seed + self.epoch)
        for family in torch.randperm(len(self.families), generator=draw).tolist():
            mine = self.families[family]
            yield from (mine[i] for i in torch.randperm(len(mine), generator=draw).tolist())


class InParts(Trainer):
    """Mixin of the trainers: a step runs forward and backward for each part that `TokenBatches` has cut.

    grouped: whether an epoch shuffles families of prompts, so that a step has whole ones (`training.grouped`).
    """

    data_collator: Any
    train_dataset: Any
    args: Any
    grouped = False
    current_gradient_accumulation_steps = 1  # a batch is a whole step

    def _get_train_sampler(self, train_dataset=None):
        if not self.grouped:
            return super()._get_train_sampler(train_dataset)
        rows: Any = self.train_dataset
        return FamilySampler([self.data_collator.measure(row)[0] for row in rows], self.args.seed)

    def training_step(self, model, inputs: dict[str, Any], num_items_in_batch=None):
        """The loss of a step, its gradients added to the parameters'."""
        step: Any = inputs
        parts, scale = self._even(step["parts"], step["items"])
        losses = [super(InParts, self).training_step(model, part | {"share": scale * part["share"]}) for part in parts]
        return torch.stack(losses).sum()

    def _even(self, parts: list[Batch], items: int) -> tuple[list[Batch], float]:
        """The parts of this process, as many as of every other one, and the factor by which their losses count.

        Processes average their gradients in every backward pass, so all need equally many: a last part is repeated with
        the weight 0. The factor makes every item count the same, in whichever process it is.
        """
        if self.accelerator.num_processes == 1:
            return parts, 1.0
        mine = torch.tensor([[len(parts), items]], device=self.accelerator.device)
        counts = self.accelerator.gather(mine)
        idle = [parts[-1] | {"share": 0.0}] * (int(counts[:, 0].max()) - len(parts))
        return parts + idle, items / counts[:, 1].double().mean().item()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """A part's share of the step's loss (of a whole batch: all of it): a scalar."""
        inputs = dict(inputs)
        return inputs.pop("share", 1.0) * self.part_loss(model, inputs)

    def part_loss(self, model, inputs):
        """The mean loss of a micro-batch over its items; TRL's own unless a trainer has another."""
        return super().compute_loss(model, inputs)

    def floating_point_ops(self, inputs):
        return 0  # nothing reads the sum, and it counts every parameter in every step
