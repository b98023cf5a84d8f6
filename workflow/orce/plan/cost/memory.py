"""Memory of one GPU at its peak, without a GPU: the stage's own code runs on tensors without contents.

Everything that torch allocates is counted (FakeTensorMode); what CUDA itself takes is not: its context, the libraries'
workspaces and fragmentation, 1 to 2 GB in all. Models of LAYERS layers are run, and the rest follows: every layer takes the same.
"""

import weakref
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from transformers import AutoConfig, AutoModelForCausalLM

from orce.config.schema import Config, Training
from orce.judging.reader import trie_logits
from orce.llm.attention import use_blocks
from orce.llm.kv_cache import KVCache
from orce.llm.trie import TokenTrie, node_logprobs, pack
from orce.plan.cost.flops import Sizes
from orce.stage_settings import Lora
from orce.training.common import lora_config

LAYERS = (1, 3)
# The tries of a training's examples, as many nodes as a tokenizer gives that writes digit by digit.
TRIES = {
    "sft": [[1, 2, 3, 4, 5, 6]],
    "dpo": [[1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 8, 6]],
    "conftuner": [[1, 2, 3, tens, ones] for tens in range(4, 14) for ones in range(4, 14)],
}


@dataclass(frozen=True)
class Memory:
    """Bytes: of the weights, of all at the peak, and of the optimizer's states, which come with the first step."""

    weights: float
    peak: float
    optimizer: float = 0.0

    @property
    def total(self) -> float:
        return self.peak + self.optimizer

    def sharded(self, gpus: int, layers: int) -> float:
        """Bytes on each of `gpus` that share the weights (FSDP2): a share of them, two whole layers, the activations."""
        return self.weights / gpus + 2 * self.weights / layers + self.peak - self.weights + self.optimizer / gpus


class _Peak(TorchDispatchMode):
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


def training(sizes: Sizes, training: Training, dtype: str, stage: str, tokens: int, prompt: int) -> Memory:
    """Memory of a training step on micro-batches of `tokens` tokens.

    training: the config's section. stage: of TRIES. prompt: tokens of each prompt; one that is longer than `tokens` is a
    micro-batch by itself.
    """
    last = training.lora.last_layers if training.method == "lora" else None
    trie = TokenTrie.of(TRIES[stage])
    prompts = _prompts(prompt, max(1, tokens // (prompt + len(trie.inner))))

    def run(layers: int) -> tuple[float, float, float]:
        model = _model(sizes, layers, "float32" if training.method == "full" else dtype)
        if training.method == "lora":
            from peft import get_peft_model

            lora = training.lora
            of_all = Lora(r=lora.r, alpha=lora.alpha, dropout=lora.dropout, target_modules=lora.target_modules)
            model = get_peft_model(model, lora_config(of_all, layers))
        with FakeTensorMode(), _Peak() as peak:
            weights = _materialise(model, peak)
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

    weights, activations, optimizer = (_line(*pair) for pair in zip(*map(run, LAYERS), strict=True))
    trained = last or sizes.layers
    held = weights(sizes.layers)
    return Memory(held, held + activations(trained), optimizer(trained))


def reading(sizes: Sizes, dtype: str, tokens: int, prompt: int) -> Memory:
    """Memory of reading confidences from batches of `tokens` tokens of prompts with `prompt` tokens each."""
    trie = TokenTrie.of(TRIES["conftuner"])
    prompts = _prompts(prompt, max(1, tokens // (prompt + len(trie.inner))))

    def run(layers: int) -> tuple[float, float]:
        model = _model(sizes, layers, dtype).eval()
        with FakeTensorMode(), _Peak() as peak, torch.inference_mode():
            weights = _materialise(model, peak)
            trie_logits(KVCache(model, prompts), trie)
            return weights, peak.most - weights

    weights, others = (_line(*pair) for pair in zip(*map(run, LAYERS), strict=True))
    return Memory(weights(sizes.layers), weights(sizes.layers) + others(sizes.layers))


def cache_tokens(sizes: Sizes, gpu: float, share: float) -> int:
    """Tokens that vllm can keep on a GPU of `gpu` bytes of which it takes `share`, with 2 GB for a forward pass."""
    weights = 2 * (sizes.body + 2 * sizes.head)
    return int((share * gpu - weights - 2e9) / (4 * sizes.layers * sizes.kv_width))


def _prompts(length: int, count: int) -> list[list[int]]:
    """Prompts that share nothing, which is the worst case."""
    return [[number, *([2] * (length - 1))] for number in range(count)]


def _model(sizes: Sizes, layers: int, dtype: str):
    config = AutoConfig.for_model(**sizes.config(layers))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    use_blocks(model)
    return model


def _materialise(model, peak: _Peak) -> float:
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


def _line(few: float, more: float):
    """The line through two counts of layers, a function of the number of layers."""
    slope = (more - few) / (LAYERS[1] - LAYERS[0])
    return lambda layers: few + slope * (layers - LAYERS[0])


def of_config(config: Config, sizes: dict[str, Sizes], prompt: int = 450) -> dict[str, dict[str, Memory]]:
    """Memory of each model's trainings and readings at a configuration's settings: {model: {stage: Memory}}.

    sizes: by model; equal ones are computed once. prompt: tokens of a prompt; the budgets of the batches matter, not this.
    """
    known: dict[Sizes, dict[str, Memory]] = {}
    trained, engine = config.training, config.engine
    for one in sizes.values():
        if one not in known:
            known[one] = {
                stage: training(one, trained, config.dtype, stage, trained.micro_batch_tokens, prompt)
                for stage in TRIES
            } | {"reading": reading(one, config.dtype, engine.batch_tokens, prompt)}
    return {name: known[one] for name, one in sizes.items()}


def text(config: Config, sizes: dict[str, Sizes]) -> str:
    """`of_config` in lines, with what vllm can keep in its cache on GPUs of three sizes."""
    rows = [
        "Memory of one GPU at the peak, in GB (counted by torch on tensors without contents; CUDA takes 1 to 2 more):"
    ]
    gpus = config.training.gpus
    for name, stages in of_config(config, sizes).items():
        shown = ", ".join(f"{stage} {one.total / 1e9:.1f}" for stage, one in stages.items())
        rows.append(f"  {name}: {shown} (weights {stages['sft'].weights / 1e9:.1f})")
        if gpus > 1:
            shared = max(stages[stage].sharded(gpus, sizes[name].layers) for stage in TRIES)
            rows.append(
                f"    a training with its weights spread over training.gpus, {gpus}: {shared / 1e9:.1f} on each"
            )
        share = config.engine.gpu_memory_utilization
        room = {size: cache_tokens(sizes[name], size * 1e9 * max(1, config.gpus), share) for size in (24, 40, 80)}
        kept = ", ".join(f"{max(0, tokens):,} at {size} GB" for size, tokens in room.items())
        rows.append(f"    vllm takes {share:.0%} of the GPU; tokens in its cache: {kept}")
    return "\n".join(rows)
