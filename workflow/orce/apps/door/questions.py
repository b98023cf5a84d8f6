"""Questions, answers and labels as people have them, as the frozen prompts and the given answers of the workflow."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

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
    if isinstance(questions, str | Path):
        rows = tables.read(_file(questions))
    else:
        rows = [(f"question {i}", one) for i, one in enumerate(questions, 1)]
    if not rows:
        raise BadInput("no questions; expected a list of texts or of mappings, or the path of a file")
    if fields is not None:
        rows = [(where, tables.record((where, cast(dict, one)), fields)) for where, one in rows]
    records = [(where, _record(where, one, i)) for i, (where, one) in enumerate(rows)]
    for name, values, add in (("answers", answers, _with_answer), ("labels", labels, _with_label)):
        if values is None:
            continue
        if isinstance(values, str) or len(values) != len(records):
            raise BadInput(f"{name}: expected {len(records)}, one for each question, found {_count(values)}")
        records = [(where, add(where, record, value)) for (where, record), value in zip(records, values, strict=True)]
    unique_ids([record for _, record in records], [where for where, _ in records])
    if labels is not None:
        _accepted([record for _, record in records], labels)
    _all_or_none(records, "answers", lambda record: given(record) is not None)
    _all_or_none(records, "references", labelled)
    return records


def example(where: str, record: Record, task: str) -> Record:
    """The frozen prompt of a record."""
    accepted = references(record)
    if task == "choice" and record["choices"] is None:
        raise BadInput(f"{where}: no 'choices', and other questions have some; ask the two kinds apart")
    kept = {key: value for key, value in record.items() if key not in (*GIVEN, "references")}
    return kept | {"reference": accepted or NONE.get(task, "")}


def given(record: Record) -> Record | None:
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


def _file(path: str | Path) -> Path:
    if not Path(path).is_file():
        raise BadInput(f"{str(path)!r}: no such file of questions; a single question is a list of one: [{str(path)!r}]")
    return Path(path)


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


def _accepted(records: list[Record], labels: Sequence[Any]) -> None:
    """Raises BadInput if labels are words for right and wrong, which would be accepted answers that no answer equals."""
    words = {str(label).strip().casefold() for label in labels}
    texts = [str([record[key] for key in ("answer", "answers", "greedy") if record.get(key)]) for record in records]
    if words <= JUDGED and all(given(record) for record in records) and words.isdisjoint(re.findall(r"\w+", str(texts).casefold())):  # fmt: skip
        raise BadInput(
            f"labels are {', '.join(sorted(words))}, which no answer says; judgements of answers are True and False"
        )


def _with_label(where: str, record: Record, value) -> Record:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        if given(record) is None:
            raise BadInput(f"{where}: the label is {value}; true and false grade given answers, and none is given")
        several = len(record["answers"]) if record.get("answers") else 0
        if several > 1:
            raise BadInput(f"{where}: one label for {several} samples; give the accepted answer, or 'correct' for each")
        return record | {"correct": [value] if several else value}
    if isinstance(value, str | list) and value:
        return record | {"reference": value}
    raise BadInput(f"{where}: the label is {value!r}; expected the accepted answer, or a list of them; or True or False of a given answer")  # fmt: skip


def _count(values) -> str:
    return "a text" if isinstance(values, str) else str(len(values))


def _all_or_none(records: list[tuple[str, Record]], what: str, has) -> None:
    having = [has(record) for _, record in records]
    if any(having) and not all(having):
        where = records[having.index(False)][0]
        raise BadInput(f"{where}: no {what}, and other questions have some; give them for all, or for none")
