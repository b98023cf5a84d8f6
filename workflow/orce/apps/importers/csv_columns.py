"""A plain table: CSV or TSV with a header, JSON lines, JSON or Parquet; one row for each question, or for each of its samples.

Columns, or others by --column NAME=COLUMN: question, id, answer (or answers, a list; or answer_1, answer_2, ...), correct (or a list;
or correct_1, ...), reference (a text or a list), choices (a list; the reference is then a letter or a text of it), confidence
(or confidence_NAME for each of several methods, or confidences, {NAME: confidence}). In a cell of text, a list stands as JSON.
"""

import re
from collections.abc import Iterator
from typing import Any

from orce.apps.importers.row import Row, confidence, judgement, letter
from orce.errors import BadInput
from orce.tasks.parts import fields

NAMES = ("question", "id", "answer", "answers", "correct", "reference", "choices", "confidence", "confidences")
Cells = dict[str, Any]  # a row of the table
READ = re.compile(rf"{'|'.join(NAMES)}|(answer|correct)_\d+|confidence_.+")
STATED = "stated"  # the method of a column `confidence`


def read(path: str, options) -> Iterator[Row]:
    """The rows of one file. options: columns {NAME: COLUMN} and judgements of the command line."""
    records = fields.rows({"path": path}, "")
    names = options.columns
    for name, column in names.items():
        if column not in records[0][1]:
            raise BadInput(f"{path}: no column {column!r} for {name}; columns are {', '.join(records[0][1])}")
    for place, record in records:
        row = _row(place, {**record, **{name: record[column] for name, column in names.items()}}, options)
        row.further = tuple(name for name in record if name not in names.values() and not READ.fullmatch(name))
        yield row


def _row(place: str, record: Cells, options) -> Row:
    answers = [_text(place, one) or None for one in _answers(place, record)]
    if not answers:
        raise BadInput(f"{place}: no column answer, answers or answer_1 (--column answer=COLUMN); there are {', '.join(record)}")  # fmt: skip
    row = Row(
        place,
        _text(place, record.get("question")),
        answers,
        id=_text(place, record.get("id")) or None,
    )
    if not row.question.strip() and not row.id:
        raise BadInput(f"{place}: no question and no id; one of them is needed (--column question=COLUMN)")
    row.choices = _list(place, record, "choices") or None
    row.reference = _reference(place, record, row.choices)
    correct = _judgements(record) if options.judgements == "keep" else []
    if correct:
        if len(correct) != len(answers):
            raise BadInput(f"{place}: {len(correct)} judgements of {len(answers)} answers; expected one for each")
        row.correct = [judgement(place, one) for one in correct]
    row.stated = {name: {"confidence": confidence(place, value)} for name, value in _stated(place, record).items()}
    return row


def _stated(place: str, record: Cells) -> Cells:
    """{method: cell} of the columns confidence and confidence_NAME, and of the mapping in confidences."""
    several = fields.decoded(record.get("confidences")) or {}
    if not isinstance(several, dict):
        raise BadInput(f"{place}: confidences is {several!r}; expected a mapping of names to numbers from 0 to 1")
    own = {STATED: record["confidence"]} if "confidence" in record else {}
    return own | {name[11:]: cell for name, cell in record.items() if name.startswith("confidence_")} | several


def _answers(place: str, record: Cells) -> list:
    """The list in `answers`, or the cells of `answer`."""
    whole = fields.decoded(record.get("answers"))
    if whole and not isinstance(whole, list):
        raise BadInput(f'{place}: answers is {whole!r}; expected a list of texts, ["a", "b"]')
    return whole or _cells(record, "answer")


def _judgements(record: Cells) -> list:
    """The list in `correct`, which may stand in it as JSON, or its cells."""
    cells = _cells(record, "correct")
    whole = fields.decoded(cells[0]) if len(cells) == 1 else None
    return whole if isinstance(whole, list) else cells


def _cells(record: Cells, name: str) -> list:
    """The cells NAME_1, NAME_2, ... in their order, or the cell NAME, whose list is meant as one. A text stays one text."""
    numbered = sorted((int(key[len(name) + 1 :]), key) for key in record if re.fullmatch(rf"{name}_\d+", key))
    if numbered:
        return [record[key] for _, key in numbered]
    whole = record.get(name)
    return whole if isinstance(whole, list) else [whole] if name in record else []


def _text(place: str, cell) -> str:
    """A cell as a text; "" for none. Of a file that has numbers they are texts too."""
    if not isinstance(cell, str | int | float | None):
        raise BadInput(f"{place}: a cell is {cell!r}; expected a text")
    return "" if cell is None else str(cell)


def _list(place: str, record: Cells, name: str) -> list[str]:
    if not record.get(name):
        return []
    texts = fields.decoded(record[name])
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise BadInput(f'{place}: {name} is {record[name]!r}; expected a JSON list of texts, ["a", "b"]')
    return texts


def _reference(place: str, record: Cells, choices: list[str] | None):
    whole = fields.decoded(record.get("reference"))
    if choices is None and isinstance(whole, list) and all(isinstance(one, str) for one in whole):
        return whole or None
    given = _text(place, record.get("reference"))
    if not given:
        return None
    if choices is None:
        return [given]
    letters = [letter(i) for i in range(len(choices))]
    if given in choices:
        return letters[choices.index(given)]
    if given.strip().upper() not in letters:
        raise BadInput(f"{place}: reference is {given!r}; expected {', '.join(letters)} or a text of the options")
    return given.strip().upper()
