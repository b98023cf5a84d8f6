"""Sampling with vllm, the engine of the paper's scale: continuous batching, n samples on one cached prompt.

A sample's seed is its prompt's seed plus its number, inside vllm; ours are hashes, so prompts do not share streams.
Texts can still depend on the batch where kernels do; VLLM_BATCH_INVARIANT=1 removes that at some cost in speed.

vllm runs inside this process (VLLM_ENABLE_V1_MULTIPROCESSING=0), so that its errors arrive here in its own words, its
scheduling repeats, and no process of it outlives the step, however that ends.
"""

import os
import re
from collections.abc import Iterable

from orce.llm import language_model
from orce.llm.chat import end_ids, prompt_ids
from orce.runtime.files import BadInput

CPU_BLOCK = 32  # vllm's own 128 would let prompts shorter than that share nothing
CPU_BATCH = 4096  # vllm's own tokens of a forward pass on the CPU
SEED_LIMIT = 2**62  # so many that the ranges [seed, seed + n) of two prompts do not meet; vllm keeps 64 bits
STEP = 64  # tokens; context lengths are rounded up to its multiples
ADVICE = re.compile(r"\.\s+(?:Try|To allow|To resolve|Decrease|Reduce|See)\b")  # what vllm says of its own options


def load(settings: dict, longest: int | None = None) -> "Engine":
    """See orce.llm.engines; `longest` sizes the context where engine.max_model_len does not."""
    return Engine(settings, longest)


def longest(settings: dict, prompts: Iterable, max_tokens: int) -> int | None:
    """Tokens of the longest of `prompts` (chat messages) and of the `max_tokens` behind it; no model is loaded.

    None if there are no prompts.

    Raises BadInput naming the prompt if that is more than the model's own context.
    """
    prompts = list(prompts)
    if not prompts:
        return None
    tokenizer, own = vocabulary(settings)[0], _context(settings)
    template_kwargs = settings.get("template_kwargs") or {}
    lengths = [len(prompt_ids(tokenizer, messages, template_kwargs)) for messages in prompts]
    worst = max(range(len(prompts)), key=lengths.__getitem__)
    _fits(prompts[worst], lengths[worst], max_tokens, own, "a context")
    return min(own, -(-(lengths[worst] + max_tokens) // STEP) * STEP)


def check_lengths(prompts: list, ids: list[list[int]], max_tokens: int, limit: int) -> None:
    """Raises BadInput for a prompt that leaves no room: vllm would cut its answer short without a word."""
    for messages, one in zip(prompts, ids, strict=True):
        _fits(messages, len(one), max_tokens, limit, "engine.max_model_len or a context")


def _fits(messages, length: int, max_tokens: int, limit: int, what: str) -> None:
    if length + max_tokens > limit:
        raise BadInput(
            f"the prompt that begins {messages[-1]['content'][:60]!r} has {length} tokens and needs {max_tokens} behind "
            f"it, more than {what} of {limit}; leave it out, allow fewer tokens for the answer, or take a model with a "
            "longer context"
        )


def vocabulary(settings: dict) -> tuple[object, set[int]]:
    """The model's tokenizer, and the ids that end a turn."""
    from transformers import AutoTokenizer, GenerationConfig

    place, revision = language_model.origin(settings["source"])
    tokenizer = AutoTokenizer.from_pretrained(place, revision=revision)
    try:
        generation = GenerationConfig.from_pretrained(place, revision=revision)
    except OSError:  # a model need not have one
        generation = GenerationConfig.from_model_config(_config(settings))
    return tokenizer, end_ids(tokenizer, generation)


def _config(settings: dict):
    from transformers import AutoConfig

    place, revision = language_model.origin(settings["source"])
    return AutoConfig.from_pretrained(place, revision=revision)


def _context(settings: dict) -> int:
    return _config(settings).get_text_config().max_position_embeddings


def start(settings: dict, longest: int | None, **more):
    """A vllm.LLM of the model in `settings`, with further arguments `more`. Raises BadInput if it does not fit."""
    options = _options(settings, settings.get("max_model_len") or longest) | more
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    try:
        from vllm import LLM
    except ImportError as error:
        raise BadInput(f"engine.name: vllm is not installed ({error}); install envs/gpu.txt") from None
    try:
        return LLM(**options)
    except (ValueError, RuntimeError) as error:
        _clean_up()
        said = words(error)
        if not isinstance(error, ValueError) and "memory" not in said:
            raise
        raise BadInput(f"vllm does not start with {options['model']}: {said}{_advice(said, options)}") from None


def _options(settings: dict, max_model_len: int | None) -> dict:
    place, revision = language_model.origin(settings["source"])
    options = {
        "model": place,
        "revision": revision,
        "dtype": settings["dtype"],
        "max_model_len": max_model_len,
        "enable_prefix_caching": True,
        "seed": 0,
    }
    if settings["device"] == "cpu":
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        # Seeded requests need whole prompts on the CPU: its generator cannot go on in the middle of one.
        batch = max(CPU_BATCH, max_model_len or _context(settings))
        whole = {"enable_chunked_prefill": False, "max_num_batched_tokens": batch}
        return options | {"enforce_eager": True, "block_size": CPU_BLOCK} | whole
    import torch

    memory = {"gpu_memory_utilization": settings.get("gpu_memory_utilization", 0.9)}
    return options | memory | {"tensor_parallel_size": max(1, torch.cuda.device_count())}


def words(error: Exception) -> str:
    """What vllm complains of, with its figures, on one line; what to do about it is ours to say."""
    problems = error.errors() if hasattr(error, "errors") else []  # pydantic's list of what is wrong with the options
    said = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in problems) or str(error)
    return ADVICE.split(" ".join(said.split()))[0].rstrip(".")


def _advice(said: str, options: dict) -> str:
    length = f"lower engine.max_model_len (here {options['max_model_len'] or 'the whole context of the model'})"
    if "memory" not in said:
        return f". Perhaps {length}" if "max_model_len" in said else ""
    if "gpu_memory_utilization" not in options:
        return f". Change VLLM_CPU_KVCACHE_SPACE (GiB, here {os.environ['VLLM_CPU_KVCACHE_SPACE']}) or {length}"
    return (
        f". Change engine.gpu_memory_utilization (here {options['gpu_memory_utilization']}; lower if other processes "
        f"use the GPU, else higher), {length}, raise gpus (here {options['tensor_parallel_size']}) or choose a "
        "16-bit dtype"
    )


def stop(owner) -> None:
    """Free what `owner.llm` holds, so that another may start in this process; `owner` lets go of it."""
    if owner.llm is not None:
        owner.llm.llm_engine.engine_core.shutdown()
        owner.llm = None
        _clean_up()


def _clean_up() -> None:
    from vllm.distributed import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()


class Engine:
    def __init__(self, settings: dict, longest: int | None = None):
        self.llm = start(settings, longest)
        self.tokenizer, self.ends = vocabulary(settings)
        self.template_kwargs = settings.get("template_kwargs") or {}

    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0) -> list[list[str]]:
        """See orce.llm.engines. temperature 0 is greedy: one text, n times."""
        from vllm import SamplingParams

        ids = [prompt_ids(self.tokenizer, messages, self.template_kwargs) for messages in prompts]
        check_lengths(prompts, ids, max_tokens, self.llm.model_config.max_model_len)
        drawn = 1 if temperature == 0 else n
        params = [
            SamplingParams(
                n=drawn,
                temperature=temperature,
                top_p=top_p,
                max_tokens=max_tokens,
                seed=seed % SEED_LIMIT,
                stop_token_ids=sorted(self.ends),
                detokenize=False,
            )
            for seed in seeds
        ]
        outputs = self.llm.generate([{"prompt_token_ids": one} for one in ids], params, use_tqdm=False)
        texts = [decoded(self.tokenizer, self.ends, output.outputs) for output in outputs]
        return [row * n if temperature == 0 else row for row in texts]

    def close(self) -> None:
        """Stop vllm and free its memory."""
        stop(self)


def decoded(tokenizer, ends: set[int], completions) -> list[str]:
    """Texts of vllm's completions, without the token that ended each."""
    tokens = [[token for token in one.token_ids if token not in ends] for one in completions]
    return tokenizer.batch_decode(tokens, skip_special_tokens=True)
