"""Frozen lower layers, computed once for each training sequence instead of once in every epoch.

With adapters on the last layers only (``training.lora.last_layers``), the hidden states of the layers below never
change: a token's state depends on the tokens that it attends to, not on the other sequences of its batch. The input
states of the first trained layer are computed before the first step and kept in a memory-mapped file, and every step
starts from them. They are always computed in the order of the data, also after a kill, so that a resumed training
takes the same steps to the last bit.
"""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from orce.llm.trie import Packed, model_inputs
from orce.runtime import files
from orce.runtime.progress import Progress

LIMIT = 16 * 2**30  # bytes of states kept for one training; if there are more, every step computes all layers
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

    def floating_point_ops(self, inputs):
        return 0  # nothing reads the sum, and it counts every parameter in every step


@contextmanager
def computed_once(trainer, file: Path, label: str):
    """Inside the block, `trainer` starts from states kept in `file`, if it has frozen layers and they can be kept."""
    count = reusable_layers(trainer)
    lower = LowerLayers(trainer, count) if count else None
    if lower is None or lower.size > LIMIT:
        yield
        return
    lower.fill(file, trainer, label)
    plain = trainer.train_dataset, trainer.data_collator
    trainer.lower, trainer.data_collator = lower, lower.collate
    trainer.train_dataset = plain[0].add_column("row", list(range(len(plain[0]))))
    with lower.replaced():
        yield
    trainer.lower, (trainer.train_dataset, trainer.data_collator) = None, plain


def reusable_layers(trainer) -> int:
    """How many lower layers of a trainer's model need not run in every step."""
    if not isinstance(trainer, FromFrozenStates) or trainer.args.num_train_epochs <= 1:
        return 0
    # With its weights spread over processes a layer does not run by itself.
    return 0 if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled else frozen_layers(trainer.model)


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

    states: [tokens, hidden]; those of sequence i are starts[i]:starts[i + 1]. current: [1, L, hidden], the states of
    the current batch.
    """

    def __init__(self, trainer, count: int):
        self.decoder, self.count = base_model(trainer.model).get_decoder(), count
        self.current: torch.Tensor
        self.rows, self.pack = trainer.train_dataset, trainer.data_collator
        lengths = [self.pack([row])["bounds"][-1] for row in self.rows]
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
        size, accelerator = 2 * trainer.args.per_device_train_batch_size, trainer.accelerator
        batches = [range(start, min(start + size, len(self.rows))) for start in range(0, len(self.rows), size)]
        own = batches[accelerator.process_index :: accelerator.num_processes]
        progress = Progress(f"{label} frozen layers", len(own))
        with accelerator.autocast(), torch.inference_mode():
            for done, batch in enumerate(own, 1):
                self._compute(batch)
                progress.update(done)
        accelerator.wait_for_everyone()

    def _compute(self, batch: range) -> None:
        packed = Packed.of(self.pack([self.rows[i] for i in batch]))
        upper = self.decoder.layers[self.count :]
        with _replaced(upper[:1], self._record), _replaced(upper[1:], _pass_through):
            self.decoder(**model_inputs(self.decoder, packed))
        shared = packed.bounds[0]
        for i, start, end in zip(batch, packed.bounds, packed.bounds[1:], strict=False):
            own = self._of(i)
            own[:shared], own[shared:] = self.current[0, :shared], self.current[0, start:end]

    def collate(self, rows: list[dict]) -> dict:
        """The packed batch, with the states of its columns as `lower`: [1, L, hidden]."""
        batch = self.pack(rows)
        shared, own = batch["bounds"][0], [self._of(row["row"]) for row in rows]
        states = torch.cat([own[0][:shared], *(one[shared:] for one in own)])
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
