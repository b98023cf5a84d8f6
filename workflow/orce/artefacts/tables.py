"""Tables that people bring: JSON lines, JSON (a list), CSV, TSV (with a header) or Parquet.

A column is named with dots into nested JSON: doc.question, resps.0.0.
"""

import argparse
import contextlib
import csv
import difflib
import io
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orce.artefacts.files import from_json, read_jsonl
from orce.errors import BadInput

Row = tuple[str, dict]  # where the row comes from, for messages, and its columns
Fields = Mapping[str, str | list[str]]  # {name: column, or several that make a list}
KINDS = ("jsonl", "json", "csv", "tsv", "parquet")
SEPARATORS = {";": "semicolons", "\t": "tabs"}  # that a .csv file may have instead of commas
LISTS = ("answers", "choices", "correct", "reference", "references")  # a cell of text may hold them as JSON
JUDGEMENTS = {"true": True, "false": False, "": None}  # of judgements and confidences in cells of text


def read(path: Path, first: int | None = None) -> list[Row]:
    """The rows of a file, or the first of them. Raises BadInput naming the file, and the line where one is broken."""
    if path.suffix in (".csv", ".tsv"):
        rows = _csv(path)
    elif path.suffix == ".parquet":
        rows = _parquet(path, first)
    elif path.suffix == ".json":
        rows = ((f"{path}, item {i}", item) for i, item in enumerate(_items(path)))
    else:
        rows = ((f"{path}, line {i}", record) for i, record in enumerate(read_jsonl(path, first=first), 1))
    rows = [*itertools.islice(rows, first)]
    if not rows:
        raise BadInput(f"{path}: no rows; expected one for each example")
    return rows


def _items(path: Path) -> list:
    items = read_json(path)
    if isinstance(items, dict):  # BIG-bench has its examples beside a description
        lists = [entry for entry in items.values() if isinstance(entry, list) and entry and isinstance(entry[0], dict)]
        items = lists[0] if len(lists) == 1 else items
    if not isinstance(items, list):
        shown = type(items).__name__
        raise BadInput(f"{path}: expected a list of records, found {shown}; give the list, or JSON lines")
    return items


def _csv(path: Path) -> Iterator[Row]:
    dialect = "excel-tab" if path.suffix == ".tsv" else "excel"
    lines = cells(path, dialect)
    header = _once(path, next(lines)[1])
    for where, row in lines:
        if row and len(row) != len(header):
            raise BadInput(f"{where}: not {len(header)} cells, as the header has; quote cells with commas")
        if row:
            yield where, dict(zip(header, row, strict=True))


def cells(path: Path, dialect: str = "excel") -> Iterator[tuple[str, list[str]]]:
    """(path and line number, cells) of each line of a CSV file, header included."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), dialect=dialect, strict=True)
    try:
        yield from ((f"{path}, line {reader.line_num}", row) for row in reader)
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: {error}; expected quoted CSV cells") from None


def _parquet(path: Path, first: int | None) -> list[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path)
        _once(path, table.schema_arrow.names)
        batches = itertools.islice(table.iter_batches(first or 65536), first and 1)
        records = [row for batch in batches for row in batch.to_pylist()]
    except pyarrow.ArrowInvalid as error:
        raise BadInput(f"{path}: not a Parquet file ({error})") from None
    return [(f"{path}, row {i}", record) for i, record in enumerate(records)]


def _once(path: Path, columns: list[str]) -> list[str]:
    for name in columns:
        if name and columns.count(name) > 1:
            raise BadInput(f"{path}: the column {name!r} stands twice; rename or delete one of them")
    for sign, name in SEPARATORS.items():
        if len(columns) == 1 and sign in columns[0]:
            raise BadInput(f"{path}: {name} between the cells; save it with commas, or with tabs as a .tsv file")
    return columns


def read_text(path: Path) -> str:
    """A whole UTF-8 file. Raises BadInput naming the line of a wrong byte, or that the file is empty."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}, line {line}: not UTF-8 ({error.reason}); save the file as UTF-8") from None
    if not text.strip():
        raise BadInput(f"{path} is empty; expected the publisher's data")
    return text


def read_json(path: Path):
    """A whole JSON file. Raises BadInput naming the line where it breaks."""
    text = read_text(path)
    try:
        return from_json(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}, line {error.lineno}: not valid JSON ({error.msg}); is the file cut off?") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def value(row: Row, name: str, column: str):
    """The cell of a row in a column; not NaN. Raises BadInput listing the columns. name: the field that names the column."""
    where, cell = row
    path = column.split(".")
    for depth, key in enumerate(path):
        columns = {str(i): item for i, item in enumerate(cell)} if isinstance(cell, list) else cell
        if not isinstance(columns, dict) or key not in columns:
            inside = f" in {'.'.join(path[:depth])}" if depth else ""
            there = "it has no columns"
            if isinstance(columns, dict):
                alike = {str(title).casefold(): title for title in columns}
                close = [
                    f"did you mean {alike[match]!r}? " for match in difflib.get_close_matches(key.casefold(), alike, 1)
                ]
                there = f"{''.join(close)}columns{inside} are {', '.join(map(str, columns))}"
            named = f", which fields.{name} names" if name else ""
            raise BadInput(f"{where}: no column {key!r}{inside}{named}; {there}")
        cell = columns[key]
    if isinstance(cell, float) and not math.isfinite(cell):
        raise BadInput(f"{where}: {column!r} is {cell}, a missing value; fill it in, or leave the row out")
    return cell


def decoded(cell):
    """A cell of a table: a list or a mapping parsed from JSON, any other value unchanged."""
    if isinstance(cell, str) and cell.strip()[:1] in ("[", "{"):
        with contextlib.suppress(ValueError):
            return from_json(cell)
    return cell


def record(row: Row, fields: Fields | None) -> dict[str, Any]:
    """What `fields` name of a row, under their names; without them, the row. Lists, judgements and confidences in cells of
    text are read. Raises BadInput naming a missing column."""
    named = row[1]
    if fields is not None:
        named = {
            name: [value(row, name, path) for path in column] if isinstance(column, list) else value(row, name, column)
            for name, column in fields.items()
        }
    elif not isinstance(named, dict):
        raise BadInput(f"{row[0]}: expected a mapping of columns, found {type(named).__name__}")
    made = {name: decoded(cell) if name in LISTS else cell for name, cell in named.items()}
    for name in {"correct", "confidence"} & made.keys():
        cell = made[name]
        made[name] = [*map(_judgement, cell)] if isinstance(cell, list) else _judgement(cell)
    return made


def _judgement(cell):
    """True, false, a number or None from a cell of text; any other cell unchanged."""
    if not isinstance(cell, str):
        return cell
    with contextlib.suppress(ValueError):
        text = cell.strip().lower()
        return JUDGEMENTS[text] if text in JUDGEMENTS else float(text)
    return cell


class Columns(argparse.Action):
    """{NAME: COLUMN} of a command line; a name that stands several times has several columns."""

    def __call__(self, parser, namespace, values, option_string=None):
        columns: dict[str, list[str]] = {}
        for text in values:
            name, _, column = text.partition("=")
            if not name or not column:
                parser.error(f"argument {option_string}: {text!r}: expected NAME=COLUMN, such as answers=resps.0")
            columns.setdefault(name, []).append(column)
        fields = {name: several if len(several) > 1 else several[0] for name, several in columns.items()}
        setattr(namespace, self.dest, fields)


OPTION: dict[str, Any] = {
    "nargs": "+",
    "action": Columns,
    "type": str,
    "metavar": "NAME=COLUMN",
    "help": "question=doc.question answers=resps.0: the columns to read, with dots into nested JSON; of JSON lines, CSV or Parquet",
}
