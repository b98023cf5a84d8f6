"""Questions, answers and labels as people have them, as the frozen prompts and the given answers of the workflow."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orce.apps.given import references
from orce.artefacts import tables
from orce.errors import BadInput
from orce.tasks.rows import unique_ids

GIVEN = ("answer", "answers", "greedy", "correct")  # keys of answers already made: orce.tasks.given_records
JUDGED = {"yes", "no", "true", "false", "right", "wrong", "correct", "incorrect"}
NONE = {"qa": [""]}  # references that no answer equals, for questions without one
Record = dict[str, Any]  # a question with what people know of it
Questions = str | Path | Sequence[str | Mapping[str, Any]]


def read(questions: Questions, fields: tables.Fields | None, answers=None, labels=None) -> list[tuple[str, Record]]:
    """(place, record) of every question; a record has a question, and an answer and a reference where they are known.

    questions: texts, mappings, or the path of a file (.jsonl, .json, .csv, .tsv, .parquet). answers: one a question, a text, a list
    of samples or a mapping as in orce.tasks.given_records. labels: one a question, the accepted answer or a list of them; or,
    for given answers, true or false. Raises BadInput naming the question.
    """
    if not isinstance(questions, str | Path):
        rows: list[tuple[str, Any]] = [(f"question {i}", one) for i, one in enumerate(questions, 1)]
    elif Path(questions).is_file():
        rows = [*tables.read(Path(questions))]
    else:
        raise BadInput(
            f"{str(questions)!r}: no such file of questions; a single question is a list of one: [{str(questions)!r}]"
        )
    if not rows:
        raise BadInput("no questions; expected a list of texts or of mappings, or the path of a file")
    if fields is not None:
        rows = [(where, tables.record((where, one), fields)) for where, one in rows]
    places, records = [where for where, _ in rows], [_record(where, one, i) for i, (where, one) in enumerate(rows)]
    for name, values, add in (("answers", answers, _with_answer), ("labels", labels, _with_label)):
        if values is not None:
            if isinstance(values, str) or len(values) != len(records):
                count = "a text" if isinstance(values, str) else len(values)
                raise BadInput(f"{name}: expected {len(records)}, one for each question, found {count}")
            records = [add(*one) for one in zip(places, records, values, strict=True)]
    unique_ids(records, places)
    if labels is not None:
        _accepted(records, labels)
    for what, has in (("answers", already), ("references", labelled)):
        having = [bool(has(record)) for record in records]
        if any(having) and not all(having):
            where = places[having.index(False)]
            raise BadInput(f"{where}: no {what}, and other questions have some; give them for all, or for none")
    return [*zip(places, records, strict=True)]


def example(where: str, record: Record, task: str) -> Record:
    """The frozen prompt of a record."""
    if task == "choice" and record["choices"] is None:
        raise BadInput(f"{where}: no 'choices', and other questions have some; ask the two kinds apart")
    kept = {key: value for key, value in record.items() if key not in (*GIVEN, "references")}
    return kept | {"reference": references(record) or NONE.get(task, "")}


def already(record: Record) -> Record | None:
    """The answers already made of a record, as orce.tasks.given_records reads them; None without any."""
    answers = {key: record[key] for key in GIVEN if record.get(key) is not None}
    if not set(answers) - {"correct"}:
        return None
    if "correct" not in answers and not references(record):  # not graded: the judgement is dropped in the end
        answers["correct"] = [False] * len(answers["answers"]) if "answers" in answers else False
    return {"id": record["id"]} | answers


def labelled(record: Record) -> bool:
    """Whether the answers of a record can be graded, or were."""
    return bool(references(record)) or record.get("correct") is not None


def _record(where: str, one, place: int) -> Record:
    record = {"question": one} if isinstance(one, str) else one
    if not isinstance(record, Mapping):
        raise BadInput(f"{where}: expected a text or a mapping with 'question', found {type(one).__name__}")
    if not isinstance(record.get("question"), str) or not record["question"].strip():
        there = f"; it has {', '.join(map(str, record))}" if "question" not in record else ""
        raise BadInput(f"{where}: 'question' is {record.get('question')!r}; expected a text that is not empty{there}")
    decoded = {key: tables.decoded(value) if key != "question" else value for key, value in record.items()}
    parts = {key: None if value == "" else value for key, value in decoded.items()}  # an empty cell of a table
    return {"context": None, "choices": None} | parts | {"id": str(parts.get("id") or f"test-{place}")}


def _with_answer(where: str, record: Record, value) -> Record:
    if isinstance(value, str) or value is None:
        return record | {"answer": value or ""}
    if isinstance(value, Mapping):
        return record | dict(value)
    if isinstance(value, Sequence) and value:
        return record | {"answers": list(value)}
    raise BadInput(f"{where}: the answer is {value!r}; expected a text, a list of samples, or a mapping")


def _with_label(where: str, record: Record, value) -> Record:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        if already(record) is None:
            raise BadInput(f"{where}: the label is {value}; true and false grade given answers, and none is given")
        several = len(record["answers"]) if record.get("answers") else 0
        if several > 1:
            raise BadInput(f"{where}: one label for {several} samples; give the accepted answer, or 'correct' for each")
        return record | {"correct": [value] if several else value}
    if isinstance(value, str | list) and value:
        return record | {"reference": value}
    raise BadInput(f"{where}: the label is {value!r}; expected the accepted answer, or a list of them; or True or False of a given answer")  # fmt: skip


def _accepted(records: list[Record], labels: Sequence[Any]) -> None:
    """Raises BadInput if labels are words for right and wrong, which would be accepted answers that no answer equals."""
    words = {str(label).strip().casefold() for label in labels}
    texts = str([record[key] for record in records for key in ("answer", "answers", "greedy") if record.get(key)])
    if words <= JUDGED and all(map(already, records)) and words.isdisjoint(re.findall(r"\w+", texts.casefold())):
        raise BadInput(
            f"labels are {', '.join(sorted(words))}, which no answer says; judgements of answers are True and False"
        )
