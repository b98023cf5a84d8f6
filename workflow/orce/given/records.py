"""Answers and confidences made elsewhere, in place of stage one or of a method of this package.

A record of given answers has an id, and `answers` (the K samples) with `correct` (K judgements) and
`greedy` (the greedy answer, as a text or {answer, correct}); or one `answer` with `correct`. Without
judgements the task compares with its references. A record of given confidences has an id and
`confidence`, and may have `answer` and `correct`.
"""

from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from orce.artefacts import tables
from orce.artefacts.records import Confidence, Example, Greedy, Sample, Scored
from orce.artefacts.tables import Row
from orce.errors import BadInput
from orce.runtime.modules import short
from orce.settings.schema import GivenFile
from orce.tasks import Task, rows, values
from orce.tasks.examples import TESTED
from orce.tasks.rows import Question, Record
from orce.text import read_by


def read_given(given: GivenFile, *needed: str, first: int | None = None) -> dict[str, Row]:
    """{id: (where, record)} of a file of given answers or confidences, or of its first records.
    needed: keys of each record beside id. Raises BadInput naming the line.
    """
    needed = ("id", *needed)
    columns = None if given.fields is UNSET else {key: key for key in needed} | given.fields
    records: dict[str, Row] = {}
    for row in tables.records(Path(given.path), columns, *needed, first=first):
        name = values.required_text(row, "id")
        if name in records:
            place = records[name][0].rpartition(", ")[2]
            raise BadInput(f"{row[0]}: id {name!r} stands in {place} already")
        records[name] = row
    return records


def require_examples(records: dict[str, Row], examples: list[Example], path: str) -> None:
    """Raises BadInput if a file lacks the record of a frozen example, or gives it another question."""
    missing = [example["id"] for example in examples if example["id"] not in records]
    if missing:
        lacking = f"no record with id {missing[0]!r}, and {len(missing)} of {len(examples)} examples have none"
        remedy = "ids must be those of the dataset (fields.id names their column)"
        raise BadInput(f"{path}: {lacking}; {remedy}")
    for example in examples:
        where, record = records[example["id"]]
        asked = record.get("question")
        if not isinstance(asked, str):
            continue
        given = " ".join(asked.casefold().split())
        own = " ".join(example["question"].casefold().split())
        # Either may have an instruction or a passage around it.
        if given not in own and own not in given:
            own_question = f"that of id {example['id']!r} is {short(example['question'])}"
            remedy = "name the file of this dataset, or leave the key out"
            raise BadInput(f"{where}: its question is {short(asked)}, and {own_question}; {remedy}")


def make_sample(given: Question, split: str, example: Example, task: Task) -> Sample:
    """The record of samples.jsonl made from given answers. Without `greedy`, the first of the
    answers counts as the greedy one. Without a judgement an empty answer, or null, is wrong;
    `judged` is true where judgements came with the answers.
    """
    if given.samples is None:
        lacking = "no key 'answers', a list of texts, and no 'answer'"
        raise BadInput(f"{given.where}: {lacking}; the keys read are {', '.join(given.more)}")
    judgements = given.judgements or [None] * len(given.samples)
    read = []
    for text, right in zip(given.samples, judgements, strict=True):
        read.append(label_answer(given.where, text, right, example, task))
    greedy = read[0]
    if given.greedy is not None and split in TESTED:
        greedy = label_answer(f"{given.where}, greedy", *given.greedy, example, task)
    return Sample(
        id=example["id"],
        split=split,
        answers=[answer.answer for answer in read],
        raw=[answer.raw for answer in read],
        correct=[bool(answer.correct) for answer in read],
        read_by=[read_by(answer.answer) for answer in read],
        greedy=replace(greedy, read_by=read_by(greedy.answer)) if split in TESTED else UNSET,
        judged=UNSET if given.judgements is None else True,
    )


def label_answer(
    where: str, text: str | None, correct: bool | None, example: Example, task: Task
) -> Greedy:
    """The answer in a given text with its judgement; correct: None lets the task compare with its
    references.
    """
    answer = task.extract(text, example) if text else None
    if correct is None:
        try:
            return Greedy.of(answer, text or "", task.score(answer, example))
        except BadInput as error:
            raise BadInput(f"{where}: no 'correct', and {error}") from None
    f1 = task.score(answer, example)["f1"] if example["reference"] else None
    return Greedy(answer=answer, raw=text or "", correct=bool(correct), f1=f1)


def score_answer(record: Sample, answer: str | None, example: Example, task: Task) -> Scored:
    """An answer of a record of samples.jsonl, with its judgement there if it was given or graded."""
    is_graded = record.graded is True
    if answer is None or not (is_graded or record.judged is True):
        return Scored.of(answer, answer or "", task.score(answer, example))
    if answer not in record.answers:
        raise BadInput(
            f"question {record.id!r}: {short(answer)} is chosen, which is none of the judged samples"
        )
    right = record.correct[record.answers.index(answer)]
    f1 = task.score(answer, example)["f1"] if is_graded or example["reference"] else None
    return Scored(answer=answer, raw=answer, correct=right, f1=f1)


def make_confidence(
    where: str, record: Record, greedy: Greedy, example: Example, task: Task
) -> Confidence:
    """The record of confidences.jsonl made from a given record: the confidence in its own answer, or
    else in the greedy one.
    """
    stated = tables.probability(where, record["confidence"])
    answer, correct = rows.read_answers(where, record).own
    scored = greedy
    if correct is not None or answer not in (None, greedy.answer, greedy.raw):
        scored = label_answer(where, answer, correct, example, task)
    return Confidence.of(example, scored, stated, record.get("raw", scored.raw))
