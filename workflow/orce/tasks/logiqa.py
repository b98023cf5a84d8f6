"""LogiQA 2.0 (Liu et al., 2023): logical reasoning over a passage, four options; 12,567 / 1,569 / 1,572 questions."""

from collections.abc import Mapping
from typing import Any

from orce.artefacts.files import read_jsonl, unique
from orce.artefacts.tables import Row
from orce.errors import BadInput
from orce.records import Example
from orce.tasks.parts import multiple_choice
from orce.tasks.parts.hub import from_hub
from orce.tasks.parts.multiple_choice import (
    ANSWER_KIND,
    MAX_TOKENS,
    METRIC,
    NEEDS,
    display,
    extract,
    key,
    prompt,
    question,
    score,
)
from orce.tasks.parts.source import find, text_field

__all__ = [
    "ANSWER_KIND", "MAX_TOKENS", "METRIC", "NEEDS", "display", "extract", "key", "load", "prompt", "question", "score",
]  # fmt: skip
SPLITS = {"train": "train", "validation": "dev", "dev": "dev", "val": "dev", "test": "test"}


def load(source: Mapping[str, Any], split: str, seed: int = 0) -> list[Example]:
    """Examples of a split: train, validation or test. `seed` has no effect.

    The source is {hub: baber/logiqa2} or {path}: a folder with {train,dev,test}.txt or .jsonl as published, JSON
    lines {id, text, question, options, answer}, or one such file. A missing id becomes the row's number. Raises
    BadInput naming the line that is wrong.
    """
    if split not in SPLITS:
        raise BadInput(f"LogiQA has no split {split!r}; splits are train, validation, test")
    name = SPLITS[split]
    if "hub" in source:
        rows = from_hub(source, {"dev": "validation"}.get(name, name), "logiqa2")
    else:
        path = find(source, [f"{name}.txt", f"{name}.jsonl"])
        rows = [(f"{path}, line {i}", record) for i, record in enumerate(read_jsonl(path, hook=unique), 1)]
    seen: dict[str, int] = {}
    return [_example(row, name, i, seen) for i, row in enumerate(rows)]


def _example(row: Row, split: str, place: int, seen: dict[str, int]) -> Example:
    choices = multiple_choice.options(row, "options")
    # Published ids repeat within a split: repeats get a suffix -2, -3, .... Copies without ids are numbered by row.
    own = f"{split}-{place if row[1].get('id') is None else row[1]['id']}"
    seen[own] = seen.get(own, 0) + 1
    return {
        "id": own if seen[own] == 1 else f"{own}-{seen[own]}",
        "question": text_field(row, "question"),
        "context": text_field(row, "text"),
        "choices": choices,
        "reference": multiple_choice.reference(row, "answer", choices),
    }
