"""Memory of a training step at its peak, and how many tokens a micro-batch may have: the step runs on tensors without contents.

Everything that torch allocates is counted (FakeTensorMode); what CUDA itself takes is not: its context, the libraries'
workspaces and fragmentation. Models of LAYERS layers are run, and the rest follows: every layer takes the same.
"""

import copy
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from msgspec import structs
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from orce.llm.attention import use_blocks
from orce.llm.trie import TokenTrie, node_logprobs, pack
from orce.runtime import startup
from orce.runtime.progress import say
from orce.runtime.speed import AUTO, UNSIZED, speed
from orce.stage_settings import Job, Trainer
from orce.training import common

with startup.without_unused():
    from transformers import AutoModelForCausalLM

LAYERS = (1, 3)
# The tries of a training's examples, as many nodes as a tokenizer gives that writes digit by digit.
TRIES = {
    "sft": [[1, 2, 3, 4, 5, 6]],
    "dpo": [[1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 8, 6]],
    "conftuner": [[1, 2, 3, tens, ones] for tens in range(4, 14) for ones in range(4, 14)],
}
SHARE, CUDA = 0.85, 2e9  # of a GPU's memory for a training, less bytes of CUDA's own; the rest is for fragmentation
MOST, STEP = 16_384, 256  # tokens of a micro-batch: more are no faster, and a multiple is easier to read


@dataclass(frozen=True)
class Memory:
    """Bytes of the weights, of the peak, and of the optimizer's states, which come with the first step."""

    weights: float
    peak: float
    optimizer: float = 0.0

    @property
    def total(self) -> float:
        return self.peak + self.optimizer

    def sharded(self, gpus: int, layers: int) -> float:
        """Bytes on each of `gpus` that share the weights (FSDP2): a share of them, two whole layers, the activations."""
        return self.weights / gpus + 2 * self.weights / layers + self.peak - self.weights + self.optimizer / gpus


@dataclass(frozen=True)
class Shape:
    """A model by the configs of its shallower copies, config(layers), and its number of layers."""

    config: Callable[[int], Any]
    layers: int

    @classmethod
    def of(cls, config: Any) -> "Shape":
        """A loaded model's."""

        def shallow(layers: int) -> Any:
            cut = copy.deepcopy(config)
            cut.num_hidden_layers = layers
            return cut

        return cls(shallow, config.num_hidden_layers)


class Peak(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive, and the most of them at one time."""

    def __init__(self):
        super().__init__()
        self.known: dict[int, int] = {}
        self.now = self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self._see, out)
        return out

    def _see(self, tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.known:
            self.known[key] = storage.nbytes()
            self.now += self.known[key]
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.now -= self.known.pop(key)


def training(shape: Shape, training: Trainer, dtype: str, stage: str, tokens: int, prompt: int) -> Memory:
    """Memory of a training step on micro-batches of `tokens` tokens.

    stage: of TRIES. prompt: tokens of each prompt; one that is longer than `tokens` is a micro-batch by itself.
    """
    lora = training.lora if training.method == "lora" else None
    trie = TokenTrie.of(TRIES[stage])
    prompts = distinct(prompt, max(1, tokens // (prompt + len(trie.inner))))

    def run(layers: int) -> tuple[float, float, float]:
        model = empty(shape, layers, dtype if lora else "float32")
        if lora:
            from peft import get_peft_model

            model = get_peft_model(model, common.lora_config(structs.replace(lora, last_layers=None), layers))
        with FakeTensorMode(), Peak() as peak:
            weights = materialise(model, peak)
            if training.checkpointing:
                model.gradient_checkpointing_enable()
                model.enable_input_require_grads()
            model.train()
            packed = pack(prompts, [trie] * len(prompts))
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                loss = -node_logprobs(model, packed).mean()
            loss.backward()
            trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
            return weights, peak.most - weights, 8.0 * trained  # AdamW: two float32 a weight

    weights, activations, optimizer = (line(*pair) for pair in zip(*map(run, LAYERS), strict=True))
    last = lora.last_layers if lora else None
    trained = last if isinstance(last, int) else shape.layers
    held = weights(shape.layers)
    return Memory(held, held + activations(trained), optimizer(trained))


def distinct(length: int, count: int) -> list[list[int]]:
    """Prompts that share nothing, which is the worst case."""
    return [[number, *([2] * (length - 1))] for number in range(count)]


def empty(shape: Shape, layers: int, dtype: str):
    """A model without contents."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape.config(layers), dtype=getattr(torch, dtype))
    use_blocks(model)
    return model


def materialise(model, peak: Peak) -> float:
    """Move a model from the meta device to fake tensors of the CPU: the bytes of its weights."""
    for module in model.modules():
        for name, one in list(module._parameters.items()):
            if one is not None:
                data = torch.empty(one.shape, dtype=one.dtype)
                module._parameters[name] = torch.nn.Parameter(data, requires_grad=one.requires_grad)
        for name, one in list(module._buffers.items()):
            if one is not None:
                module._buffers[name] = torch.empty(one.shape, dtype=one.dtype)
    return peak.now


def line(few: float, more: float):
    """The line through two counts of layers, a function of the number of layers."""
    slope = (more - few) / (LAYERS[1] - LAYERS[0])
    return lambda layers: few + slope * (layers - LAYERS[0])


# ---- how many tokens fit


def fitting(shape: Shape, settings: Trainer, dtype: str, stage: str, prompt: int, gpu: float, shards: int = 1) -> int:
    """The most tokens of a micro-batch with which a training keeps to its share of a GPU of `gpu` bytes.

    shards: GPUs that share the weights. The peak grows by the example, so two counts of them give the line.
    """
    example = prompt + len(TokenTrie.of(TRIES[stage]).inner)

    def bytes_of(examples: int) -> float:
        found = training(shape, settings, dtype, stage, examples * example, prompt)
        return found.total if shards == 1 else found.sharded(shards, shape.layers)

    few, more = 2, 6
    least, slope = bytes_of(few), (bytes_of(more) - bytes_of(few)) / (more - few)
    examples = few + (SHARE * gpu - CUDA - least) / slope
    return max(STEP, min(MOST, int(examples * example) // STEP * STEP))


def sized(
    chosen: int | str,
    shape: Shape,
    training: Trainer,
    dtype: str,
    stage: str,
    prompt: int,
    gpu: float | None,
    shards: int,
) -> int:
    """Tokens of a micro-batch as `chosen` says, training.micro_batch_tokens. gpu: bytes of the GPU, None on a CPU."""
    if isinstance(chosen, int):
        return chosen
    ours = training.shared_prefix or stage == "conftuner"  # TRL's own loss takes memory that is not counted here
    return UNSIZED if gpu is None or not ours else fitting(shape, training, dtype, stage, prompt, gpu, shards)


def budget(lm, settings: Job, stage: str, prompts: Sequence[list[int]]) -> int:
    """Tokens of one forward and backward pass on one device. prompts: of the examples, as token ids.

    A card's memory decides, not what is free at the moment, so that the same training on the same card is cut alike.
    """
    chosen, training, shape = speed("training")["micro_batch_tokens"], settings.training, Shape.of(lm.model.config)
    gpu = None if lm.device.type == "cpu" else torch.cuda.get_device_properties(lm.device).total_memory
    shards, prompt = common.processes() if training.shard is True else 1, round(mean(map(len, prompts)))
    with torch.random.fork_rng(devices=[]):  # a new adapter's weights are drawn here too, on the CPU
        tokens = sized(chosen, shape, training, settings.model.dtype, stage, prompt, gpu, shards)
    if gpu is not None and chosen == AUTO:
        say(f"[{settings.label}] micro-batches of {tokens:,} tokens, for a GPU of {gpu / 1e9:.0f} GB")
    return tokens
