"""Real MMLU questions, one a subject, put into the cache: batches of similar length against one of all."""

from pathlib import Path

import torch

from benchmarks.timing import Row, compare
from orce import tasks
from orce.llm import language_model
from orce.llm.chat import prompt_ids
from orce.llm.kv_cache import Prefilled

TITLE = "57 MMLU questions prefilled: batches of similar length against one batch of all"
MMLU = Path(__file__).parents[2] / "tests" / "data" / "mmlu"


def run(options) -> list[Row]:
    torch.set_num_threads(options.threads)
    lm = language_model.load({"source": {"path": options.model}, "dtype": "float32", "device": "cpu"})
    task = tasks.get("mmlu")
    ids = [prompt_ids(lm.tokenizer, task.prompt(example)) for example in task.load({"path": str(MMLU)}, "test")]
    similar = [[ids[i] for i in batch] for batch in language_model.by_length(ids, len(ids))]
    lengths = sorted(map(len, ids))
    yield compare(
        "after the beginning that all share",
        lambda: prefill(lm.model, similar),
        lambda: prefill(lm.model, [ids]),
        options.repeats,
        notes={"tokens of a prompt": f"{lengths[0]} to {lengths[-1]}, median {lengths[len(ids) // 2]}"},
    )


def prefill(model, batches: list[list[list[int]]]) -> None:
    for batch in batches:
        Prefilled(model, batch)
