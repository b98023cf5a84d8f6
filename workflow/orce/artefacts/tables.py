"""Tables that people bring: JSON lines, JSON, CSV, TSV (with a header) or Parquet, plain or packed
by gzip or zstd, and their values.

A column is named with dots into nested JSON: doc.question, resps.0.0.
"""

import argparse
import ast
import contextlib
import csv
import datetime
import difflib
import gzip
import io
import itertools
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from orce.artefacts.files import bounded_lines, largest, parse_json, parse_object, refuse_size
from orce.errors import BadInput

Row = tuple[str, Any]  # where the row comes from, for messages, and its columns
Fields = Mapping[str, str | list[str]]  # {name: column, or several that make a list}
KINDS = ("jsonl", "json", "csv", "tsv", "parquet")
PACKED = ("", ".gz", ".zst")
NO_TABLES = {
    b"PK\x03\x04": "a zip archive (or a workbook, .xlsx); unpack it, or save the sheet as CSV",
    b"ARROW1": "an Arrow file; save it as Parquet",
    b"version https://git-lfs": "a pointer of git-lfs and not the file; git lfs pull fetches it",
}
GZIP = b"\x1f\x8b"  # what packed files begin with
ZSTD = b"\x28\xb5\x2f\xfd"
PIECE = 2**20  # bytes that are unpacked at once
BEGINNING = 1000  # bytes in which a file shows what it holds
POINTER = 8  # bytes
BLANK = b"\xef\xbb\xbf \t\r\n"  # what may stand before a JSON text
# that a .csv file may have instead of commas, or a .tsv file instead of tabs
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}


# Files


def read(path: Path, first: int | None = None) -> list[Row]:
    """The rows of a file, or the first of them. Raises BadInput naming the file, and the line where
    one is broken.
    """
    reader = {"csv": _csv, "tsv": _csv, "parquet": _parquet}.get(_kind_by_content(path), _json)
    rows = [*itertools.islice(reader(path), first)]
    if not rows:
        raise BadInput(f"{path}: no rows; expected one for each example")
    return rows


def _kind_by_content(path: Path) -> str:
    """How a file is read. Raises BadInput for a file that holds no table."""
    with open(path, "rb") as handle:
        start = handle.read(24)
    for sign, remedy in NO_TABLES.items():
        if start.startswith(sign):
            raise BadInput(f"{path}: {remedy}")
    # what such a file begins with, whatever it is called
    return "parquet" if start.startswith(b"PAR1") else kind(path)


def kind(path: Path) -> str:
    """The ending that says how a file is read: one of KINDS, or another, as of JSON lines."""
    return Path(re.sub(r"\.(gz|zst)$", "", path.name.lower())).suffix[1:]


@dataclass
class Unpacked:
    """The bytes of an open file, unpacked: its lines, or the whole. Raises BadInput for a line that
    is longer than $ORCE_LARGEST_FILE allows, or beyond `limit` bytes, before it fills the memory.
    """

    path: Path
    handle: Any
    limit: float

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for line in bounded_lines(self.path, self.handle):
            size += len(line)
            _check_unpacked(self.path, size, self.limit)
            yield line

    def peek(self) -> bytes:
        """What it begins with, which is read again."""
        return self.handle.peek(BEGINNING)

    def read(self) -> bytearray:
        whole = bytearray()
        while piece := self.handle.read(PIECE):
            whole += piece
            _check_unpacked(self.path, len(whole), self.limit)
        return whole


def _check_unpacked(path: Path, size: int, limit: float) -> None:
    if size > limit:
        refuse_size(f"{path}: unpacks to more", limit, 4 * limit)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Unpacked]:
    """A file's bytes, unpacked. Raises BadInput where it is cut off, or unpacks to too much."""
    with open(path, "rb") as handle:
        start = handle.peek(4)
        try:
            if start.startswith(GZIP):
                yield Unpacked(path, gzip.GzipFile(fileobj=handle), largest())
            elif start.startswith(ZSTD):
                yield Unpacked(path, _open_zstd(handle), largest())
            else:
                yield Unpacked(path, handle, limit=math.inf)
        except (EOFError, OSError, zlib.error) as error:
            raise BadInput(f"{path}: cannot be unpacked ({error}); is the file cut off?") from None


def _open_zstd(handle: Any) -> Any:
    stream = _arrow(handle.name).input_stream(handle, compression="zstd")
    return io.BufferedReader(stream)


def _arrow(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise BadInput(f"{path}: to read such a file takes pyarrow: pip install pyarrow") from None
    return pyarrow


def read_text(path: Path) -> str:
    """A whole UTF-8 file. Raises BadInput naming the line of a wrong byte, or that the file is
    empty.
    """
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


# JSON


def _json(path: Path) -> Iterator[Row]:
    """The records of a list, or of JSON lines, whichever of them the file holds."""
    with opened(path) as handle:
        start = handle.peek().lstrip(BLANK)
    if not start.startswith(b"["):
        yield from _json_lines(path)
        return
    for i, item in enumerate(read_json(path)):
        if not isinstance(item, dict):
            shown = type(item).__name__
            raise BadInput(f"{path}, item {i}: expected a JSON object, found {shown}")
        yield f"{path}, item {i}", item


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


def _json_lines(path: Path) -> Iterator[Row]:
    is_empty = True
    ending = kind(path)
    with opened(path) as handle:
        for number, line in enumerate(handle, 1):
            if line.strip():
                is_empty = False
                where = f"{path}, line {number}"
                yield where, _json_line(where, ending, line)
    if is_empty:
        raise BadInput(f"{path} is empty; expected one JSON object a line")


def _json_line(where: str, ending: str, line: bytes) -> dict[str, Any]:
    try:
        return parse_object(where, line)
    except BadInput as error:
        named = "" if ending in KINDS else "; a table of cells is named .csv or .tsv"
        if ending == "json":
            named = "; give a list of records, or one a line"
        raise BadInput(f"{error}{named}") from None


# CSV


def _csv(path: Path) -> list[Row]:
    dialect = "excel-tab" if kind(path) == "tsv" else "excel"
    lines = cells(path, dialect)
    header = next(lines, ("", []))[1]
    if any(name != name.lstrip() for name in header):  # question, answer: blanks after the commas
        lines = cells(path, dialect, skipinitialspace=True)
        header = next(lines)[1]
    header = [name.strip() for name in header]
    if header.count("") > 1:
        header = [name or f"unnamed {number}" for number, name in enumerate(header, 1)]
    _refuse_columns(path, header)
    rows = []
    for where, row in lines:
        if len(row) != len(header):
            few = len(row) < len(header)
            remedy = "is the file cut off?" if few else "quote cells with commas"
            raise BadInput(f"{where}: not {len(header)} cells, as the header has; {remedy}")
        rows.append((where, dict(zip(header, row, strict=True))))
    _take_point_zero([row for _, row in rows])
    return rows


def _take_point_zero(rows: list[dict[str, str]]) -> None:
    """Write 42.0 as 42: pandas makes floats of a column of whole numbers with an empty cell. The
    same numbers stand in other columns of floats, beside 4.5, so those lose their .0 too.
    """
    names = rows[0] if rows else []
    floats = [name for name in names if all(_is_float(row[name]) for row in rows if row[name])]
    columns = [{row[name] for row in rows if row[name]} for name in floats]
    if any(cells and all(cell.endswith(".0") for cell in cells) for cells in columns):
        for row in rows:
            row |= {name: row[name].removesuffix(".0") for name in floats}


def _is_float(cell: str) -> bool:
    """Whether a cell is a number as Python writes its floats: 4.0 or 4.5, and not 4 or 4.50."""
    try:
        return repr(float(cell)) == cell
    except ValueError:
        return False


def cells(path: Path, dialect: str = "excel", **form: Any) -> Iterator[tuple[str, list[str]]]:
    """(path and line number, cells) of each line of a CSV file that is not empty, header included."""
    # Python's own 131,072 characters are less than an answer may have
    csv.field_size_limit(2**31 - 1)
    text = io.StringIO(read_text(path), newline="")
    reader = csv.reader(text, dialect=dialect, strict=True, **form)
    try:
        for row in reader:
            if "".join(row).strip():
                yield f"{path}, line {reader.line_num}", [*map(without_guard, row)]
    except csv.Error as error:
        reason = str(error).replace("\t", "a tab")
        raise BadInput(
            f"{path}, line {reader.line_num}: {reason}; a cell that begins with a quote ends with one"
        ) from None


# What a spreadsheet computes in place of showing it, after the apostrophes that say it is text; a
# number alone does no harm.
FORMULA = re.compile(r"'*+(?!\s*+[-+][\d.,' %]*+\Z)(?:[\t\r]|\s*+[=+@\uff0b\uff1d\uff20\uff0d-])")


def write_csv(handle: Any, lines: Iterable[Sequence[Any]]) -> None:
    """Write cells as CSV. A text that a spreadsheet would compute gets an apostrophe before it,
    which `cells` takes away.
    """
    guarded = ([f"'{cell}" if _is_formula(cell) else cell for cell in line] for line in lines)
    csv.writer(_Lines(handle)).writerows(guarded)


@dataclass
class _Lines:
    """Ends the lines of csv's own form, in which a cell with \\r is quoted, by \\n. With \\n as csv's
    end it would not be, and the line would be read as two.
    """

    handle: Any

    def write(self, line: str) -> None:
        self.handle.write(line.removesuffix("\r\n") + "\n")


def without_guard(cell: Any) -> Any:
    """A cell without the apostrophe that `write_csv` puts before a formula."""
    return cell[1:] if _is_formula(cell) and cell.startswith("'") else cell


def _is_formula(cell: Any) -> bool:
    return isinstance(cell, str) and FORMULA.match(cell) is not None


# Parquet


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
    _refuse_columns(path, file.schema_arrow.names)
    unpacked = 0
    chunks = []
    for i in range(file.num_row_groups):
        group = file.metadata.row_group(i)
        unpacked += group.total_byte_size
        chunks += map(group.column, range(group.num_columns))
    # A value takes a pointer at least: a list of a thousand million zeros is packed into some bytes.
    pointers = POINTER * sum(chunk.num_values for chunk in chunks)
    _check_unpacked(path, max(unpacked, pointers), limit)
    # no more rows at once than could hold so much, if each had the largest value that a column can
    # have
    largest_value = max((chunk.total_uncompressed_size for chunk in chunks), default=1)
    together = min(max(limit // max(largest_value, 1), 16), 1024)
    size = 0
    number = 0
    for batch in file.iter_batches(together):
        size += sum(_unpacked_size(path, column) for column in batch.columns)
        _check_unpacked(path, size, limit)  # before it is unpacked
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


def _refuse_columns(path: Path, columns: list[str]) -> None:
    """Raises BadInput for a column that stands twice, of which a row would keep one, and for a
    single one whose name is a whole header with other signs than commas between.
    """
    _refuse_repeated(columns, f"{path}: ")
    for sign, name in SEPARATORS.items():
        if len(columns) == 1 and sign in columns[0]:
            raise BadInput(
                f"{path}: {name} between the cells; save it with commas as a .csv file, or with tabs as .tsv"
            )


def _refuse_repeated(columns: Iterable[Any], where: str = "") -> None:
    for name, times in Counter(columns).items():
        if times > 1:
            raise BadInput(f"{where}the column {name!r} stands twice; rename or delete one of them")


# What holds rows in a program

# The method that gives the rows: of polars, pyarrow, datasets, arrays and series, pandas.
HOLDERS = (("to_dicts",), ("to_pylist",), ("to_list",), ("tolist",), ("to_dict", "records"))


def held(rows: Any) -> Any:
    """The list of rows in what holds them: a data frame, an array, a mapping of columns, anything
    that is iterated. Anything else is returned as it is.
    """
    if hasattr(rows, "reset_index") and hasattr(rows, "columns"):
        rows = _with_its_index(rows)
    for method, *options in HOLDERS if hasattr(rows, "__len__") else ():
        if hasattr(rows, method):
            return held(getattr(rows, method)(*options))
    if isinstance(rows, Mapping):
        columns = [*map(held, rows.values())]
        are_columns = all(isinstance(column, list) for column in columns)
        if not are_columns or len({*map(len, columns)}) != 1:
            return rows
        named = [dict(zip(rows, cells, strict=True)) for cells in zip(*columns, strict=True)]
        are_tables = any(all(isinstance(cell, dict) for cell in row.values()) for row in named[:1])
        return rows if are_tables else named
    if isinstance(rows, str | bytes | AbstractSet) or not isinstance(rows, Iterable):
        return rows  # a set has no order
    return [plain(row) for row in rows]


def _with_its_index(frame: Any) -> Any:
    """A data frame of pandas with its named index as columns, which its rows would lose. Raises
    BadInput for a column that stands twice, of which they would lose one.
    """
    _refuse_repeated(frame.columns)
    names = {*frame.index.names} - {None}
    return frame.reset_index() if names and names.isdisjoint(frame.columns) else frame


# Cells


def plain(value: Any) -> Any:
    """Python's own value for one of numpy, pandas or pyarrow; None for NaN and what else stands for
    a missing value.
    """
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float | Decimal) and math.isnan(value):
        return None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else value


# A list as numpy prints it, ['a' 'b'] or [array(['a'])]: Python would read the first as ['ab'].
# Looked for outside the quoted texts, which may say "nan" too. A text without its closing quote
# reaches to the end: from each of its escaped quotes, another search would begin.
QUOTED = re.compile(r"""(?s)'(?:[^'\\]++|\\.)*+(?:'|\\?\Z)|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)""")
NUMPYS = re.compile(r"(?s)\s*+(?!\().*?(?:''\s+''|\barray\(|\bnan\b)")


def decoded(where: str, cell: Any) -> Any:
    """A cell of a table: a list or a mapping parsed from JSON, or from what Python writes; any other
    value unchanged. Raises BadInput for a list as numpy prints it.
    """
    if not isinstance(cell, str) or not cell.lstrip().startswith(("[", "{", "(", "array(")):
        return cell
    with contextlib.suppress(ValueError):
        return parse_json(cell)
    if NUMPYS.match(QUOTED.sub("''", cell)):
        raise BadInput(
            f'{where}: {cell[:80]!r} is a list as numpy prints it; write it as JSON, ["a", "b"]'
        )
    # TypeError: {[0, 1]}, a set of lists
    with contextlib.suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = ast.literal_eval(cell.strip())
        return plain(value) if isinstance(value, list | tuple | dict) else cell
    return cell


def written(cell: Any) -> str | None:
    """A text as it is, and a number or a boolean written out: 42 for 42.0, true; None for anything
    else.
    """
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, str | int):
        return str(cell)
    if not isinstance(cell, float) or not math.isfinite(cell):
        return None
    if cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if "e" in repr(cell) and 1e-15 < abs(cell) < 1e30:
        return format(Decimal(repr(cell)), "f")
    return str(cell)


def probability(where: str, cell: Any) -> float | None:
    """A confidence, None for an unreadable one. Raises BadInput for anything else."""
    is_number = isinstance(cell, int | float) and not isinstance(cell, bool)
    if cell is not None and not (is_number and 0 <= cell <= 1):
        raise BadInput(
            f"{where}: confidence is {cell!r}; expected a number from 0 to 1, or null for unreadable"
        )
    return cell


JUDGEMENTS = {"true": True, "false": False, "yes": True, "no": False, "": None}


def judgement(cell: Any) -> Any:
    """True, false, a number or None from a cell of text; any other cell unchanged."""
    if not isinstance(cell, str):
        return cell
    text = cell.strip().lower()
    if text in JUDGEMENTS:
        return JUDGEMENTS[text]
    try:
        return plain(float(text))
    except ValueError:
        return cell


# Columns by the names that a user gives them

# a cell of text may hold them as JSON or as Python writes them
LISTS = ("answers", "choices", "correct", "labels")


def records(
    path: Path, fields: Fields | None = None, *needed: str, first: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, record) of each row of a file, or of its first rows. Raises BadInput for a record
    without a needed key.
    """
    for row in read(path, first):
        where = row[0]
        cells = record(row, fields)
        for key in needed:
            if key not in cells:
                has = f"it has {', '.join(map(str, cells))}"
                raise BadInput(f"{where}: no key {key!r}; {has}; name its column as fields.{key}")
        yield where, cells


def record(row: Row, fields: Fields | None) -> dict[str, Any]:
    """What `fields` name of a row, under their names; without them, the row. Lists, judgements and
    confidences in cells of text are read. Raises BadInput naming a missing column.
    """
    where, columns = row
    if fields is not None:
        cells = {name: _named(row, name, column) for name, column in fields.items()}
    elif isinstance(columns, dict):
        cells = plain(columns)
    else:
        raise BadInput(f"{where}: expected a mapping of columns, found {type(columns).__name__}")
    for name in cells.keys() & {*LISTS}:
        cells[name] = decoded(where, cells[name])
    for name in cells.keys() & {"correct", "confidence"}:
        cell = cells[name]
        cells[name] = [*map(judgement, cell)] if isinstance(cell, list) else judgement(cell)
    return cells


def _named(row: Row, name: str, column: str | list[str]) -> Any:
    """The cell that a field names, or a list of several."""
    cells = [value(row, name, path) for path in several(row[1], column)]
    return cells[0] if isinstance(column, str) and len(cells) == 1 else cells


def several(row: Any, column: str | list[str]) -> list[str]:
    """The columns that a field names: one, a list of them, or some with commas between ("a,b,c"),
    if no column is called that.
    """
    if isinstance(column, list):
        return column
    names = [name.strip() for name in column.split(",")]
    is_one = not isinstance(row, Mapping) or column in row or not all(names)
    return [column] if is_one else names


def value(row: Row, name: str, column: str) -> Any:
    """The cell of a row in a column, whose own name may have dots. Raises BadInput listing the
    columns. name: the field that names the column.
    """
    where, cell = row
    rest = column
    while rest:
        columns = _columns(where, cell)
        part = rest if rest in columns else rest.partition(".")[0]
        if part not in columns:
            above = column.removesuffix(rest).rstrip(".")
            inside = f" in {above}" if above else ""
            named = f", which fields.{name} names" if name else ""
            known = _known_columns(part, columns, inside)
            raise BadInput(f"{where}: no column {part!r}{inside}{named}; {known}")
        cell = columns[part]
        rest = rest[len(part) + 1 :]
    return plain(cell)


def _columns(where: str, cell: Any) -> dict[str, Any]:
    """What is in a cell, by name or number; nothing where it has no columns."""
    cell = decoded(where, cell)
    if isinstance(cell, list):
        cell = dict(enumerate(cell))
    return {str(key): item for key, item in cell.items()} if isinstance(cell, dict) else {}


def _known_columns(name: str, columns: dict[str, Any], inside: str) -> str:
    """What a message about a missing column says of the others."""
    if not columns:
        return "it has no columns"
    alike = {title.casefold(): title for title in columns}
    close = difflib.get_close_matches(name.casefold(), alike, 1)
    hint = f"did you mean {alike[close[0]]!r}? " if close else ""
    return f"{hint}columns{inside} are {', '.join(columns)}"


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
        fields = {name: named if len(named) > 1 else named[0] for name, named in columns.items()}
        setattr(namespace, self.dest, fields)


OPTION: dict[str, Any] = {
    "nargs": "+",
    "action": Columns,
    "type": str,
    "metavar": "NAME=COLUMN",
    "help": "question=doc.question answers=resps.0: the columns to read, with dots into nested JSON; of JSON lines, CSV or Parquet",
}
