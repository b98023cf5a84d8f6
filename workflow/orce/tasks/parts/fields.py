"""Rows of any data set, read by the configuration's `fields`: where each part of an example stands in a row.

A field is the name of a column, or a dotted path into it (choices.text). The rows come from the hub, or from files:
JSON lines, JSON (a list), CSV, TSV (with a header) or Parquet.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orce.artefacts import tables
from orce.artefacts.tables import KINDS, Row, value
from orce.errors import BadInput
from orce.records import Example
from orce.tasks.parts.hub import from_hub
from orce.tasks.parts.source import find

NOTHING = ("nan", "NaN", "NAN")  # how programs write a missing value into a text
UNNUMBERED = ", or leave out fields.id to number the rows"


def rows(source: Mapping[str, Any], split: str, first: int | None = None) -> list[Row]:
    """The rows of a split: of the hub's, or of the file SPLIT.jsonl (or another of KINDS) in a folder, or of one file.

    first: so many rows at most. Raises BadInput naming the file, and the line where one is broken.
    """
    if "hub" in source:
        return from_hub({key: source[key] for key in ("hub", "config", "revision") if key in source}, split)
    return tables.read(find(source, [f"{split}.{kind}" for kind in KINDS]), first)


def file(source: Mapping[str, Any], split: str) -> Path | None:
    """The local file of a split; None if it is not there."""
    try:
        return find(source, [f"{split}.{kind}" for kind in KINDS])
    except BadInput:
        return None


def present(where: str, path: str, text: str, otherwise: str = "") -> str:
    """The text of a reference or an option. Raises BadInput for one that says nothing is there."""
    if text.strip() in NOTHING:
        raise BadInput(
            f"{where}: {path!r} is {text.strip()!r}, which stands for a missing value; fill it in, or leave the row "
            f"out{otherwise}"
        )
    return text


def text(row: Row, name: str, fields: dict) -> str:
    """A text that is not empty; a number is written out."""
    found = value(row, name, fields[name])
    if isinstance(found, bool) or not isinstance(found, str | int | float) or not str(found).strip():
        raise BadInput(
            f"{row[0]}: {fields[name]!r} is {_short(found)}; expected a text that is not empty (fields.{name})"
        )
    return str(found)


def base(row: Row, place: int, source: Mapping[str, Any], split: str) -> Any:
    """The parts that every example has: id (the row's number without a field for it), question, context.

    `ask` is a line after each question's text, for sets whose text does not say what is asked.
    """
    fields = source["fields"]
    asked = f"\n{source['ask']}" if "ask" in source else ""
    return {
        "id": text(row, "id", fields) if "id" in fields else f"{split}-{place}",
        "question": text(row, "question" if "question" in fields else "id", fields) + asked,
        "context": _context(row, fields) if "context" in fields else None,
    }


def _context(row: Row, fields: dict) -> str | None:
    """The passage; None where the cell is empty."""
    found = value(row, "context", fields["context"])
    return None if found is None or not str(found).strip() else text(row, "context", fields)


def pattern(source: Mapping[str, Any]) -> dict:
    """The pattern of answers in the configuration, for an example; nothing without one."""
    return {"answer_pattern": source["answer_pattern"]} if "answer_pattern" in source else {}


def matched(text: str, example: Example) -> str:
    """What the example's own pattern finds in a text: the first group of its last match; without a pattern, the text.

    A text that the pattern does not match is empty, so it has no answer.
    """
    if "answer_pattern" not in example:
        return text
    every = list(re.finditer(example["answer_pattern"], text))
    return next(filter(None, [*(every[-1].groups() or ()), every[-1][0]]), "") if every else ""


def order(seed: int, name: str, n: int) -> list[int]:
    """The numbers 0 to n - 1 in an order that depends on the example's id and the seed alone."""
    return sorted(range(n), key=lambda i: hashlib.sha256(f"{seed} {name} {i}".encode()).digest())


def _short(found) -> str:
    shown = repr(found)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
