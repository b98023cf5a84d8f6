"""ReClor (Yu et al., 2020): logical reasoning from GMAT and LSAT, four options; 4,638 / 500 questions with labels."""

from collections.abc import Mapping
from typing import Any

from orce.artefacts.tables import Row, read_json
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
from orce.tasks.parts.source import find, text_field, unique_ids

__all__ = [
    "ANSWER_KIND", "MAX_TOKENS", "METRIC", "NEEDS", "display", "extract", "key", "load", "prompt", "question", "score",
]  # fmt: skip
SPLITS = {"train": "train", "validation": "val", "val": "val", "dev": "val", "test": "test"}


def load(source: Mapping[str, Any], split: str, seed: int = 0) -> list[Example]:
    """Examples of a split: train or validation (the labels of test are hidden). `seed` has no effect.

    The source is {hub: tasksource/reclor or community-datasets/reclor} or {path}: a folder with {train,val}.json as
    published, a list of {context, question, answers, label, id_string}. A missing id becomes the row's number, as in
    the published ids. Raises BadInput naming the item that is wrong.
    """
    if split not in SPLITS:
        raise BadInput(f"ReClor has no split {split!r}; splits are train, validation, test")
    name = SPLITS[split]
    if "hub" in source:
        rows = from_hub(source, {"val": "validation"}.get(name, name))
    else:
        path = find(source, [f"{name}.json"])
        items = read_json(path)
        if not isinstance(items, list) or not items:
            raise BadInput(f"{path}: expected a list of questions, found {type(items).__name__} of no items")
        rows = [(f"{path}, item {i}", item) for i, item in enumerate(items)]
    return unique_ids([_example(row, name, i) for i, row in enumerate(rows)], [where for where, _ in rows])


def _example(row: Row, split: str, place: int) -> Example:
    choices = multiple_choice.options(row, "answers")
    return {
        # The published ids are train_0, train_1, ...; copies on the hub may lack them.
        "id": f"{split}_{place}" if row[1].get("id_string") is None else text_field(row, "id_string"),
        "question": text_field(row, "question"),
        "context": text_field(row, "context"),
        "choices": choices,
        "reference": multiple_choice.reference(row, "label", choices) if "label" in row[1] else _hidden(row),
    }


def _hidden(row: Row):
    raise BadInput(f"{row[0]}: no 'label'; the benchmark hides the labels of its test set, use train or validation")
