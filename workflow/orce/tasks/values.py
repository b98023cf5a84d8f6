"""Cells of the files that people bring, as texts and accepted answers; a missing value is refused."""

from typing import Any

from orce.artefacts import tables
from orce.artefacts.tables import Row, written
from orce.errors import BadInput
from orce.runtime.modules import short

# How programs write a missing value into a cell of text.
NOTHING = (
    "nan", "NaN", "NAN", "<NA>", "NaT", "#N/A", "#NA",
    "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NULL!", "#NUM!",
)  # fmt: skip


def is_blank(cell: Any) -> bool:
    """Whether a cell says nothing: no value, no text, or an empty list."""
    return cell is None or cell == [] or not str(cell).strip()


def as_list(cell: Any) -> list:
    return cell if isinstance(cell, list) else [cell]


def list_or_empty(cell: Any) -> list:
    return [] if is_blank(cell) else as_list(cell)


def required_text(row: Row, path: str, field: str = "") -> str:
    """The text in a column (path), which may not be empty; a number is written out. field: the key
    of the configuration's `fields` that names the column.
    """
    cell = tables.value(row, field, path)
    text = None if isinstance(cell, bool) else written(cell)
    if text is None or is_blank(text):
        named = f" (fields.{field})" if field else ""
        expected = f"expected a text that is not empty{named}"
        raise BadInput(f"{row[0]}: {path!r} is {short(cell)}; {expected}")
    return text


def refuse_missing(where: str, name: str, text: str, otherwise: str = "") -> None:
    """Raises BadInput for a reference or an option whose text stands for a missing value."""
    if text.strip() in NOTHING:
        missing = f"{name!r} is {text.strip()!r}, which stands for a missing value"
        raise BadInput(f"{where}: {missing}; fill it in, or leave the row out{otherwise}")


def accepted_answers(
    where: str, name: str | list[str], cell: Any, after: str | None = None
) -> list[str]:
    """The accepted answers in a cell, or in several: a text, a number or a boolean, or a list of
    them, which a text may hold too. after: the signs before an answer (`answer_after`).
    """
    if isinstance(name, list):
        found: list[str] = []
        for column, part in zip(name, cell, strict=True):
            found += accepted_answers(where, column, part, after)
        return [*dict.fromkeys(found)]
    if isinstance(cell, str) and after is None:
        cell = _listed_in_text(where, name, cell)
    answers = []
    for item in as_list(cell):
        if item is None:
            continue
        answer = written(item)
        if answer is None:
            hint = f"a part of a record is named with a dot: {name}.NAME"
            expected = f"expected a text, a number or a list of them ({hint})"
            raise BadInput(f"{where}: {name!r} holds {item!r}; {expected}")
        answers.append(answer)
    if after is not None:
        if not all(after in answer for answer in answers):
            raise BadInput(f"{where}: {name!r} has no {after!r}, which answer_after names")
        answers = [answer.rsplit(after, 1)[1] for answer in answers]
    return list(dict.fromkeys(answer.strip() for answer in answers if answer.strip()))


def _listed_in_text(where: str, name: str, text: str) -> Any:
    """What a text holds where that is a list of answers or a mapping that Python wrote; the text
    itself for anything else. Raises BadInput for a missing value.
    """
    read = tables.decoded(where, text)
    # ["0", "1"] is a list of answers; [0, 1] may be an interval, an answer as it stands.
    if isinstance(read, list) and (not read or any(isinstance(item, str) for item in read)):
        return read
    # {'a': 1} is a mapping; {"a": 1} may be JSON that is asked for, an answer as it stands.
    if isinstance(read, dict) and not text.lstrip().startswith('{"'):
        return read
    refuse_missing(where, name, text, '; ["nan"] is the word itself')
    return text
