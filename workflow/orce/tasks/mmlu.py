"""MMLU (Hendrycks et al., 2021): 57 subjects, four options. Test: 14,042 questions; auxiliary_train: 99,842."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orce.artefacts.tables import Row, read_text
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
from orce.tasks.parts.source import folder, text_field, unique_ids

__all__ = [
    "ANSWER_KIND", "MAX_TOKENS", "METRIC", "NEEDS", "display", "extract", "key", "load", "prompt", "question", "score",
]  # fmt: skip
COLUMNS = ("question", "A", "B", "C", "D", "answer")
FOLDERS = {
    "auxiliary_train": "auxiliary_train", "train": "auxiliary_train", "dev": "dev", "test": "test",
    "validation": "val", "val": "val",
}  # fmt: skip


def load(source: Mapping[str, Any], split: str, seed: int = 0) -> list[Example]:
    """Examples of a split: test, validation, dev or auxiliary_train. `seed` has no effect.

    The source is {hub: cais/mmlu} or {path}: a folder with data/SPLIT/*.csv or with *_SPLIT.csv, in the publisher's
    format (no header; question, A, B, C, D, answer). Raises BadInput naming the file and line that is wrong.
    """
    if split not in FOLDERS:
        raise BadInput(f"MMLU has no split {split!r}; splits are test, validation, dev, auxiliary_train")
    if "hub" in source:
        named = {"val": "validation", "train": "auxiliary_train"}.get(split, split)
        rows = from_hub(source, named, "all")
        subjects = [fields.get("subject") or named for _, fields in rows]
    else:
        rows, subjects = _files(folder(source), FOLDERS[split])
    return unique_ids(_examples(rows, subjects, FOLDERS[split]), [where for where, _ in rows])


def _examples(rows: list[Row], subjects: list[str], split: str) -> list[Example]:
    counts: dict[str, int] = {}
    return [_example(row, subject, split, counts) for row, subject in zip(rows, subjects, strict=True)]


def _example(row: Row, subject: str, split: str, counts: dict[str, int]) -> Example:
    place = counts[subject] = counts.get(subject, -1) + 1
    choices = multiple_choice.options(row, "choices")
    return {
        "id": f"{subject}-{split}-{place}",
        "question": text_field(row, "question"),
        "context": None,
        "choices": choices,
        "reference": multiple_choice.reference(row, "answer", choices),
        "subject": subject,
    }


def _files(folder: Path, split: str) -> tuple[list[Row], list[str]]:
    patterns = (f"data/{split}/*.csv", f"{split}/*.csv", f"*_{split}.csv")
    found = next((files for pattern in patterns if (files := sorted(folder.glob(pattern)))), None)
    if not found:
        raise BadInput(f"{folder}: no data/{split}/*.csv and no *_{split}.csv; expected MMLU's published CSV files")
    rows, subjects = [], []
    for path in found:
        own = _read(path)
        rows += own
        subjects += [path.stem.removesuffix(f"_{split}")] * len(own)
    return rows, subjects


def _read(path: Path) -> list[Row]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        return [_row(f"{path}, line {reader.line_num}", cells) for cells in reader]
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: {error}; expected quoted CSV cells") from None


def _row(where: str, cells: list[str]) -> Row:
    if len(cells) != len(COLUMNS):
        expected = f"{len(COLUMNS)}, without a header: {', '.join(COLUMNS)}"
        raise BadInput(f"{where}: {len(cells)} columns; expected {expected}")
    if cells[5] not in ("A", "B", "C", "D"):
        raise BadInput(f"{where}: answer is {cells[5]!r}; expected A, B, C or D in column 6")
    return where, {"question": cells[0], "choices": cells[1:5], "answer": "ABCD".index(cells[5])}
