"""The greedy answers of a split, which confidences are stated in."""

from typing import Any

from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Confidence, Example, Sample
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


def record(example: Example, sampled: Sample, confidence: float | None) -> Confidence:
    """The record of a confidence in the greedy answer."""
    return of_greedy(example, sampled, confidence, sampled["greedy"]["raw"])


def of_greedy(example: Example, sampled: Sample, confidence: float | None, raw: str) -> Confidence:
    """The same, read from `raw`."""
    greedy = sampled["greedy"]
    return Confidence(
        id=example["id"],
        answer=greedy["answer"],
        correct=greedy["correct"],
        f1=greedy["f1"],
        confidence=confidence,
        raw=raw,
    )
