"""Answers and confidences made elsewhere, in place of stage one or of a method of this package.

A record of given answers has an id and either `answers` (the K samples), with `correct` (K
judgements) and `greedy` (the greedy answer, as a text or {answer, correct}), or one `answer` with
`correct`. Without judgements the task compares with its references. A record of given confidences
has an id and `confidence`, and may have `answer` and `correct`.
"""

from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from orce.artefacts import tables
from orce.artefacts.records import Confidence, Example, Greedy, Sample, Scored
from orce.errors import BadInput
from orce.runtime.modules import short
from orce.settings.schema import GivenFile
from orce.tasks import Task, rows, values
from orce.tasks.examples import TESTED
from orce.tasks.rows import Question, Record
from orce.text import read_by


def read_given(
    given: GivenFile, *needed: str, first: int | None = None
) -> dict[str, tuple[str, Record]]:
    """{id: (where, record)} of a file of given answers or confidences, or of its first records.
    Raises BadInput naming the line.
    """
    records: dict[str, tuple[str, Record]] = {}
    columns = (
        None if given.fields is UNSET else {key: key for key in ("id", *needed)} | given.fields
    )
    for where, record in tables.records(Path(given.path), columns, "id", *needed, first=first):
        name = values.required_text((where, record), "id")
        if name in records:
            raise BadInput(
                f"{where}: id {name!r} stands in {records[name][0].rpartition(', ')[2]} already"
            )
        records[name] = (where, record)
    return records


def require_examples(
    records: dict[str, tuple[str, Record]], examples: list[Example], path: str
) -> None:
    """Raises BadInput if a file lacks the record of a frozen example, or gives it another question."""
    if missing := [example["id"] for example in examples if example["id"] not in records]:
        message = f"no record with id {missing[0]!r}, and {len(missing)} of {len(examples)} examples have none"
        raise BadInput(
            f"{path}: {message}; ids must be those of the dataset (fields.id names their column)"
        )
    for example in examples:
        where, record = records[example["id"]]
        asked = record.get("question")
        own = " ".join(example["question"].casefold().split())
        given = " ".join(asked.casefold().split()) if isinstance(asked, str) else own
        # either may have an instruction or a passage around it
        if given not in own and own not in given:
            reason = f"its question is {short(asked)}, and that of id {example['id']!r} is {short(example['question'])}"
            raise BadInput(
                f"{where}: {reason}; name the file of this dataset, or leave the key out"
            )


def make_sample(given: Question, split: str, example: Example, task: Task) -> Sample:
    """The record of samples.jsonl made from given answers. Without `greedy`, the first of the
    answers counts as the greedy one. An empty answer, or null, counts as wrong; `judged` is true
    where judgements came with the answers.
    """
    if given.samples is None:
        where = given.where.removeprefix("record")
        keys = ", ".join(given.more)
        raise BadInput(
            f"{where}: no key 'answers', a list of texts, and no 'answer'; the keys read are {keys}".removeprefix(
                ": "
            )
        )
    marks = given.judgements or [None] * len(given.samples)
    read = [
        label_answer(given.where, *pair, example, task)
        for pair in zip(given.samples, marks, strict=True)
    ]
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
    """The answer in a given text; `correct` None: the task compares with its references."""
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
    if answer is None or (record.graded is not True and record.judged is not True):
        return Scored.of(answer, answer or "", task.score(answer, example))
    f1 = task.score(answer, example)["f1"] if record.graded is True else None
    return Scored(
        answer=answer, raw=answer, correct=record.correct[record.answers.index(answer)], f1=f1
    )


def make_confidence(
    where: str, record: Record, greedy: Greedy, example: Example, task: Task
) -> Confidence:
    """The record of confidences.jsonl made from a given record: of its own answer, or else of the
    greedy answer.
    """
    stated = tables.probability(where, record["confidence"])
    judgement = greedy
    answer, correct = rows.read_answers(where, record).own
    if answer not in (None, greedy.answer, greedy.raw):
        judgement = label_answer(where, answer, correct, example, task)
    return Confidence.of(example, judgement, stated, record.get("raw", judgement.raw))
