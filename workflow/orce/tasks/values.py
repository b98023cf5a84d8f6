"""Cells of the files that people bring, as texts and accepted answers: a missing value is refused."""

import itertools
from typing import Any

from orce.artefacts import tables
from orce.artefacts.tables import Row, written
from orce.errors import BadInput

# How programs write a missing value into a text.
NOTHING = (
    "nan", "NaN", "NAN", "<NA>", "NaT", "#N/A", "#NA",
    "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NULL!", "#NUM!",
)  # fmt: skip


def is_blank(cell: Any) -> bool:
    """Whether a cell says nothing: no value, no text, or an empty list."""
    return cell is None or cell == [] or not str(cell).strip()


def as_list(cell: Any) -> list:
    return cell if isinstance(cell, list) else [cell]


def required_text(row: Row, path: str, field: str = "") -> str:
    """A text that is not empty; a number is written out. field: where the configuration names the
    path.
    """
    cell = tables.value(row, field, path)
    if isinstance(cell, bool) or written(cell) is None or is_blank(cell):
        shown = cell if len(repr(cell)) <= 60 else f"{str(cell)[:57]}..."
        named = f" (fields.{field})" if field else ""
        raise BadInput(f"{row[0]}: {path!r} is {shown!r}; expected a text that is not empty{named}")
    return str(written(cell))


def refuse_missing(where: str, name: str, text: str, otherwise: str = "") -> str:
    """The text of a reference or an option. Raises BadInput for one that stands for a missing
    value.
    """
    if text.strip() in NOTHING:
        missing = f"{name!r} is {text.strip()!r}, which stands for a missing value"
        raise BadInput(f"{where}: {missing}; fill it in, or leave the row out{otherwise}")
    return text


def accepted_answers(
    where: str, name: str | list[str], cell: Any, after: str | None = None
) -> list[str]:
    """The accepted answers in a cell, or in several: a text, a number or a boolean, or a list of
    them, which a text may hold too. after: the signs before an answer.
    """
    if isinstance(name, list):
        every = [accepted_answers(where, *column, after) for column in zip(name, cell, strict=True)]
        return [*dict.fromkeys(itertools.chain(*every))]
    if isinstance(cell, str) and after is None:
        read = tables.decoded(cell)  # [0, 1] may be an interval, ["0", "1"] is a list of answers
        texts = isinstance(read, list) and (not read or any(isinstance(item, str) for item in read))
        # JSON may be an answer, as it stands
        pythons = isinstance(read, dict) and not cell.lstrip().startswith('{"')
        cell = (
            read
            if texts or pythons
            else refuse_missing(where, name, cell, '; ["nan"] is the word itself')
        )
    given = [item for item in as_list(cell) if item is not None]
    for item in given:
        if written(item) is None:
            hint = f"a part of a record is named with a dot: {name}.NAME"
            raise BadInput(
                f"{where}: {name!r} holds {item!r}; expected a text, a number or a list of them ({hint})"
            )
    answers = [str(written(item)) for item in given]
    if after is not None:
        if not all(after in answer for answer in answers):
            raise BadInput(f"{where}: {name!r} has no {after!r}, which answer_after names")
        answers = [answer.rsplit(after, 1)[1] for answer in answers]
    return list(dict.fromkeys(answer.strip() for answer in answers if answer.strip()))
