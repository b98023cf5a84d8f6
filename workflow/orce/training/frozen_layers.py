"""The layers below the adapter, which are computed once an example and not once an epoch.

An adapter of `training.lora.last_layers` begins above the first layer. What is below it is frozen
and sees the same tokens in every epoch, so its hidden states are the same too. They are computed
before the first step, as many examples together as fit a micro-batch, and kept in the main memory
(KEPT_BYTES of orce.runtime.process); a step then begins at the adapter's first layer. A resumed
training computes them anew, of the same batches, so to the same bits. Beside a training that
computes all layers in every step, rounding alone differs, as between micro-batches of another size.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import torch

from orce.llm.trie import Packed, node_logprobs


class FrozenLayers:
    """The layers of a model below the first trained one, and what they make of examples.

    count: such as "24 of 30". An example is known by its identity, as two may be equal.
    """

    def __init__(self, layers: Sequence[torch.nn.Module], first: int):
        self.below = layers[:first]
        self.trained = layers[first:]
        self.count = f"{first} of {len(layers)}"
        self.kept: dict[int, torch.Tensor] = {}  # of each example [tokens and inner nodes, D]

    @classmethod
    def of(cls, model) -> Self | None:
        """None where a step needs all layers: the first one is trained, or what is before it, or
        frozen ones draw dropout, or the others read keys and values of theirs.
        """
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        config = base.config.get_text_config()
        layers = getattr(base.model, "layers", ())
        first = next((i for i, layer in enumerate(layers) if is_trained(layer)), 0)
        dropout = getattr(config, "attention_dropout", 0)
        shared = getattr(config, "num_kv_shared_layers", 0)
        needed = dropout or shared or is_trained(base.get_input_embeddings())
        return None if needed or first == 0 else cls(layers, first)

    @torch.no_grad()
    def compute(self, model, examples: Sequence[object], packed: Packed) -> None:
        """Keep what the layers make of the examples of a packed row."""
        states = []

        def record(hidden: torch.Tensor, *_, **__) -> torch.Tensor:
            states.append(hidden[0].cpu())
            return hidden

        with replace_forward(self.trained, record):
            node_logprobs(model, packed)
        for example, columns in zip(examples, packed["columns"], strict=True):
            self.kept[id(example)] = states[0][columns]

    def states(self, examples: Sequence[object], packed: Packed) -> torch.Tensor:
        """What the layers make of a packed row of examples: [L, D], D the width of the model."""
        parts = [self.kept[id(example)] for example in examples]
        states = parts[0].new_empty(packed["input_ids"].size(1), parts[0].size(1))
        for part, columns in zip(parts, packed["columns"], strict=True):
            states[columns] = part
        return states

    def skip(self, states: torch.Tensor) -> contextlib.AbstractContextManager:
        """In this context the model takes `states` as what the layers have made of its row."""
        return replace_forward(self.below, lambda *_, **__: states[None])


def is_trained(module: torch.nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


@contextlib.contextmanager
def replace_forward(layers: Sequence[Any], forward: Callable[..., torch.Tensor]) -> Iterator[None]:
    """Replace the forward pass of some layers while the block runs."""
    for layer in layers:
        layer.forward = forward  # of the instance; its class keeps its own
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
