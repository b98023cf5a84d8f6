"""One optimizer step in micro-batches that are cut by their tokens: memory has a limit whatever the
lengths.

A trainer's batch is all examples of a step (of this process), cut into micro-batches of at most
``training.micro_batch_tokens``. Each one's loss counts by its share of the step's loss terms
(tokens of SFT, pairs of DPO), so the loss of a step does not depend on the cut but for rounding,
and for LoRA's dropout.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from msgspec import Struct
from torch.utils.data import Sampler

from orce.errors import BadInput
from orce.llm.trie import Packed, TokenTrie, pack, packed_batches, sorted_families
from orce.runtime import process
from orce.runtime.process import say, speed
from orce.training.frozen_layers import FrozenLayers

with process.hide_unused_packages():
    from transformers import PrinterCallback, Trainer

Batch = dict[str, Any]  # the tensors of a micro-batch
NOT_FINITE = "nothing is written; set a lower learning_rate, or dtype: float32, and run it again"


# Examples


class Row(Struct, kw_only=True):
    """An example as token ids: a prompt, and the trie of what may follow it, which counts as
    `trie_tokens` in a micro-batch.
    """

    prompt_ids: list[int]
    trie: TokenTrie
    trie_tokens: int

    @property
    def continuations(self) -> list[list[int]]:
        """The token ids of each continuation in the trie."""
        tokens = self.trie.tokens
        return [[tokens[node] for node in path] for path in self.trie.paths]


class PreferenceRow(Row, kw_only=True):
    """A prompt with the trie of two statements, (chosen, rejected); reference: their
    log-probabilities, log pi_ref(z | x).
    """

    reference: tuple[float, float] = (0.0, 0.0)


AnyRow = TypeVar("AnyRow", bound=Row)


def longest(rows: Sequence[Row]) -> int:
    """The most tokens that a prompt has with one of its continuations."""
    return max(len(row.prompt_ids) + max(map(len, row.trie.paths)) for row in rows)


def cut(rows: Sequence[Row], budget: int) -> list[list[int]]:
    """The indices of rows in micro-batches of at most `budget` tokens."""
    prompts = [row.prompt_ids for row in rows]
    return packed_batches(prompts, [row.trie_tokens for row in rows], budget)


def pack_rows(rows: Sequence[Row]) -> Packed:
    """The packed row of a micro-batch."""
    return pack([row.prompt_ids for row in rows], [row.trie for row in rows])


class FamilySampler(Sampler):
    """Shuffles families of prompts (token ids), such as the questions about one passage, and keeps
    each together.
    """

    def __init__(self, prompts: list[list[int]], seed: int):
        _, families = sorted_families(prompts)
        self.families = [members for members, _ in families]
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called before each epoch, so that a resumed training sees the order that it had."""
        self.epoch = epoch

    def __len__(self) -> int:
        return sum(map(len, self.families))

    def __iter__(self) -> Iterator[int]:
        draw = torch.Generator().manual_seed(self.seed + self.epoch)
        for family in torch.randperm(len(self.families), generator=draw).tolist():
            members = self.families[family]
            for i in torch.randperm(len(members), generator=draw).tolist():
                yield members[i]


# Trainers


class WatchedTrainer(Trainer):
    """A trainer with what orce.training.common reads of it beside what transformers' own has: its
    rows, the budget of a micro-batch, and the tokens and seconds of each step so far.
    """

    def __init__(self, rows: Sequence[Any], **options):
        super().__init__(**options)
        self.remove_callback(PrinterCallback)  # common.Report replaces it
        self.rows = rows
        self.budget = speed("training")["micro_batch_tokens"]
        self.tokens: list[int] = []
        self.seconds: list[float] = []

    def note_step(self, started: float, tokens: int) -> None:
        """Note what the step that began at `started` took, when the GPU has computed it."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.monotonic() - started)
        self.tokens.append(tokens)

    def describe_step(self) -> str:
        """The latest step, as messages name it."""
        return f"step {self.state.global_step}"

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Raises BadInput after a step whose loss or gradient is not finite, before a checkpoint of
        it is saved.
        """
        for name in ("loss", "grad_norm"):
            value = float(logs.get(name, 0))
            if not math.isfinite(value):
                step = f"[{self.args.run_name}] {self.describe_step()}"
                raise BadInput(f"{step}: {name} is {value}; {NOT_FINITE}")
        super().log(logs, start_time)


class PackedTrainer(WatchedTrainer, Generic[AnyRow]):
    """Base trainer: packs rows into micro-batches of at most `budget` tokens. Subclasses define
    `part_loss`.

    grouped: whether an epoch shuffles families of prompts, so that a step has whole ones
        (`training.grouped`).
    """

    # Trainer must not divide a loss: one batch of its data loader is one optimizer step.
    current_gradient_accumulation_steps = 1

    def __init__(self, rows: Sequence[AnyRow], grouped: bool = False, **options):
        # The collator leaves rows as they are: `training_step` packs them when it knows the budget.
        options |= {"train_dataset": rows, "data_collator": lambda rows: {"rows": rows}}
        super().__init__(rows, **options)
        self.grouped = grouped
        self.frozen: FrozenLayers | None = None  # those that `common.fit` has computed already
        self.batch: Sequence[AnyRow] = ()  # of the latest step

    def training_step(self, model, inputs: dict[str, Any], num_items_in_batch=None):
        """The loss of a step, its gradients added to the parameters'. Out of memory, it is cut by
        half as many tokens.
        """
        rows = inputs["rows"]
        self.batch = rows
        terms = sum(map(self.loss_terms, rows))
        while True:
            started = time.monotonic()
            parts = self.micro_batches(rows)
            try:
                loss = self.step(model, parts, terms)
                self.note_step(started, sum(part["input_ids"].numel() for part in parts))
                return loss
            except RuntimeError as error:
                # Several processes would have to agree, in the middle of a backward pass.
                alone = self.accelerator.num_processes == 1
                divisible = len(parts) < len(rows)
                if not (should_reduce_batch_size(error) and alone and divisible):
                    raise
            self.budget //= 2
            say(
                f"out of memory: micro-batches of {self.budget:,} tokens from here on (training.micro_batch_tokens)"
            )
            # What the parts before the failure have added; the step starts anew.
            model.zero_grad()
            clear_device_cache(garbage_collection=True)

    def micro_batches(self, rows: Sequence[AnyRow]) -> list[Batch]:
        """The micro-batches of a step, each with the `share` of its loss in the step's."""
        total = sum(map(self.loss_terms, rows))
        parts = []
        for indices in cut(rows, self.budget):
            group = [rows[i] for i in indices]
            part = self.collate(group)
            part["share"] = sum(map(self.loss_terms, group)) / total
            if self.frozen:
                part["states"] = self.frozen.states(group, part)
            parts.append(part)
        return parts

    def collate(self, rows: Sequence[AnyRow]) -> Batch:
        return pack_rows(rows)

    def step(self, model, parts: list[Batch], terms: int) -> torch.Tensor:
        """The loss of a step, given as micro-batches; terms: of this process's loss."""
        if self.accelerator.num_processes > 1:
            parts = self.as_many_as_others(parts, terms)
        losses = []
        for part in parts:
            losses.append(super().training_step(model, part))  # forward and backward
        return torch.stack(losses).sum()

    def as_many_as_others(self, parts: list[Batch], terms: int) -> list[Batch]:
        """The micro-batches of this process, as many as the process with the most has.

        Processes average their gradients in every backward pass, so all need equally many: a last
        part is repeated with the share 0. The scale makes every term count the same, in whichever
        process it is.
        """
        own = torch.tensor([[len(parts), terms]], device=self.accelerator.device)
        counts = self.accelerator.gather(own)
        scale = terms / counts[:, 1].double().mean().item()
        scaled = [part | {"share": scale * part["share"]} for part in parts]
        missing = int(counts[:, 0].max()) - len(parts)
        return scaled + [parts[-1] | {"share": 0.0}] * missing

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """A micro-batch's share of the step's loss (of a whole batch: all of it): a scalar."""
        known = self.frozen.skip(inputs["states"]) if self.frozen else contextlib.nullcontext()
        with known:
            return inputs.get("share", 1.0) * self.part_loss(model, inputs)

    def part_loss(self, model, inputs: Batch) -> torch.Tensor:
        """The mean loss of a micro-batch over its loss terms, a scalar."""
        raise NotImplementedError

    def loss_terms(self, row: AnyRow) -> int:
        """How many terms a row adds to the mean loss: its tokens in SFT, 1 for a pair of DPO."""
        return 1

    def describe_step(self) -> str:
        # By identity, as two examples may be equal.
        in_step = {id(row) for row in self.batch}
        examples = [str(n) for n, row in enumerate(self.rows, 1) if id(row) in in_step]
        return f"{super().describe_step()}, examples {', '.join(examples)} of {len(self.rows)}"

    def _get_train_sampler(self, train_dataset=None):
        if not self.grouped:
            return super()._get_train_sampler(train_dataset)
        return FamilySampler([row.prompt_ids for row in self.rows], self.args.seed)

    def floating_point_ops(self, inputs):
        return 0  # nothing reads the sum, and it counts every parameter in every step
