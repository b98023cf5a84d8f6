"""Which answers to a question mean the same, as a grader or an NLI model says, in place of the task's own key.

Farquhar et al. (2024): each answer is compared with the first answer of every group so far, and joins the first group with
which it agrees in both directions. Answers with the same key of the task are one from the start.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from orce.answers import grades
from orce.records import Comparison, Distinct, Example, Grouped, Sample, Tested
from orce.tasks import Task

# Whether the first of two answers to a question has the meaning of the second, None for unread, and what was said.
Says = Callable[[list[tuple[str, str, str]]], list[tuple[bool | None, Any]]]


def items(records: Sequence[tuple[Sample, Example]], task: Task) -> list[Distinct]:
    """The tested questions with their answers that have different keys."""
    return [
        Distinct(record.id, record.split, task.question(example), [*distinct(record, example, task).values()])
        for record, example in records
        if record.greedy is not UNSET
    ]


def distinct(record: Sample, example: Example, task: Task) -> dict[str, str]:
    """{key: the first answer that has it} of the samples and the greedy answer."""
    found: dict[str, str] = {}
    for answer, _ in grades.texts(record):
        if answer is not None:
            found.setdefault(task.key(answer, example), task.display(answer, example))
    return found


def grouped(chunk: list[Distinct], says: Says) -> list[Grouped]:
    """The groups of each question's answers; a comparison is unread if one order is and the other does not say no.

    One more answer of every question is compared at a time, so that a chunk's comparisons are made together.
    """
    made = [Grouped(**asdict(one), meanings=[0] if one.answers else [], compared=[]) for one in chunk]
    for place in range(1, max((len(one.answers) for one in made), default=0)):
        pairs = [
            (one, one.meanings.index(group))
            for one in made
            if place < len(one.answers)
            for group in range(max(one.meanings) + 1)
        ]
        asked = [(one.question, one.answers[first], one.answers[place]) for one, first in pairs]
        said = says([each for question, a, b in asked for each in ((question, a, b), (question, b, a))])
        for (one, first), two in zip(pairs, zip(said[::2], said[1::2], strict=True), strict=True):
            read, raw = [same for same, _ in two], [text for _, text in two]
            same = None if None in read and False not in read else all(read)
            one.compared.append(Comparison(places=(first, place), same=same, raw=raw))
        for one in {id(one): one for one, _ in pairs}.values():
            agreed = [one.meanings[pair.places[0]] for pair in one.compared if pair.places[1] == place and pair.same]
            one.meanings.append(agreed[0] if agreed else max(one.meanings) + 1)
    return made


def noted(record: Sample, example: Example, item: Grouped, task: Task) -> Sample:
    """A record of samples.jsonl with the group of each sample, None for an unread one, and of its greedy answer."""
    groups = dict(zip(distinct(record, example, task), item.meanings, strict=True))
    found = [None if answer is None else groups[task.key(answer, example)] for answer, _ in grades.texts(record)]
    greedy = replace(cast(Tested, record).greedy, meaning=found[-1])
    return replace(record, meanings=found[: len(record.answers)], greedy=greedy)


def task_of(task: Task, record: Sample) -> Task:
    """The task for methods that compare a record's answers: its `key` is the group, where the record has its groups."""
    if isinstance(record.meanings, UnsetType):
        return task
    groups = dict(zip(record.answers, record.meanings, strict=True))
    if not isinstance(record.greedy, UnsetType):
        groups[record.greedy.answer] = cast(Any, record.greedy.meaning)

    def key(answer: str, example: Example) -> str:
        group = groups.get(answer)
        return task.key(answer, example) if group is None else f"meaning {group}"

    rest = {name: getattr(task, name) for name in dir(task) if not name.startswith("__")}
    return cast(Task, SimpleNamespace(**rest | {"key": key}))
