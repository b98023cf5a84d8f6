"""The greedy answers of a split, which confidences are stated in."""

from typing import Any

from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Example, Sample
from orce.tasks.parts.prompt_files import read_prompts


def items(prompts: str, samples: str, split: str = "test") -> list[tuple[Example, Sample]]:
    """(example, record of samples.jsonl) of every example of a split; `prompts` and `samples` are the two files.

    Raises BadInput for an example without a greedy answer.
    """
    examples = read_prompts(prompts)
    sampled = store.read(samples, ("id", "split", "answers"))
    found: dict[str, Any] = {record["id"]: record for record in sampled if record["split"] == split}
    missing = [example["id"] for example in examples if "greedy" not in found.get(example["id"], {})]
    if missing:
        raise BadInput(f"{samples}: no greedy answer for {split} id {missing[0]!r}; sample it again")
    return [(example, found[example["id"]]) for example in examples]


def record(example: Example, sampled: Sample, confidence: float | None) -> dict:
    """The record of confidences.jsonl for a confidence in the greedy answer."""
    greedy = {key: sampled["greedy"][key] for key in ("answer", "correct", "f1")}
    return {"id": example["id"]} | greedy | {"confidence": confidence, "raw": sampled["greedy"]["raw"]}
