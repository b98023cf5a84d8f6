"""Sampling with vllm, the engine of the paper's scale: continuous batching, n samples on one cached prompt.

A sample's seed is its prompt's seed plus its number, inside vllm; ours are hashes, so prompts do not share streams.
Texts can still depend on the batch where kernels do; VLLM_BATCH_INVARIANT=1 removes that at some cost in speed.
"""

import os

from orce import language_model
from orce.chat import end_ids, prompt_ids
from orce.files import BadInput

CPU_BLOCK = 32  # vllm's own 128 would let prompts shorter than that share nothing
SEED_LIMIT = 2**31


def load(settings: dict) -> "Engine":
    return Engine(settings)


class Engine:
    def __init__(self, settings: dict):
        place, revision = language_model.origin(settings["source"])
        options = {
            "model": place,
            "revision": revision,
            "dtype": settings["dtype"],
            "max_model_len": settings.get("max_model_len"),
            "enable_prefix_caching": True,
            "seed": 0,
        }
        if settings["device"] == "cpu":
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
            # Seeded requests need whole prompts on the CPU: its generator cannot go on in the middle of one.
            options |= {"enforce_eager": True, "block_size": CPU_BLOCK, "enable_chunked_prefill": False}
        else:
            options["gpu_memory_utilization"] = settings["gpu_memory_utilization"]
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        try:
            from vllm import LLM
        except ImportError as error:
            raise BadInput(f"engine.name: vllm is not installed ({error}); install envs/gpu.txt") from None
        from transformers import AutoTokenizer, GenerationConfig

        self.llm = LLM(**options)
        self.tokenizer = AutoTokenizer.from_pretrained(place, revision=revision)
        self.ends = end_ids(self.tokenizer, GenerationConfig.from_pretrained(place, revision=revision))
        self.template_kwargs = settings.get("template_kwargs") or {}

    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0) -> list[list[str]]:
        """See orce.engines. temperature 0 is greedy: one text, n times."""
        from vllm import SamplingParams

        ids = [{"prompt_token_ids": prompt_ids(self.tokenizer, m, self.template_kwargs)} for m in prompts]
        drawn = 1 if temperature == 0 else n
        params = [
            SamplingParams(
                n=drawn,
                temperature=temperature,
                top_p=top_p,
                max_tokens=max_tokens,
                seed=seed % SEED_LIMIT,
                stop_token_ids=sorted(self.ends),
            )
            for seed in seeds
        ]
        outputs = self.llm.generate(ids, params, use_tqdm=False)
        texts = [[completion.text for completion in output.outputs] for output in outputs]
        return [row * n if temperature == 0 else row for row in texts]
