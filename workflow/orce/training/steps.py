"""One optimizer step in micro-batches that are cut by their tokens: memory has a limit whatever the lengths.

A trainer's batch is all examples of a step (of this process), cut into micro-batches of at most
``training.micro_batch_tokens``. Each one's loss counts by its share of the step's items (tokens of SFT, pairs of DPO), so
the loss of a step does not depend on the cut but for rounding, and for LoRA's dropout.
"""

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from msgspec import Struct
from torch.utils.data import Sampler

from orce.errors import BadInput
from orce.llm.trie import TokenTrie, pack, packed_batches, sorted_families
from orce.runtime import process
from orce.runtime.process import say, speed

with process.hide_unused_packages():
    from transformers import PrinterCallback, Trainer

Batch = dict[str, Any]  # the tensors of a micro-batch
NOT_FINITE = "nothing is written; set a lower learning_rate, or dtype: float32, and run it again"


class Row(Struct, kw_only=True):
    """An example as token ids: a prompt, and the trie of what may follow it. more: the tokens that it adds to a micro-batch."""

    prompt_ids: list[int]
    trie: TokenTrie
    more: int


AnyRow = TypeVar("AnyRow", bound=Row)


class FamilySampler(Sampler):
    """Shuffles families of prompts (token ids), such as the questions about one passage, and keeps each together."""

    def __init__(self, prompts: list[list[int]], seed: int):
        self.families = [members for members, _ in sorted_families(prompts)[1]]
        self.size, self.seed, self.epoch = len(prompts), seed, 0

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


class PackedTrainer(Trainer, Generic[AnyRow]):
    """A trainer on rows. A subclass says what their loss is. grouped: whether an epoch shuffles families of prompts, so that a
    step has whole ones (`training.grouped`)."""

    current_gradient_accumulation_steps = 1  # a batch is a whole step

    def __init__(self, rows: Sequence[AnyRow], grouped: bool = False, **more):
        data: Any = rows  # of a dataset, the trainer wants a length and items alone
        super().__init__(train_dataset=data, data_collator=lambda rows: {"rows": rows}, **more)
        self.remove_callback(PrinterCallback)  # common.Report replaces it
        self.rows, self.grouped, self.budget = (
            rows,
            grouped,
            speed("training")["micro_batch_tokens"],
        )
        self.batch: Sequence[AnyRow] = ()  # of the latest step
        self.tokens: list[int] = []  # of each step so far
        self.seconds: list[float] = []  # of each step's passes

    def collate(self, rows: Sequence[AnyRow]) -> Batch:
        return pack([row.prompt_ids for row in rows], [row.trie for row in rows])

    def part_loss(self, model, inputs: Batch) -> torch.Tensor:
        raise NotImplementedError  # the mean loss of a micro-batch over its items

    def items(self, row: AnyRow) -> int:
        return 1  # of the loss

    def cut(self, rows: Sequence[AnyRow]) -> list[Batch]:
        """The micro-batches of a step, each with the share of its loss."""
        total = sum(map(self.items, rows))
        batches = packed_batches(
            [row.prompt_ids for row in rows], [row.more for row in rows], self.budget
        )
        groups = [[rows[i] for i in indices] for indices in batches]
        return [
            self.collate(group) | {"share": sum(map(self.items, group)) / total} for group in groups
        ]

    def training_step(self, model, inputs: dict[str, Any], num_items_in_batch=None):
        """The loss of a step, its gradients added to the parameters'. Out of memory, it is cut by half as many tokens."""
        self.batch = inputs["rows"]
        while True:
            started, parts = time.monotonic(), self.cut(inputs["rows"])
            try:
                loss = self.step(model, parts, sum(map(self.items, inputs["rows"])))
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                self.seconds.append(time.monotonic() - started)
                self.tokens.append(sum(batch["input_ids"].numel() for batch in parts))
                return loss
            except RuntimeError as error:
                # Several processes would have to agree, in the middle of a backward pass.
                alone = self.accelerator.num_processes == 1
                if not (
                    should_reduce_batch_size(error) and alone and len(parts) < len(inputs["rows"])
                ):
                    raise
            self.budget //= 2
            say(
                f"out of memory: micro-batches of {self.budget:,} tokens from here on (training.micro_batch_tokens)"
            )
            model.zero_grad()
            clear_device_cache(garbage_collection=True)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Raises BadInput after a step whose loss or gradient is not finite, before a checkpoint of it is saved."""
        for name in ("loss", "grad_norm"):
            if not math.isfinite(value := float(logs.get(name, 0))):
                # By identity, as two examples may be equal.
                examples = [
                    str(n)
                    for n, row in enumerate(self.rows, 1)
                    if any(row is seen for seen in self.batch)
                ]
                where = f"step {self.state.global_step}, examples {', '.join(examples)} of {len(self.rows)}"
                raise BadInput(f"[{self.args.run_name}] {where}: {name} is {value}; {NOT_FINITE}")
        super().log(logs, start_time)

    def step(self, model, parts: list[Batch], items: int) -> torch.Tensor:
        """The loss of a step, given as micro-batches."""
        scale, train = 1.0, super().training_step
        if self.accelerator.num_processes > 1:
            # Processes average their gradients in every backward pass, so all need equally many: a last part is repeated with
            # the weight 0. The scale makes every item count the same, in whichever process it is.
            counts = self.accelerator.gather(
                torch.tensor([[len(parts), items]], device=self.accelerator.device)
            )
            parts = parts + [parts[-1] | {"share": 0.0}] * (int(counts[:, 0].max()) - len(parts))
            scale = items / counts[:, 1].double().mean().item()
        return torch.stack(
            [train(model, batch | {"share": scale * batch["share"]}) for batch in parts]
        ).sum()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """A micro-batch's share of the step's loss (of a whole batch: all of it): a scalar."""
        inputs = dict(inputs)
        return inputs.pop("share", 1.0) * self.part_loss(model, inputs)

    def _get_train_sampler(self, train_dataset=None):
        if not self.grouped:
            return super()._get_train_sampler(train_dataset)
        return FamilySampler([row.prompt_ids for row in self.rows], self.args.seed)

    def floating_point_ops(self, inputs):
        return 0  # nothing reads the sum, and it counts every parameter in every step
