"""Real MMLU questions, one a subject, put into the cache: batches of similar length against one of all."""

from pathlib import Path

import torch

from benchmarks.timing import Row, compare
from orce import tasks
from orce.llm import batches, language_model
from orce.llm.chat import prompt_ids
from orce.llm.kv_cache import KVCache

TITLE = "57 MMLU questions prefilled, the prefix that all share once: batches of similar length"
MMLU = Path(__file__).parents[2] / "tests" / "data" / "mmlu"


def run(options) -> list[Row]:
    torch.set_num_threads(options.threads)
    lm = language_model.load({"source": {"path": options.model}, "dtype": "float32", "device": "cpu"})
    task = tasks.get("mmlu")
    ids = [prompt_ids(lm.tokenizer, task.prompt(example)) for example in task.load({"path": str(MMLU)}, "test")]
    lengths = sorted(map(len, ids))
    ordered = sorted(ids, key=len)
    sixteens = [ordered[at : at + 16] for at in range(0, len(ordered), 16)]
    similar = [[ids[i] for i in batch] for batch in batches.padded(ids, 100_000)]
    yield compare(
        "against batches of 16, sorted by length",
        lambda: prefill(lm.model, similar),
        lambda: prefill(lm.model, sixteens),
        options.repeats,
        notes={"tokens of a prompt": f"{lengths[0]} to {lengths[-1]}, median {lengths[len(ids) // 2]}"},
    )
    yield compare(
        "against one batch of all",
        lambda: prefill(lm.model, similar),
        lambda: prefill(lm.model, [ids]),
        options.repeats,
        notes={"tokens of a prompt": f"{lengths[0]} to {lengths[-1]}, median {lengths[len(ids) // 2]}"},
    )


def prefill(model, batches: list[list[list[int]]]) -> None:
    for batch in batches:
        KVCache(model, batch)
