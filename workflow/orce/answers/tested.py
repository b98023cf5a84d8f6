"""The greedy answers of a split, which confidences are stated in."""

from typing import cast

from msgspec import UNSET

from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Confidence, Example, Sample, Tested
from orce.tasks.parts.prompt_files import read_prompts


def items(prompts: str, samples: str, split: str = "test") -> list[tuple[Example, Tested]]:
    """(example, record of samples.jsonl) of every example of a split; `prompts` and `samples` are the two files.

    Raises BadInput for an example without a greedy answer.
    """
    examples = read_prompts(prompts)
    sampled = [record for record in store.records(samples, Sample) if record.split == split]
    found = {record.id: cast(Tested, record) for record in sampled if record.greedy is not UNSET}
    missing = [example["id"] for example in examples if example["id"] not in found]
    if missing:
        raise BadInput(f"{samples}: no greedy answer for {split} id {missing[0]!r}; sample it again")
    return [(example, found[example["id"]]) for example in examples]


def record(example: Example, sampled: Tested, confidence: float | None) -> Confidence:
    """The record of a confidence in the greedy answer."""
    return Confidence.of(example, sampled.greedy, confidence, sampled.greedy.raw)
