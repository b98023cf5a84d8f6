"""Answers and confidences made elsewhere, in place of stage one or of a method of this package.

A record of given answers has an id and either `answers` (the K samples), with `correct` (K judgements) and `greedy` (the
greedy answer, as a text or {answer, correct}), or one `answer` with `correct`. Without judgements the task compares with
its references. A record of given confidences has an id and `confidence`, and may have `answer` and `correct`.
"""

from pathlib import Path
from typing import Any

from msgspec import UNSET

from orce.artefacts import tables
from orce.errors import BadInput
from orce.records import Confidence, Example, Greedy, Sample, Scored
from orce.runtime.modules import short
from orce.stage_settings import File
from orce.tasks import Task
from orce.tasks.examples import TESTED

Record = dict[str, Any]  # a line of a user's file


def read(given: File, *needed: str) -> dict[str, tuple[str, Record]]:
    """{id: (where, record)} of a file of given answers or confidences. Raises BadInput naming the line."""
    records: dict[str, tuple[str, Record]] = {}
    columns = None if given.fields is UNSET else {key: key for key in ("id", *needed)} | given.fields
    for row in tables.read(Path(given.path)):
        where, record = row[0], tables.record(row, columns)
        for key in ("id", *needed):
            if key not in record:
                raise BadInput(f"{where}: no key {key!r}; it has {', '.join(record)}")
        name = str(record["id"])
        if name in records:
            raise BadInput(f"{where}: id {name!r} stands in {records[name][0].rpartition(', ')[2]} already")
        records[name] = (where, record)
    return records


def require(records: dict[str, tuple[str, Record]], examples: list[Example], path: str) -> None:
    """Raises BadInput if a file lacks the record of a frozen example, or gives it another question."""
    if missing := [example["id"] for example in examples if example["id"] not in records]:
        message = f"no record with id {missing[0]!r}, and {len(missing)} of {len(examples)} examples have none"
        raise BadInput(f"{path}: {message}; ids are those of the dataset (fields.id names their column)")
    for example in examples:
        where, record = records[example["id"]]
        asked, own = record.get("question"), " ".join(example["question"].casefold().split())
        given = " ".join(asked.casefold().split()) if isinstance(asked, str) else own
        if given not in own and own not in given:  # either may have an instruction or a passage around it
            reason = f"its question is {short(asked)}, and that of id {example['id']!r} is {short(example['question'])}"
            raise BadInput(f"{where}: {reason}; name the file of this dataset, or leave the key out")


def samples(where: str, record: Record, split: str, example: Example, task: Task) -> Sample:
    """The record of samples.jsonl made from a given record; `judged` is true where its judgements came with it.

    Without `greedy`, the first of the answers counts as the greedy one. An empty answer, or null, counts as wrong.
    """
    if "answers" not in record and "answer" not in record:
        raise BadInput(f"{where}: no key 'answers', a list of texts, and no 'answer'; it has {', '.join(record)}")
    texts = record["answers"] if "answers" in record else [record["answer"]]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str | None) for text in texts):
        raise BadInput(f"{where}: answers is {short(texts)}; expected a list of texts")
    correct = record.get("correct")
    if correct is not None and "answers" in record:
        if not isinstance(correct, list) or len(correct) != len(texts) or not all(mark in (0, 1) for mark in correct):
            raise BadInput(
                f"{where}: correct is {short(correct)}; expected true or false for each of {len(texts)} answers"
            )
    elif correct is not None:
        correct = [correct]
    judgements = [None] * len(texts) if correct is None else correct
    read = [judged(where, *pair, example, task) for pair in zip(texts, judgements, strict=True)]
    greedy, given = read[0], record.get("greedy") if split in TESTED else None
    if given is not None:
        text, right = (given.get("answer"), given.get("correct")) if isinstance(given, dict) else (given, None)
        if not isinstance(text, str | None):
            raise BadInput(f"{where}: greedy is {short(given)}; expected a text, or an object with answer and correct")
        if right is None and text in texts:
            right = judgements[texts.index(text)]
        greedy = judged(f"{where}, greedy", text, right, example, task)
    return Sample(
        id=example["id"],
        split=split,
        answers=[sample.answer for sample in read],
        raw=[sample.raw for sample in read],
        correct=[bool(sample.correct) for sample in read],
        greedy=greedy if split in TESTED else UNSET,
        judged=UNSET if correct is None else True,
    )


def judged(where: str, text: str | None, correct: Any, example: Example, task: Task) -> Greedy:
    """The answer in a given text; `correct` None: the task compares with its references."""
    answer = task.extract(text, example) if text else None
    if correct is None:
        if answer is not None and not example["reference"]:
            remedy = "the dataset has no references (fields.answer); give one of them"
            raise BadInput(f"{where}: no 'correct', and {remedy}")
        return Greedy.of(answer, text or "", task.score(answer, example))
    if correct not in (0, 1):
        raise BadInput(f"{where}: correct is {short(correct)}; expected true or false")
    if answer is None and text and not example["choices"]:
        answer = text.strip() or None  # the judgement is of this text, whatever the task reads in it
    f1 = task.score(answer, example)["f1"] if example["reference"] else None
    return Greedy(answer=answer, raw=text or "", correct=bool(correct), f1=f1)


def scored(record: Sample, answer: str | None, example: Example, task: Task) -> Scored:
    """An answer of a record of samples.jsonl, with its judgement there if it was given or graded."""
    if answer is None or (record.graded is not True and record.judged is not True):
        return Scored.of(answer, answer or "", task.score(answer, example))
    f1 = task.score(answer, example)["f1"] if record.graded is True else None
    return Scored(answer=answer, raw=answer, correct=record.correct[record.answers.index(answer)], f1=f1)


def confidence(where: str, record: Record, greedy: Greedy, example: Example, task: Task) -> Confidence:
    """The record of confidences.jsonl made from a given record: of its own answer, or else of the greedy answer."""
    stated = record["confidence"]
    if stated is not None and (isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 <= stated <= 1):
        raise BadInput(f"{where}: confidence is {short(stated)}; expected a number from 0 to 1, or null for unreadable")
    answer, judgement = record.get("answer"), greedy
    if not isinstance(answer, str | None):
        raise BadInput(f"{where}: answer is {short(answer)}; expected a text, or none for the greedy answer")
    if answer not in (None, greedy.answer, greedy.raw):
        judgement = judged(where, answer, record.get("correct"), example, task)
    return Confidence.of(example, judgement, stated, record.get("raw", judgement.raw))
