"""Keys and values that the configuration once had, and what to do instead. `*` stands for any name."""

import re
from collections.abc import Iterator
from typing import Any

REMOVED = {
    "engine.batch_size": "set engine.batch_tokens",
    "sft.micro_batch_size": "set training.micro_batch_tokens",
    "dpo.micro_batch_size": "set training.micro_batch_tokens",
    "training.micro_batch_tokens: auto": "give a number; out of memory, a training on one GPU takes half of it",
    "training.shared_prefix": "shared prefixes are always computed once",
    "training.launch": "torchrun reads its options from the environment, such as PET_MAX_RESTARTS=1",
    "dpo.anchor": "the loss is DPO's alone",
    "engine.max_num_seqs": "vllm's own number; engine.gpu_memory_utilization bounds its memory",
    "evaluation.engine": "transformers reads the confidences",
    "datasets.*.grading: judge": "write grader",
    "datasets.*.grading: both": "write grader; disagreements.jsonl lists where the exact grade differs",
    "grading.prefer": "the grader's grade counts; grading: exact takes the task's",
    "grading.group: judge": "write grader",
    "similarity": "eigv, degree, eccentricity and kle compare the words of the samples",
}


def problems(config: dict[str, Any], above: str = "") -> Iterator[str]:
    """One line for each removed key (`a.b`) and each removed value (`a.b: value`, or an item of a list) of a configuration."""
    for name, value in config.items():
        key = f"{above}{name}"
        for found in (key, *(f"{key}: {one}" for one in (value if isinstance(value, list) else [value]))):
            for pattern, instead in REMOVED.items():
                if re.fullmatch(re.escape(pattern).replace(r"\*", r"[^.]+"), found):
                    yield f"{found} was removed; {instead}"
        if isinstance(value, dict):
            yield from problems(value, f"{key}.")
