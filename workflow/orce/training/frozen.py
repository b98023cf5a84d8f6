"""Frozen lower layers, computed once for each training sequence instead of once in every epoch.

With adapters on the last layers only (``training.lora.last_layers``), the hidden states of the layers below never
change: a token's state depends on the tokens that it attends to, not on the other sequences of its batch. The input
states of the first trained layer are computed before the first step and kept in a memory-mapped file, and every step
starts from them. They are always computed in the order of the data, also after a kill, so that a resumed training
takes the same steps to the last bit.
"""

import shutil
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from accelerate.utils import broadcast_object_list

from orce.artefacts import files
from orce.llm.trie import Packed, model_inputs
from orce.runtime.progress import Progress, say
from orce.training.steps import Batch, Row

SHARE = 0.5  # of the free disk that a training's states may take; if they need more, every step computes all layers
WINDOW = 1024  # consecutive examples from which a batch is drawn
# Families whose layers pass on nothing but hidden states, so that a layer can run without those below it.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


if TYPE_CHECKING:
    from transformers import Trainer
else:
    Trainer = object


class FromFrozenStates(Trainer):
    """Mixin of the trainers on packed batches: a step can start above the frozen layers."""

    lower: "LowerLayers | None" = None

    def _prepare_inputs(self, inputs):
        inputs = super()._prepare_inputs(inputs)
        if self.lower is not None:
            self.lower.current = inputs.pop("lower")
        return inputs


@contextmanager
def computed_once(trainer, file: Path, label: str):
    """Inside the block, `trainer` starts from states kept in `file`, if it has frozen layers and there is room for them."""
    count = reusable_layers(trainer)
    lower = LowerLayers(trainer, count) if count else None
    if lower is None or not _fits(lower, file, trainer, label):
        yield
        return
    lower.fill(file, trainer, label)
    rows, collate = trainer.train_dataset, trainer.data_collator.collate
    trainer.lower, trainer.data_collator.collate = lower, lower.collate
    trainer.train_dataset = rows.add_column("row", list(range(len(rows))))
    with lower.replaced():
        yield
    trainer.lower, trainer.train_dataset, trainer.data_collator.collate = None, rows, collate


def _fits(lower: "LowerLayers", file: Path, trainer, label: str) -> bool:
    """Whether there is room for the states. Rank 0 decides, and logs the decision."""
    free = shutil.disk_usage(file.parent).free + (file.stat().st_size if file.exists() else 0)
    (free,) = broadcast_object_list([free])
    fits = lower.size <= SHARE * free
    if trainer.is_world_process_zero():
        needed, there = f"{lower.size / 1e9:.2f} GB", f"{free / 1e9:.1f} GB are free in {file.parent}"
        say(
            f"[{label}] the lower {lower.count} layers run once: their states take {needed}; {there}"
            if fits
            else f"[{label}] the lower {lower.count} layers run in every step: their states would take {needed}, "
            f"more than half of what is free; {there}"
        )
    return fits


def reusable_layers(trainer) -> int:
    """How many lower layers of a trainer's model need not run in every step."""
    if not isinstance(trainer, FromFrozenStates) or trainer.args.num_train_epochs <= 1:
        return 0
    # With its weights spread over processes a layer does not run by itself.
    return 0 if trainer.is_distributed_loading_by_transformers else frozen_layers(trainer.model)


def frozen_layers(model) -> int:
    """How many decoder layers are below everything that is trained, or random during training."""
    base = base_model(model)
    inputs, layers = base.get_input_embeddings(), base.get_decoder().layers
    if base.config.model_type not in FAMILIES or base.config.attention_dropout or _is_trained(inputs):
        return 0
    return next((number for number, layer in enumerate(layers) if _is_trained(layer)), 0)


def _is_trained(module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def base_model(model):
    """The transformers model inside peft's wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


class LowerLayers:
    """The lowest `count` layers of a trainer's model, and the states above them for all of its sequences.

    states: [tokens, hidden]; sequence i has starts[i]:starts[i + 1]. current: [1, L, hidden], the states of
    the current batch.
    """

    def __init__(self, trainer, count: int):
        self.decoder, self.count = base_model(trainer.model).get_decoder(), count
        self.current: torch.Tensor
        self.rows, self.batches = trainer.train_dataset, trainer.data_collator
        self.pack = self.batches.collate
        lengths = [len(self.pack([row])["columns"][0]) for row in self.rows]
        self.starts = torch.tensor([0, *lengths]).cumsum(0).tolist()
        self.hidden, self.dtype = self.decoder.config.hidden_size, next(self.decoder.parameters()).dtype

    @property
    def size(self) -> int:
        """Bytes of all states."""
        return self.starts[-1] * self.hidden * self.dtype.itemsize

    def fill(self, file: Path, trainer, label: str) -> None:
        """Compute all states and keep them in `file`; several processes share the work and the file."""
        shape = self.starts[-1], self.hidden
        if trainer.is_world_process_zero():
            files.reserve(file, self.size)
        trainer.accelerator.wait_for_everyone()
        self.states = torch.from_file(str(file), shared=True, size=shape[0] * shape[1], dtype=self.dtype).view(shape)
        accelerator, batches = trainer.accelerator, []
        for start in range(0, len(self.rows), WINDOW):
            rows = [self.rows[i] for i in range(start, min(start + WINDOW, len(self.rows)))]
            batches += [[start + i for i in part] for part in self.batches.cut(rows, 2 * self.batches.budget)]
        own = batches[accelerator.process_index :: accelerator.num_processes]
        progress = Progress(f"{label} frozen layers", len(own))
        with accelerator.autocast(), torch.inference_mode():
            for done, batch in enumerate(own, 1):
                self._compute(batch)
                progress.update(done)
        accelerator.wait_for_everyone()

    def _compute(self, batch: list[int]) -> None:
        packed = Packed.of(self.pack([self.rows[i] for i in batch]))
        upper = self.decoder.layers[self.count :]
        with _replaced(upper[:1], self._record), _replaced(upper[1:], _pass_through):
            self.decoder(**model_inputs(self.decoder, packed))
        for i, columns in zip(batch, packed.columns, strict=True):
            self._of(i)[:] = self.current[0, columns.to(self.current.device)]

    def collate(self, rows: Sequence[Row]) -> Batch:
        """The packed batch, with the states of its columns as `lower`: [1, L, hidden]."""
        batch = self.pack(rows)
        states = torch.empty(batch["starts"][-1], self.hidden, dtype=self.dtype)
        for row, columns in zip(rows, batch["columns"], strict=True):
            states[columns] = self._of(row["row"])
        return batch | {"lower": states[None]}

    def _of(self, i: int) -> torch.Tensor:
        """A view of the states of sequence i, including the shared prefix."""
        return self.states[self.starts[i] : self.starts[i + 1]]

    def replaced(self):
        """Inside this context the model's lower layers return the states of the current batch instead of running."""
        return _replaced(self.decoder.layers[: self.count], lambda hidden_states, **_: self.current)

    def _record(self, hidden_states, **_):
        self.current = hidden_states
        return hidden_states


def _pass_through(hidden_states, **_):
    return hidden_states


@contextmanager
def _replaced(layers, forward):
    """Temporarily replace each layer's forward; names, weights and devices are unchanged."""
    for layer in layers:
        layer.forward = forward
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
