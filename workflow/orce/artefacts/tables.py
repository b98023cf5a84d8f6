"""Tables that people bring: JSON lines, JSON, CSV, TSV (with a header) or Parquet, plain or packed by gzip or zstd, and their values.

A column is named with dots into nested JSON: doc.question, resps.0.0.
"""

import argparse
import ast
import bz2
import contextlib
import csv
import datetime
import difflib
import gzip
import io
import itertools
import json
import lzma
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from pathlib import Path
from typing import Any

from orce.artefacts.files import bounded_lines, largest, parse_json, parse_line, refuse_size
from orce.errors import BadInput

Row = tuple[str, Any]  # where the row comes from, for messages, and its columns
Fields = Mapping[str, str | list[str]]  # {name: column, or several that make a list}
KINDS = ("jsonl", "json", "csv", "tsv", "parquet")
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # what packed files begin with
BZIP2, XZ = b"BZh", b"\xfd7zXZ\x00"
PACKED = ("", ".gz", ".zst", ".bz2", ".xz")
BY_CONTENT = {b"PAR1": "parquet", b"ARROW1": "feather"}
NO_TABLES = {
    b"PK\x03\x04": "a zip archive (or a workbook, .xlsx); unpack it, or save the sheet as CSV",
    b"version https://git-lfs": "a pointer of git-lfs and not the file; git lfs pull fetches it",
}
PIECE = 2**20  # bytes that are unpacked at once
BEGINNING = 1000  # bytes in which a file shows what it holds
POINTER = 8  # bytes
BLANK = b"\xef\xbb\xbf \t\r\n"  # what may stand before a JSON text
SEPARATORS = {";": "semicolons", "\t": "tabs"}  # that a .csv file may have instead of commas
# a cell of text may hold them as JSON or as Python writes them
LISTS = ("answers", "choices", "correct", "labels")
# of judgements and confidences in cells of text
JUDGEMENTS = {"true": True, "false": False, "yes": True, "no": False, "": None}
# What holds rows in a program: polars, pyarrow, datasets, arrays and series, pandas.
HOLDERS = (("to_dicts",), ("to_pylist",), ("to_list",), ("tolist",), ("to_dict", "records"))
# What has no length yet: a lazy frame of polars, a reader of pyarrow. A data set that streams is iterated.
UNREAD = (("collect",), ("read_all",))
# A quoted text, the space before the next one (['a' 'b'] is numpy's list), a missing value, and array([...], dtype=object). A text
# without its closing quote reaches to the end: from each of its escaped quotes, another search would begin.
NUMPYS = re.compile(
    r"""('(?:[^'\\]++|\\.)*+(?:'|\\?\Z)|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))(\s+(?=['"]))?|\bnan\b|\barray(?=\()|,\s*+dtype=\w+""",
    re.DOTALL,
)


# Files


def read(path: Path, first: int | None = None) -> list[Row]:
    """The rows of a file, or the first of them. Raises BadInput naming the file, and the line where one is broken."""
    readers = {"csv": _csv, "tsv": _csv, "parquet": _parquet, "feather": _feather}
    reader = readers.get(_kind_by_content(path) or kind(path), _json)
    rows = [*itertools.islice(reader(path), first)]
    if not rows:
        raise BadInput(f"{path}: no rows; expected one for each example")
    return rows


def _kind_by_content(path: Path) -> str | None:
    """parquet or feather, whatever a file is called, by what it begins with. Raises BadInput for what
    is no table.
    """
    with open(path, "rb") as handle:
        start = handle.read(24)
    for sign, remedy in NO_TABLES.items():
        if start.startswith(sign):
            raise BadInput(f"{path}: {remedy}")
    return next((name for sign, name in BY_CONTENT.items() if start.startswith(sign)), None)


def kind(path: Path) -> str:
    """The ending that says how a file is read: one of KINDS, or another, as of JSON lines."""
    return Path(re.sub(r"\.(gz|zst|bz2|xz)$", "", path.name.lower())).suffix[1:]


class Unpacked:
    """The bytes of an open file, unpacked: its lines, or the whole. Raises BadInput where a line,
    or what a packed file unpacks to, is larger than $ORCE_LARGEST_FILE allows, before it fills the
    memory.
    """

    def __init__(self, path: Path, handle: Any, packed: bool):
        self.path = path
        self.handle = handle
        self.limit = largest() if packed else None

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for line in bounded_lines(self.path, self.handle):
            size += len(line)
            self._check(size)
            yield line

    def peek(self) -> bytes:
        """What it begins with, which is read again."""
        return self.handle.peek(BEGINNING)

    def read(self) -> bytearray:
        whole = bytearray()
        while piece := self.handle.read(PIECE):
            whole += piece
            self._check(len(whole))
        return whole

    def _check(self, size: int) -> None:
        if self.limit is not None and size > self.limit:
            refuse_size(f"{self.path}: unpacks to more", self.limit, 4 * self.limit)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Unpacked]:
    """A file's bytes, unpacked. Raises BadInput where it is cut off, or unpacks to too much."""
    with open(path, "rb") as handle:
        start = handle.peek(6)
        try:
            if start.startswith(GZIP):
                yield Unpacked(path, gzip.GzipFile(fileobj=handle), packed=True)
            elif start.startswith(BZIP2):
                with bz2.BZ2File(handle) as unpacked:
                    yield Unpacked(path, unpacked, packed=True)
            elif start.startswith(XZ):
                with lzma.LZMAFile(handle) as unpacked:
                    yield Unpacked(path, unpacked, packed=True)
            elif start.startswith(ZSTD):
                stream = _arrow(path).input_stream(handle, compression="zstd")
                yield Unpacked(path, io.BufferedReader(stream), packed=True)
            else:
                yield Unpacked(path, handle, packed=False)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise BadInput(f"{path}: cannot be unpacked ({error}); is the file cut off?") from None


def _arrow(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise BadInput(f"{path}: to read such a file takes pyarrow: pip install pyarrow") from None
    return pyarrow


def _json(path: Path) -> Iterator[Row]:
    """JSON lines, or a list of records, whichever of them the name says."""
    items = _listed(path)
    if items is not None:
        for i, item in enumerate(items):
            if not isinstance(item, dict):
                shown = type(item).__name__
                raise BadInput(f"{path}, item {i}: expected a JSON object, found {shown}")
            yield f"{path}, item {i}", item
        return
    with opened(path) as handle:
        lines = ((number, line) for number, line in enumerate(handle, 1) if line.strip())
        opening = next(lines, None)
        if opening is None:
            raise BadInput(f"{path} is empty; expected one JSON object a line")
        for number, line in itertools.chain([opening], lines):
            yield f"{path}, line {number}", _line(path, number, line)


def _listed(path: Path) -> list[Any] | None:
    """The items of a file that holds a list of records; None for one that holds JSON lines."""
    with opened(path) as handle:
        start = handle.peek().lstrip(BLANK)
    if not start or not (kind(path) == "json" or start.startswith(b"[")):
        return None
    try:
        items = held(read_json(path))
    except BadInput as error:
        if "(Extra data)" not in str(error):
            raise
        return None
    if not isinstance(items, list):
        shown = type(items).__name__
        raise BadInput(
            f"{path}: expected a list of records, found {shown}; give the list, or JSON lines"
        )
    return items


def _line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        return parse_line(path, number, line)
    except BadInput as error:
        named = "" if kind(path) in KINDS else "; a table of cells is named .csv or .tsv"
        raise BadInput(f"{error}{named}") from None


def held(rows: Any) -> Any:
    """The list of rows in what holds them: a data frame, an array, a mapping of columns, or one with a single list of records,
    as BIG-bench has its examples beside a description. Anything else is returned as it is."""
    rows = _with_its_index(rows)
    if names := getattr(getattr(rows, "dtype", None), "names", None):
        rows = {name: rows[name] for name in names}  # numpy's structured array
    for method, *options in HOLDERS if hasattr(rows, "__len__") else UNREAD:
        if hasattr(rows, method):
            return held(getattr(rows, method)(*options))
    if isinstance(rows, str | bytes | AbstractSet) or not isinstance(rows, Iterable):
        return rows  # a set has no order
    if not isinstance(rows, Mapping):
        return [plain(_as_mapping(row)) for row in rows]
    named = [
        cells
        for cells in rows.values()
        if isinstance(cells, Mapping) and "".join(map(str, cells)).isdecimal()
    ]
    if len(named) == len(rows):  # DataFrame.to_json
        rows = {name: [*cells.values()] for name, cells in rows.items()}
    columns = {name: held(column) for name, column in rows.items() if not isinstance(column, str)}
    lists = [column for column in columns.values() if isinstance(column, list)]
    records = [column for column in lists if column and isinstance(column[0], dict)]
    if len(lists) == len(rows) and len({*map(len, lists)}) == 1 and (len(rows) > 1 or not records):
        return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
    return records[0] if len(records) == 1 else rows


def _with_its_index(rows: Any) -> Any:
    """A data frame with its named index as columns, which its rows would lose. Raises BadInput for a
    column that stands twice, of which they would lose one.
    """
    columns = [*getattr(rows, "columns", [])] if hasattr(rows, "to_dict") else []
    for name, times in Counter(columns).items():
        if times > 1:
            raise BadInput(f"the column {name!r} stands twice; rename or delete one of them")
    names = [
        name for name in getattr(getattr(rows, "index", None), "names", []) if name is not None
    ]
    if columns and names and not {*names} & {*columns}:
        return rows.reset_index()
    return rows


def _as_mapping(row: Any) -> Any:
    """A row as a mapping, where it is a named tuple or a series of named cells."""
    if hasattr(row, "_asdict"):
        return row._asdict()
    if hasattr(row, "to_dict") and all(isinstance(label, str) for label in row.index):
        return row.to_dict()
    return row


def _csv(path: Path) -> list[Row]:
    dialect = "excel-tab" if kind(path) == "tsv" else "excel"
    lines = cells(path, dialect)
    header = next(lines, ("", []))[1]
    if any(name != name.lstrip() for name in header):  # question, answer: blanks after the commas
        lines = cells(path, dialect, skipinitialspace=True)
        header = next(lines)[1]
    header = _once(path, [name.strip() for name in header])
    rows = []
    for where, row in lines:
        if len(row) != len(header):
            raise BadInput(
                f"{where}: not {len(header)} cells, as the header has; quote cells with commas"
            )
        rows.append((where, dict(zip(header, row, strict=True))))
    # whole numbers of a column that had empty cells once: pandas writes them as 42.0
    for name in header:
        if all(re.fullmatch(r"(-?\d+\.0)?", row[name]) for _, row in rows):
            for _, row in rows:
                row[name] = row[name].removesuffix(".0")
    return rows


def cells(path: Path, dialect: str = "excel", **form: Any) -> Iterator[tuple[str, list[str]]]:
    """(path and line number, cells) of each line of a CSV file that is not empty, header included."""
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(
        io.StringIO(read_text(path), newline=""), dialect=dialect, strict=True, **form
    )
    try:
        for row in reader:
            if "".join(row).strip():
                yield f"{path}, line {reader.line_num}", [*map(without_guard, row)]
    except csv.Error as error:
        raise BadInput(
            f"{path}, line {reader.line_num}: {error}; expected quoted CSV cells"
        ) from None


# What a spreadsheet computes in place of showing it, after the apostrophes that say it is text; a number alone does no harm.
FORMULA = re.compile(r"'*+(?!\s*+[-+][\d.,' %]*+\Z)(?:[\t\r]|\s*+[=+@\uff0b\uff1d\uff20\uff0d-])")


def write_csv(handle: Any, lines: Iterable[Sequence[Any]]) -> None:
    """Write cells as CSV. A text that a spreadsheet would compute gets an apostrophe before it, which `cells` takes away."""
    guarded = ([f"'{cell}" if _is_formula(cell) else cell for cell in line] for line in lines)
    csv.writer(_Lines(handle)).writerows(guarded)


class _Lines:
    """Ends the lines of csv's own form, in which a cell with \\r is quoted, by \\n. With \\n as csv's end it would not be, and the
    line would be read as two."""

    def __init__(self, handle: Any):
        self.handle = handle

    def write(self, line: str) -> None:
        self.handle.write(line.removesuffix("\r\n") + "\n")


def without_guard(cell: Any) -> Any:
    """A cell without the apostrophe that `write_csv` puts before a formula."""
    return cell[1:] if _is_formula(cell) and cell.startswith("'") else cell


def _is_formula(cell: Any) -> bool:
    return isinstance(cell, str) and FORMULA.match(cell) is not None


def _parquet(path: Path) -> Iterator[Row]:
    pyarrow = _arrow(path)
    with opened(path) as handle:
        try:
            yield from parquet_rows(path, pyarrow.BufferReader(memoryview(handle.read())))
        except pyarrow.ArrowInvalid as error:
            raise BadInput(f"{path}: not a Parquet file ({error})") from None


def parquet_rows(path: Path, source: Any) -> Iterator[Row]:
    """The rows of a Parquet file, whose columns are packed: what is written once may stand in each
    row. Raises BadInput beyond $ORCE_LARGEST_FILE. source: what pyarrow opens.
    """
    limit = largest()
    file = _arrow(path).parquet.ParquetFile(source)
    _once(path, file.schema_arrow.names)
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    # A value takes a pointer at least: a list of a thousand million zeros is packed into some bytes.
    size = max(
        sum(group.total_byte_size for group in groups),
        sum(chunk.num_values for chunk in chunks) * POINTER,
    )
    # no more rows at once than could hold so much, if each had the largest value that a column can have
    largest_value = max((chunk.total_uncompressed_size for chunk in chunks), default=1)
    together = min(max(limit // max(largest_value, 1), 16), 1024)
    if size > limit:
        refuse_size(f"{path}: unpacks to more", limit, 4 * limit)
    yield from _rows_of_batches(path, file.iter_batches(together), limit)


def _rows_of_batches(path: Path, batches: Iterable[Any], limit: int) -> Iterator[Row]:
    """The rows of Arrow's batches. Raises BadInput before they unpack to more bytes than the limit."""
    held = number = 0
    for batch in batches:
        held += sum(_unpacked_size(path, column) for column in batch.columns)
        if held > limit:
            refuse_size(f"{path}: unpacks to more", limit, 4 * limit)
        for row in batch.to_pylist():
            yield f"{path}, row {number}", row
            number += 1


def _unpacked_size(path: Path, column: Any) -> int:
    """The bytes of a column, with each category written out."""
    if hasattr(column, "dictionary_decode"):
        return column.dictionary_decode().nbytes
    if "dictionary" in str(column.type):
        raise BadInput(f"{path}: categories within lists ({column.type}); save them as texts")
    return column.nbytes


def _feather(path: Path) -> Iterator[Row]:
    """The rows of an Arrow file, a batch of which may be packed. Raises BadInput as `parquet_rows`."""
    pyarrow = _arrow(path)
    from pyarrow import ipc

    try:
        file = ipc.open_file(path)
        _once(path, file.schema.names)
        batches = map(file.get_batch, range(file.num_record_batches))
        yield from _rows_of_batches(path, batches, largest())
    except pyarrow.ArrowInvalid as error:
        raise BadInput(f"{path}: not an Arrow file ({error})") from None


def _once(path: Path, columns: list[str]) -> list[str]:
    for name, times in Counter(columns).items():
        if name and times > 1:
            raise BadInput(
                f"{path}: the column {name!r} stands twice; rename or delete one of them"
            )
    for sign, name in SEPARATORS.items():
        if len(columns) == 1 and sign in columns[0]:
            raise BadInput(
                f"{path}: {name} between the cells; save it with commas, or with tabs as a .tsv file"
            )
    return columns


def read_text(path: Path) -> str:
    """A whole UTF-8 file. Raises BadInput naming the line of a wrong byte, or that the file is empty."""
    with opened(path) as handle:
        raw = handle.read()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadInput(
            f"{path}, line {line}: not UTF-8 ({error.reason}); save the file as UTF-8"
        ) from None
    if not text.strip():
        raise BadInput(f"{path} is empty; expected a row for each question")
    return text


def read_json(path: Path):
    """A whole JSON file. Raises BadInput naming the line where it breaks."""
    text = read_text(path)
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{path}, line {error.lineno}: not valid JSON ({error.msg}); is the file cut off?"
        ) from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


# Cells


def plain(value: Any) -> Any:
    """Python's own value for one of numpy, pandas or pyarrow; None for NaN and what else stands for a missing value."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if type(value).__name__ in ("NAType", "NaTType") or (
        isinstance(value, float | Decimal) and math.isnan(value)
    ):
        return None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else value


def decoded(cell: Any) -> Any:
    """A cell of a table: a list or a mapping parsed from JSON, or from what Python or numpy writes; any other value unchanged."""
    if isinstance(cell, str) and cell.lstrip().startswith(("[", "{", "(", "array(")):
        with contextlib.suppress(ValueError):
            return parse_json(cell)
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            value = ast.literal_eval(NUMPYS.sub(_pythons, cell.strip()))
            return plain(value) if isinstance(value, list | tuple | dict) else cell
    return cell


def _pythons(match: re.Match) -> str:
    """What numpy writes as Python writes it."""
    return f"{match[1]}, " if match[2] else match[1] or {"nan": "None"}.get(match[0], "")


def written(cell: Any) -> str | None:
    """A text as it is, and a number or a boolean written out: 42 for 42.0, true; None for anything else."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if isinstance(cell, float) and math.isfinite(cell) and "e" in repr(cell):
        return format(Decimal(repr(cell)), "f") if 1e-15 < abs(cell) < 1e30 else str(cell)
    finite = isinstance(cell, int) or (isinstance(cell, float) and math.isfinite(cell))
    return str(cell) if finite or isinstance(cell, str) else None


def records(
    path: Path, fields: Fields | None = None, *needed: str, first: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, record) of each row of a file, or of its first rows. Raises BadInput for a record without a needed key."""
    for row in read(path, first):
        made = record(row, fields)
        for key in needed:
            if key not in made:
                has = f"it has {', '.join(map(str, made))}"
                raise BadInput(f"{row[0]}: no key {key!r}; {has}; name its column as fields.{key}")
        yield row[0], made


def value(row: Row, name: str, column: str) -> Any:
    """The cell of a row in a column. Raises BadInput listing the columns. name: the field that names the column."""
    where, cell = row
    path, depth = column.split("."), 0
    while depth < len(path):
        cell = decoded(cell)
        columns: Any = dict(enumerate(cell)) if isinstance(cell, list) else cell
        by_name = (
            {str(key): item for key, item in columns.items()} if isinstance(columns, dict) else {}
        )
        # A column's own name may have dots.
        ends = (end for end in range(len(path), depth, -1) if ".".join(path[depth:end]) in by_name)
        if (end := next(ends, None)) is None:
            inside = f" in {'.'.join(path[:depth])}" if depth else ""
            there = "it has no columns"
            if isinstance(columns, dict):
                alike = {title.casefold(): title for title in by_name}
                close = difflib.get_close_matches(path[depth].casefold(), alike, 1)
                hint = f"did you mean {alike[close[0]]!r}? " if close else ""
                there = f"{hint}columns{inside} are {', '.join(by_name)}"
            named = f", which fields.{name} names" if name else ""
            raise BadInput(f"{where}: no column {path[depth]!r}{inside}{named}; {there}")
        cell, depth = by_name[".".join(path[depth:end])], end
    return plain(cell)


def record(row: Row, fields: Fields | None) -> dict[str, Any]:
    """What `fields` name of a row, under their names; without them, the row. Lists, judgements and confidences in cells of
    text are read. Raises BadInput naming a missing column."""
    if fields is not None:
        named = {}
        for name, column in fields.items():
            columns = several(row[1], column)
            cells = [value(row, name, path) for path in columns]
            named[name] = cells if isinstance(column, list) or len(columns) > 1 else cells[0]
    elif isinstance(row[1], dict):
        named = plain(row[1])
    else:
        raise BadInput(f"{row[0]}: expected a mapping of columns, found {type(row[1]).__name__}")
    made = {name: decoded(cell) if name in LISTS else cell for name, cell in named.items()}
    for name in {"correct", "confidence"} & made.keys():
        cell = made[name]
        made[name] = [*map(judgement, cell)] if isinstance(cell, list) else judgement(cell)
    return made


def several(row: Any, column: str | list[str]) -> list[str]:
    """The columns that a field names: one, a list of them, or some with commas between ("a,b,c"), if no column is called that."""
    if isinstance(column, list):
        return column
    names = [name.strip() for name in column.split(",")]
    is_one = not isinstance(row, Mapping) or column in row or not all(names)
    return [column] if is_one else names


def probability(where: str, cell: Any, name: str = "confidence") -> float | None:
    """A confidence, None for an unreadable one. Raises BadInput for anything else."""
    if cell is not None and (
        isinstance(cell, bool) or not isinstance(cell, int | float) or not 0 <= cell <= 1
    ):
        raise BadInput(
            f"{where}: {name} is {cell!r}; expected a number from 0 to 1, or null for unreadable"
        )
    return cell


def judgement(cell: Any) -> Any:
    """True, false, a number or None from a cell of text; any other cell unchanged."""
    if not isinstance(cell, str):
        return cell
    with contextlib.suppress(ValueError):
        text = cell.strip().lower()
        return JUDGEMENTS[text] if text in JUDGEMENTS else plain(float(text))
    return cell


class Columns(argparse.Action):
    """{NAME: COLUMN} of a command line; a name that stands several times has several columns."""

    def __call__(self, parser, namespace, values, option_string=None):
        columns: dict[str, list[str]] = {}
        for text in values:
            name, _, column = text.partition("=")
            if not name or not column:
                parser.error(
                    f"argument {option_string}: {text!r}: expected NAME=COLUMN, such as answers=resps.0"
                )
            columns.setdefault(name, []).append(column)
        fields = {
            name: several if len(several) > 1 else several[0] for name, several in columns.items()
        }
        setattr(namespace, self.dest, fields)


OPTION: dict[str, Any] = {
    "nargs": "+",
    "action": Columns,
    "type": str,
    "metavar": "NAME=COLUMN",
    "help": "question=doc.question answers=resps.0: the columns to read, with dots into nested JSON; of JSON lines, CSV or Parquet",
}
