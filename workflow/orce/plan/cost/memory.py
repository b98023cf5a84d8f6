"""Memory of one GPU at its peak, without a GPU, of a model by its sizes (orce.training.micro_batches has the training's own)."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from orce.config import settings
from orce.config.schema import Config, Training
from orce.judging.reader import trie_logits
from orce.llm.kv_cache import KVCache
from orce.llm.trie import TokenTrie
from orce.plan.cost.flops import Sizes
from orce.runtime import startup
from orce.runtime.speed import AUTO
from orce.training import micro_batches

with startup.without_unused():
    from transformers import AutoConfig


def shape(sizes: Sizes) -> micro_batches.Shape:
    return micro_batches.Shape(lambda layers: AutoConfig.for_model(**sizes.config(layers)), sizes.layers)


def training(
    sizes: Sizes, training: Training, dtype: str, stage: str, tokens: int, prompt: int
) -> micro_batches.Memory:
    """See orce.training.micro_batches; training: the config's section."""
    return micro_batches.training(shape(sizes), settings.trainer(training), dtype, stage, tokens, prompt)


def micro_batch_tokens(sizes: Sizes, training: Training, dtype: str, stage: str, prompt: int, gpu: float | None) -> int:
    """Tokens of a training's micro-batch on a GPU of `gpu` bytes, or on a CPU; training: the config's section."""
    chosen, shards = training.micro_batch_tokens, training.gpus if training.shard else 1
    return micro_batches.sized(chosen, shape(sizes), settings.trainer(training), dtype, stage, prompt, gpu, shards)


def reading(sizes: Sizes, dtype: str, tokens: int, prompt: int) -> micro_batches.Memory:
    """Memory of reading confidences from batches of `tokens` tokens of prompts with `prompt` tokens each."""
    trie = TokenTrie.of(micro_batches.TRIES["conftuner"])
    prompts = micro_batches.distinct(prompt, max(1, tokens // (prompt + len(trie.inner))))

    def run(layers: int) -> tuple[float, float]:
        model = micro_batches.empty(shape(sizes), layers, dtype).eval()
        with FakeTensorMode(), micro_batches.Peak() as peak, torch.inference_mode():
            weights = micro_batches.materialise(model, peak)
            trie_logits(KVCache(model, prompts), trie)
            return weights, peak.most - weights

    weights, others = (micro_batches.line(*pair) for pair in zip(*map(run, micro_batches.LAYERS), strict=True))
    return micro_batches.Memory(weights(sizes.layers), weights(sizes.layers) + others(sizes.layers))


def cache_tokens(sizes: Sizes, gpu: float, share: float) -> int:
    """Tokens that vllm can keep on a GPU of `gpu` bytes of which it takes `share`, with 2 GB for a forward pass."""
    weights = 2 * (sizes.body + 2 * sizes.head)
    return int((share * gpu - weights - 2e9) / (4 * sizes.layers * sizes.kv_width))


def of_config(
    config: Config, sizes: dict[str, Sizes], gpu: float | None, prompt: int = 450
) -> dict[str, dict[str, tuple[micro_batches.Memory, int]]]:
    """Memory of each model's stages at a configuration's settings, and the tokens of a batch: {model: {stage: ...}}.

    sizes: by model; equal ones are computed once. gpu: bytes of a GPU, None on a CPU. prompt: tokens of a prompt; the budgets of the batches
    matter, not this.
    """
    known: dict[Sizes, dict[str, tuple[micro_batches.Memory, int]]] = {}
    trained, dtype, read = config.training, config.dtype, config.engine.batch_tokens
    for one in sizes.values():
        if one not in known:
            tokens = {
                stage: micro_batch_tokens(one, trained, dtype, stage, prompt, gpu) for stage in micro_batches.TRIES
            }
            known[one] = {
                stage: (training(one, trained, dtype, stage, count, prompt), count) for stage, count in tokens.items()
            } | {"reading": (reading(one, dtype, read, prompt), read)}
    return {name: known[one] for name, one in sizes.items()}


def text(config: Config, sizes: dict[str, Sizes], gpu: float | None) -> str:
    """`of_config` in lines, with what vllm can keep in its cache on GPUs of three sizes."""
    counted = "counted by torch on tensors without contents; CUDA takes 1 to 2 more"
    rows = [f"Memory of one GPU at the peak, in GB ({counted}), and the tokens of a batch:"]
    gpus = config.training.gpus
    for name, stages in of_config(config, sizes, gpu).items():
        shown = ", ".join(f"{stage} {one.total / 1e9:.1f} ({tokens:,})" for stage, (one, tokens) in stages.items())
        rows.append(f"  {name}: {shown}; weights {stages['sft'][0].weights / 1e9:.1f}")
        if gpus > 1:
            shared = max(stages[stage][0].sharded(gpus, sizes[name].layers) for stage in micro_batches.TRIES)
            rows.append(
                f"    a training with its weights spread over training.gpus, {gpus}: {shared / 1e9:.1f} on each"
            )
        share = config.engine.gpu_memory_utilization
        room = {size: cache_tokens(sizes[name], size * 1e9 * max(1, config.gpus), share) for size in (24, 40, 80)}
        kept = ", ".join(f"{max(0, tokens):,} at {size} GB" for size, tokens in room.items())
        rows.append(f"    vllm takes {share:.0%} of the GPU; tokens in its cache: {kept}")
    if gpu and config.training.micro_batch_tokens == AUTO:
        rows.append(f"  training.micro_batch_tokens is auto: as many as a GPU of {gpu / 1e9:.0f} GB has room for.")
    return "\n".join(rows)
