"""Rows of any data set, read by the configuration's `fields`: where each part of an example stands in a row.

A field is the name of a column, or a dotted path into it (choices.text). The rows come from the hub, or from files:
JSON lines, JSON (a list), CSV, TSV (with a header) or Parquet.
"""

import csv
import difflib
import hashlib
import io
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orce.artefacts.files import read_jsonl, unique
from orce.errors import BadInput
from orce.records import Example
from orce.tasks.parts.hub import from_hub
from orce.tasks.parts.source import Row, find, read_json, read_text

KINDS = ("jsonl", "json", "csv", "tsv", "parquet")


SEPARATORS = {";": "semicolons", "\t": "tabs"}  # that a .csv file may have in place of commas
NOTHING = ("nan", "NaN", "NAN")  # how programs write a missing value into a text
UNNUMBERED = ", or leave out fields.id to number the rows"


def rows(source: Mapping[str, Any], split: str, first: int | None = None) -> list[Row]:
    """The rows of a split: of the hub's, or of the file SPLIT.jsonl (or another of KINDS) in a folder, or of one file.

    first: so many rows at most. Raises BadInput naming the file, and the line where one is broken.
    """
    if "hub" in source:
        return from_hub({key: source[key] for key in ("hub", "config", "revision") if key in source}, split)
    path = find(source, [f"{split}.{kind}" for kind in KINDS])
    read = {"json": _json, "csv": _csv, "tsv": _csv, "parquet": _parquet}.get(path.suffix.lstrip("."), _jsonl)
    found = list(itertools.islice(read(path, first), first))
    if not found:
        raise BadInput(f"{path}: no rows; expected one for each example")
    return found


def file(source: Mapping[str, Any], split: str) -> Path | None:
    """The local file of a split; None if it is not there."""
    try:
        return find(source, [f"{split}.{kind}" for kind in KINDS])
    except BadInput:
        return None


def _jsonl(path: Path, first: int | None) -> list[Row]:
    return [(f"{path}, line {i}", record) for i, record in enumerate(read_jsonl(path, first=first, hook=unique), 1)]


def _json(path: Path, first: int | None) -> list[Row]:
    items = read_json(path)
    if isinstance(items, dict):  # BIG-bench has its examples beside a description
        lists = [one for one in items.values() if isinstance(one, list) and one and isinstance(one[0], dict)]
        items = lists[0] if len(lists) == 1 else items
    if not isinstance(items, list):
        raise BadInput(
            f"{path}: expected a list of records, found {type(items).__name__}; give the list, or JSON lines"
        )
    return [(f"{path}, item {i}", item) for i, item in enumerate(items)]


def _csv(path: Path, first: int | None) -> Iterator[Row]:
    dialect = "excel-tab" if path.suffix == ".tsv" else "excel"
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), dialect=dialect, strict=True)
    try:
        header = _once(path, list(reader.fieldnames or ()))
        for record in reader:
            where = f"{path}, line {reader.line_num}"
            if None in record or None in record.values():
                raise BadInput(f"{where}: not {len(header)} cells, as the header has; quote cells with commas")
            yield where, record
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: {error}; expected quoted CSV cells") from None


def _once(path: Path, columns: list[str]) -> list[str]:
    twice = next((name for name in columns if name and columns.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"{path}: the column {twice!r} stands twice; rename or delete one of them")
    other = next((name for sign, name in SEPARATORS.items() if len(columns) == 1 and sign in columns[0]), None)
    if other is not None:
        raise BadInput(f"{path}: {other} between the cells; save it with commas, or with tabs as a .tsv file")
    return columns


def _parquet(path: Path, first: int | None) -> list[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path)
        _once(path, table.schema_arrow.names)
        records = [
            row
            for batch in itertools.islice(table.iter_batches(first or 65536), first and 1)
            for row in batch.to_pylist()
        ]
    except pyarrow.ArrowInvalid as error:
        raise BadInput(f"{path}: not a Parquet file ({error})") from None
    return [(f"{path}, row {i}", record) for i, record in enumerate(records)]


def value(row: Row, name: str, fields: dict):
    """What a row holds at the place that fields[name] names; not NaN. Raises BadInput with the columns that there are."""
    where, found = row
    path = fields[name]
    for depth, key in enumerate(path.split(".")):
        if not isinstance(found, dict) or key not in found:
            inside = f" in {'.'.join(path.split('.')[:depth])}" if depth else ""
            there = (
                f"{_hint(key, found)}columns{inside} are {', '.join(map(str, found))}"
                if isinstance(found, dict)
                else "it has no columns"
            )
            raise BadInput(f"{where}: no column {key!r}{inside}, which fields.{name} names; {there}")
        found = found[key]
    if isinstance(found, float) and not math.isfinite(found):
        raise BadInput(f"{where}: {path!r} is {found}, a missing value; fill it in, or leave the row out")
    return found


def _hint(key: str, columns: dict) -> str:
    alike = {str(name).casefold(): name for name in columns}
    close = difflib.get_close_matches(key.casefold(), alike, 1)
    return f"did you mean {alike[close[0]]!r}? " if close else ""


def decoded(found):
    """A cell of a table, where a list or a mapping stands as JSON; other values as they are."""
    if isinstance(found, str) and found.strip()[:1] in ("[", "{"):
        try:
            return json.loads(found, object_pairs_hook=unique)
        except (ValueError, RecursionError):
            pass
    return found


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
    found = value(row, name, fields)
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
    found = value(row, "context", fields)
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
