"""A plain CSV or TSV with a header: one line for each question.

Columns, or others by --column NAME=COLUMN: question, id, answer (or answers, a JSON list; or answer_1, answer_2, ...), correct (or
correct_1, ...), reference (a text or a JSON list), choices (a JSON list; the reference is then a letter or a text of it),
confidence (or confidence_NAME for each of several methods).
"""

import re
from collections.abc import Iterator

from orce.apps.importers.row import Row, confidence, judgement, letter
from orce.errors import BadInput
from orce.tasks.parts import fields

NAMES = ("question", "id", "answer", "answers", "correct", "reference", "choices", "confidence")
STATED = "stated"  # the method of a column `confidence`


def read(path: str, options) -> Iterator[Row]:
    """The rows of one file. options: columns {NAME: COLUMN} and judgements of the command line."""
    records = fields.rows({"path": path}, "")
    names = options.columns
    for name, column in names.items():
        if column not in records[0][1]:
            raise BadInput(f"{path}: no column {column!r} for {name}; columns are {', '.join(records[0][1])}")
    for place, record in records:
        yield _row(place, {**record, **{name: record[column] for name, column in names.items()}}, options)


def _row(place: str, record: dict[str, str], options) -> Row:
    answers = _several(place, record, "answer", "answers")
    if not answers:
        raise BadInput(f"{place}: no column answer, answers or answer_1 (--column answer=COLUMN); there are {', '.join(record)}")  # fmt: skip
    row = Row(place, record.get("question", ""), answers, id=record.get("id") or None)
    if not row.question.strip() and not row.id:
        raise BadInput(f"{place}: no question and no id; one of them is needed (--column question=COLUMN)")
    row.choices = _list(place, record, "choices") or None
    row.reference = _reference(place, record, row.choices)
    correct = _several(place, record, "correct", "corrects") if options.judgements == "keep" else []
    if correct:
        if len(correct) != len(answers):
            raise BadInput(f"{place}: {len(correct)} judgements of {len(answers)} answers; expected one for each")
        row.correct = [judgement(place, one) for one in correct]
    for name, value in record.items():
        if name == "confidence" or name.startswith("confidence_"):
            row.stated[name.removeprefix("confidence_") if "_" in name else STATED] = {
                "confidence": confidence(place, value)
            }
    return row


def _several(place: str, record: dict[str, str], one: str, listed: str) -> list:
    """The cell `one`, the cells `one`_1, `one`_2, ... in their order, or the JSON list `listed`."""
    numbered = sorted((int(name[len(one) + 1 :]), name) for name in record if re.fullmatch(rf"{one}_\d+", name))
    if record.get(listed):
        return _list(place, record, listed)
    if numbered:
        return [record[name] or None for _, name in numbered]
    return [record[one] or None] if one in record else []


def _list(place: str, record: dict[str, str], name: str) -> list[str]:
    if not record.get(name):
        return []
    texts = fields.decoded(record[name])
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise BadInput(f'{place}: {name} is {record[name]!r}; expected a JSON list of texts, ["a", "b"]')
    return texts


def _reference(place: str, record: dict[str, str], choices: list[str] | None):
    given = record.get("reference")
    if not given:
        return None
    if choices is None:
        texts = fields.decoded(given)
        return texts if isinstance(texts, list) and all(isinstance(one, str) for one in texts) else [given]
    letters = [letter(i) for i in range(len(choices))]
    if given in choices:
        return letters[choices.index(given)]
    if given.strip().upper() not in letters:
        raise BadInput(f"{place}: reference is {given!r}; expected {', '.join(letters)} or a text of the options")
    return given.strip().upper()
