"""Files in the publisher's layout, and checks of their rows and of the hub's (parts.hub)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from orce.artefacts.files import from_json, unique
from orce.errors import BadInput

T = TypeVar("T")
Row = tuple[str, dict]  # where the row comes from, for messages, and its fields


def folder(source: Mapping[str, Any]) -> Path:
    """The folder (or file) that a source names."""
    if "path" not in source:
        raise BadInput(f"source: {dict(source)} names neither hub nor path; this task needs one of them")
    if not Path(source["path"]).exists():
        raise BadInput(f"{source['path']}: does not exist; source.path is a folder with the publisher's files")
    return Path(source["path"])


def find(source: Mapping[str, Any], candidates: Iterable[str]) -> Path:
    """The first of the candidate file names that exists in the source's folder, or the path itself if it is a file."""
    place = folder(source)
    candidates = list(candidates)
    if place.is_file():
        return place
    found = next((place / name for name in candidates if (place / name).exists()), None)
    if found is None:
        raise BadInput(f"{place}: found none of {', '.join(candidates)}; expected the publisher's files in this folder")
    return found


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
        return from_json(text, unique)
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}, line {error.lineno}: not valid JSON ({error.msg}); is the file cut off?") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def field(row: Row, key: str):
    where, fields = row
    if not isinstance(fields, dict) or key not in fields:
        raise BadInput(f"{where}: no {key!r}; expected a record with that key")
    return fields[key]


def text_field(row: Row, key: str) -> str:
    value = field(row, key)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{row[0]}: {key!r} is {value!r}; expected a text that is not empty")
    return value


class Twice(NamedTuple):
    """An id of two examples, and their places."""

    id: str
    first: int
    again: int


def twice(examples: Sequence[Mapping[str, Any]]) -> Twice | None:
    """The first id that a second example has."""
    seen: dict[str, int] = {}
    for place, name in enumerate(example["id"] for example in examples):
        if seen.setdefault(name, place) != place:
            return Twice(name, seen[name], place)
    return None


def unique_ids(examples: list[T], places: list[str], otherwise: str = "") -> list[T]:
    """The examples, mappings with an `id`, if their ids differ. Raises BadInput naming both places of a repeated id, and
    what else would do."""
    every: list[Any] = examples
    if found := twice(every):
        where, first = places[found.again], places[found.first]
        raise BadInput(f"{where}: id {found.id!r} is also the id of {first}; ids must be unique{otherwise}")
    return examples
