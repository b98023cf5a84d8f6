"""A method's confidences.jsonl as arrays: the one reader of that file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import UNSET, UnsetType

from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Confidence, Number


@dataclass(frozen=True)
class Stated:
    """A method's statements on the n test items.

    ids and answers: n each; an answer of None could not be read. confidence: float [n] in [0, 1]; correct: bool [n]; f1:
    float [n], or None where the task has none; mean: float [n], of the distributions, or None where there are none. unread: how many confidences could not be read and hold the default.
    retried: how many were read at a second try, or not even then. of_mode: whether the confidences are the distributions'
    modes.
    """

    ids: list[str]
    answers: list[str | Number | None]
    confidence: np.ndarray
    correct: np.ndarray
    f1: np.ndarray | None
    mean: np.ndarray | None
    unread: int
    retried: int
    of_mode: bool


def read(path: str | Path, unparsed: float) -> Stated:
    """The statements in a file; `unparsed` replaces a confidence that could not be read.

    Raises BadInput naming the line of a record that no confidence step writes.
    """
    return of(store.records(path, Confidence), path, unparsed)


def records(path: str | Path) -> list[Confidence]:
    """The records of a file that `read` takes."""
    found = store.records(path, Confidence)
    of(found, path, 0.5)
    return found


def of(records: Sequence[Confidence], path: str | Path, unparsed: float) -> Stated:
    """`read` of records that are in memory; `path` is named in errors."""
    seen: dict[str, int] = {}
    for line, record in enumerate(records, 1):
        _check(f"{path}, line {line}", record)
        if seen.setdefault(record.id, line) != line:
            raise BadInput(f"{path}, line {line}: id {record.id!r} stands in line {seen[record.id]} already")
    stated = [record.confidence for record in records]
    return Stated(
        ids=[record.id for record in records],
        answers=[record.answer for record in records],
        confidence=np.array([unparsed if value is None else value for value in stated], dtype=float),
        correct=np.array([record.correct for record in records], dtype=bool),
        f1=_column([record.f1 for record in records]),
        mean=_column([record.mean for record in records]),
        unread=stated.count(None),
        retried=sum(record.retried is True for record in records),
        of_mode=any(record.mode is not UNSET for record in records),
    )


def _column(values: Sequence[Number | UnsetType | None]) -> np.ndarray | None:
    return None if None in values or UNSET in values else np.array(values, dtype=float)


def _check(where: str, record: Confidence) -> None:
    if record.confidence is not None and not 0 <= record.confidence <= 1:
        raise BadInput(f"{where}: confidence is {record.confidence!r}; expected a number from 0 to 1, or null")
    if record.correct not in (0, 1):
        raise BadInput(f"{where}: correct is {record.correct!r}; expected true or false")
