"""Files in the publisher's layout, and checks of their rows and of the hub's (parts.hub)."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from orce.artefacts.tables import Row
from orce.errors import BadInput

T = TypeVar("T")


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
