"""Sampling with vllm, the engine for the paper's scale: continuous batching, n samples from one
cached prompt.

vllm seeds a sample by its prompt's seed plus its number. Our seeds are hashes, so prompts do not
share streams. Texts can still depend on the batch where kernels do; VLLM_BATCH_INVARIANT=1 removes
that at some cost in speed.

vllm runs inside this process (VLLM_ENABLE_V1_MULTIPROCESSING=0). Its errors then arrive unchanged,
its scheduling is reproducible, and none of its processes outlives the step, however the step ends.
"""

import ctypes
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from orce.errors import BadInput
from orce.llm import language_model
from orce.llm.chat import Messages, prompts_ids
from orce.llm.engines import Text
from orce.settings.stage import Model, from_mapping

# tokens; with vllm's default of 128, prompts with a shorter common prefix would share nothing
CPU_BLOCK = 32
CPU_BATCH = 4096  # tokens of one forward pass on the CPU, vllm's default
# so large that the ranges [seed, seed + n) of two prompts do not meet; vllm keeps 64 bits
SEED_LIMIT = 2**62
# vllm's advice, about its own options
ADVICE = re.compile(r"\.\s+(?:Try|To allow|To resolve|Decrease|Reduce|See)\b")
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}


class VllmModel(Model, kw_only=True):
    """A model with the options of vllm that a configuration has."""

    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.9


def longest(
    settings: Mapping[str, Any], prompts: Iterable[Messages], max_tokens: int
) -> int | None:
    """Longest prompt plus max_tokens, in tokens, rounded up to a power of two; None if there are no
    prompts.

    The rounding lets vllm find the graphs that it compiled for another job. No weights are loaded.
    Raises BadInput naming the prompt if that exceeds the model's own context.
    """
    prompts = list(prompts)
    if not prompts:
        return None
    lengths = language_model.prompt_lengths(settings, prompts)
    context = _context(settings["source"])
    _check_lengths(prompts, lengths, max_tokens, context, "a context")
    return min(context, 1 << (max(lengths) + max_tokens - 1).bit_length())


def _check_lengths(
    prompts: Sequence[Messages], lengths: list[int], max_tokens: int, limit: int, what: str
) -> None:
    """Raises BadInput for a prompt that leaves too little room: vllm would cut its answer short
    without a word.
    """
    for messages, length in zip(prompts, lengths, strict=True):
        if length + max_tokens > limit:
            raise BadInput(
                f"the prompt that begins {messages[-1]['content'][:60]!r} has {length} tokens and needs {max_tokens} "
                f"more, beyond {what} of {limit}; leave it out, allow fewer tokens for the answer, or take a model with "
                "a longer context"
            )


def _context(source) -> int:
    return language_model.config_of(source).get_text_config().max_position_embeddings


def start(settings: VllmModel | Mapping[str, Any], longest: int | None):
    """A vllm.LLM of the model in `settings`. Raises BadInput if it does not start."""
    settings = from_mapping(VllmModel, settings)
    if settings.device == "cpu":
        _check_libnuma()
    options = _options(settings, settings.max_model_len or longest)
    # not every model of vllm asks whether it got all of its weights
    language_model.check_weights(settings.source)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from vllm import LLM
    except ImportError as error:
        raise BadInput(
            f"engine.name: vllm is not installed ({error}); install envs/gpu.txt"
        ) from None
    try:
        return LLM(**options)
    except (ValueError, RuntimeError) as error:
        _clean_up()
        message = _words(error)
        if not isinstance(error, ValueError) and "memory" not in message:
            raise
        raise BadInput(
            f"vllm does not start with {options['model']}: {message}{_advice(message, options)}"
        ) from None


def _options(settings: VllmModel, max_model_len: int | None) -> dict:
    path, revision = language_model.origin(settings.source)
    options = {
        "model": path,
        "revision": revision,
        "dtype": settings.dtype,
        "max_model_len": max_model_len,
        "seed": 0,
        "enable_prefix_caching": True,
        "trust_remote_code": False,
        "load_format": "safetensors",
    }
    if settings.device == "cpu":
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        return options | {
            "enforce_eager": True,
            "block_size": CPU_BLOCK,
            # Seeded requests need whole prompts here: the random generator cannot resume in the
            # middle of one.
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(CPU_BATCH, max_model_len or _context(settings.source)),
        }
    device = torch.device(settings.device)
    if device.index:
        raise BadInput(
            f"engine vllm takes the first visible GPU, not {device}; set CUDA_VISIBLE_DEVICES to the GPU to use before "
            "Python starts, and name no device"
        )
    gpus = max(1, torch.cuda.device_count()) if device.index is None else 1  # all for `cuda`
    return options | {
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "tensor_parallel_size": gpus,
    }


def _check_libnuma() -> None:
    """Without the library vllm's CPU build would end in an AttributeError of its own."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError as error:
        raise BadInput(
            f"engine.name: vllm on the CPU needs libnuma ({error}); apt-get install libnuma1"
        ) from None


def _words(error: Exception) -> str:
    """vllm's complaint with its figures, on one line, without its advice, which names options of
    its own.
    """
    problems = getattr(error, "errors", list)()  # pydantic's list of what is wrong with the options
    messages = [problem["msg"].removeprefix("Value error, ") for problem in problems]
    message = "; ".join(messages) or str(error)
    return ADVICE.split(" ".join(message.split()))[0].rstrip(".")


def _advice(message: str, options: dict) -> str:
    length = f"lower engine.max_model_len (here {options['max_model_len'] or 'the whole context of the model'})"
    if "memory" not in message:
        return f". Perhaps {length}" if "max_model_len" in message else ""
    if "gpu_memory_utilization" not in options:
        return f". Change VLLM_CPU_KVCACHE_SPACE (GiB, here {os.environ['VLLM_CPU_KVCACHE_SPACE']}) or {length}"
    return (
        f". Change engine.gpu_memory_utilization (here {options['gpu_memory_utilization']}; lower if other processes use the "
        f"GPU, else higher), {length}, raise gpus (here {options['tensor_parallel_size']}) or choose a 16-bit dtype"
    )


def _clean_up() -> None:
    from vllm.distributed import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()


class Engine:
    """See orce.llm.engines; `longest` sizes the context unless engine.max_model_len does."""

    def __init__(self, settings: Mapping[str, Any], longest: int | None = None):
        model = from_mapping(VllmModel, settings)
        self.template_kwargs = model.template_kwargs or {}
        self.tokenizer, self.ends = language_model.vocabulary(model.source, self.template_kwargs)
        self.llm: Any = start(model, longest)

    def generate(
        self,
        prompts: Sequence[Messages],
        n: int,
        temperature: float,
        max_tokens: int,
        seeds: Sequence[int],
        top_p=1.0,
    ) -> list[list[str]]:
        from vllm import SamplingParams

        if not n:  # which SamplingParams refuses
            return [[] for _ in prompts]
        ids = prompts_ids(self.tokenizer, prompts, self.template_kwargs)
        limit = self.llm.model_config.max_model_len
        lengths = list(map(len, ids))
        _check_lengths(prompts, lengths, max_tokens, limit, "engine.max_model_len or a context")
        # Greedy decoding gives the same text n times, and is asked for once.
        samples = 1 if temperature == 0 else n
        params = [
            SamplingParams(
                n=samples,
                temperature=temperature,
                top_p=top_p,
                max_tokens=max_tokens,
                seed=seed % SEED_LIMIT,
                stop_token_ids=sorted(self.ends),
                detokenize=False,
            )
            for seed in seeds
        ]
        asked = [{"prompt_token_ids": tokens} for tokens in ids]
        outputs = self.llm.generate(asked, params, use_tqdm=False)
        return [[*map(self._text, output.outputs)] * (n // samples) for output in outputs]

    def _text(self, completion) -> str:
        """Without the tokens that ended it."""
        tokens = [token for token in completion.token_ids if token not in self.ends]
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return Text(text, cut=completion.finish_reason == "length")

    def close(self) -> None:
        if self.llm is not None:
            self.llm.llm_engine.engine_core.shutdown()
            self.llm = None
            _clean_up()


load = Engine
