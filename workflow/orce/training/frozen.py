"""The frozen lower layers, computed once for each training sequence instead of once for each epoch.

With adapters on the last layers only (``training.lora.last_layers``), what the layers below make of a sequence never
changes: a token's state depends on the tokens that it sees and not on its neighbours in the batch. The states below
the first trained layer are computed before the first step and kept in a memory-mapped file; every step starts from
them. They are computed in the data's order, whatever an earlier, killed run had done, so that a resumed training
takes the same steps to the last bit.
"""

from contextlib import contextmanager
from pathlib import Path

import torch

from orce.llm.trie import Packed, model_inputs
from orce.runtime import files
from orce.runtime.progress import Progress

LIMIT = 16 * 2**30  # bytes of states kept for one training; beyond that every step computes all layers
# Model families whose layers hand on nothing but their states, so that one can run without those below it.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


class FromFrozenStates:
    """Mixin of the trainers on packed batches: a step may start above the frozen layers."""

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
    """Within the block `trainer` trains from states kept in `file`, if it has frozen layers and they can be kept."""
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
    """How many decoder layers stand below everything that is trained or random in training."""
    base = _base(model)
    inputs, layers = base.get_input_embeddings(), base.get_decoder().layers
    if base.config.model_type not in FAMILIES or base.config.attention_dropout or _is_trained(inputs):
        return 0
    return next((number for number, layer in enumerate(layers) if _is_trained(layer)), 0)


def _is_trained(module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _base(model):
    """The transformers model inside its adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


class LowerLayers:
    """The lowest `count` layers of a trainer's model and their states [tokens, hidden] for all its sequences.

    Those of sequence i stand at starts[i]:starts[i + 1]. `current`: the states [1, L, hidden] of the batch at hand.
    """

    def __init__(self, trainer, count: int):
        self.decoder, self.count, self.current = _base(trainer.model).get_decoder(), count, None
        self.rows, self.pack = trainer.train_dataset, trainer.data_collator
        lengths = [self.pack([row])["bounds"][-1] for row in self.rows]
        self.starts = torch.tensor([0, *lengths]).cumsum(0).tolist()
        self.hidden, self.dtype = self.decoder.config.hidden_size, next(self.decoder.parameters()).dtype

    @property
    def size(self) -> int:
        """Bytes of all states."""
        return self.starts[-1] * self.hidden * self.dtype.itemsize

    def fill(self, file: Path, trainer, label: str) -> None:
        """Compute all states; several processes share the work and the file."""
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
        with _replaced(upper[:1], self._keep), _replaced(upper[1:], _hand_on):
            self.decoder(**model_inputs(self.decoder, packed))
        shared = packed.bounds[0]
        for i, start, end in zip(batch, packed.bounds, packed.bounds[1:], strict=False):
            own = self._of(i)
            own[:shared], own[shared:] = self.current[0, :shared], self.current[0, start:end]

    def collate(self, rows: list[dict]) -> dict:
        """The plain batch with the states of its columns, `lower`."""
        batch = self.pack(rows)
        shared, own = batch["bounds"][0], [self._of(row["row"]) for row in rows]
        states = torch.cat([own[0][:shared], *(one[shared:] for one in own)])
        return batch | {"lower": states[None]}

    def _of(self, i: int) -> torch.Tensor:
        """States of sequence i, the shared beginning included; a view."""
        return self.states[self.starts[i] : self.starts[i + 1]]

    def replaced(self):
        """Context in which the model's lower layers give the states of the batch at hand instead of running."""
        return _replaced(self.decoder.layers[: self.count], lambda hidden_states, **_: self.current)

    def _keep(self, hidden_states, **_):
        self.current = hidden_states
        return hidden_states


def _hand_on(hidden_states, **_):
    return hidden_states


@contextmanager
def _replaced(layers, forward):
    """Let `forward` stand for the layers' own; names, weights and devices stay as they are."""
    for layer in layers:
        layer.forward = forward
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
