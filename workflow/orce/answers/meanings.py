"""Which answers to a question mean the same, as a judge or an NLI model says, in place of the task's own key.

Farquhar et al. (2024): each answer is compared with the first answer of every group so far, and joins the first group with
which it agrees in both directions. Answers with the same key of the task are one from the start.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from orce.answers import grades
from orce.records import Comparison, Distinct, Example, Grouped, Sample, Tested
from orce.stage_settings import Asked
from orce.tasks import Task

Pair = tuple[str, str, str]  # question, one answer, the other
Compare = Callable[[list[Pair]], list["Same"]]


class Same(NamedTuple):
    """Whether the two answers of a pair mean the same, None for unread, and what was said."""

    same: bool | None
    raw: list[Any]


def items(records: Sequence[tuple[Sample, Example]], task: Task) -> list[Distinct]:
    """The tested questions with their answers that have different keys."""
    return [
        Distinct(id=record.id, split=record.split, question=task.question(example), answers=[*shown])
        for record, example in records
        if record.greedy is not UNSET
        for shown in [_distinct(record, example, task).values()]
    ]


def _distinct(record: Sample | Tested, example: Example, task: Task) -> dict[str, str]:
    """{key: the first answer that has it} of the samples and the greedy answer."""
    found: dict[str, str] = {}
    for one in grades.texts(record):
        if one.answer is not None:
            found.setdefault(task.key(one.answer, example), task.display(one.answer, example))
    return found


def grouped(chunk: list[Distinct], compare: Compare) -> list[Grouped]:
    """The groups of each question's answers.

    One more answer of every question is compared at a time, so that a chunk's comparisons are made together.
    """
    made = [Grouped(**asdict(one), meanings=[0] if one.answers else [], compared=[]) for one in chunk]
    for place in range(1, max((len(one.answers) for one in made), default=0)):
        open_ = [one for one in made if place < len(one.answers)]
        firsts = [[one.meanings.index(group) for group in range(max(one.meanings) + 1)] for one in open_]
        asked = [(one, first) for one, places in zip(open_, firsts, strict=True) for first in places]
        said = compare([(one.question, one.answers[first], one.answers[place]) for one, first in asked])
        for (one, first), (same, raw) in zip(asked, said, strict=True):
            one.compared.append(Comparison(places=(first, place), same=same, raw=raw))
        for one, places in zip(open_, firsts, strict=True):
            agreed = (group for group, said_of in enumerate(one.compared[-len(places) :]) if said_of.same)
            one.meanings.append(next(agreed, len(places)))
    return made


def by_judge(engine, form: grades.Form, options: Asked) -> Compare:
    """Two answers mean the same if the judge says so in both orders; unread if a reply is unread and none says no."""

    def compare(pairs: list[Pair]) -> list[Same]:
        both = [(q, a, b) for q, one, other in pairs for a, b in ((one, other), (other, one))]
        conversations = [form.messages(question=q, one=a, other=b) for q, a, b in both]
        replies = grades.ask(engine, conversations, options) if both else []
        read = [form.verdict(reply) for reply in replies]
        return [
            Same(None if None in two and False not in two else all(two), raw)
            for two, raw in zip(_twos(read), _twos(replies), strict=True)
        ]

    return compare


def by_entailment(nli) -> Compare:
    """Two answers mean the same if each entails the other, after the question (orce.llm.nli)."""

    def compare(pairs: list[Pair]) -> list[Same]:
        said = [(f"{q} {a}", f"{q} {b}") for q, one, other in pairs for a, b in ((one, other), (other, one))]
        labels = nli.labels(said) if said else []
        return [Same(all(one == nli.entailment for one in two), two) for two in _twos(labels)]

    return compare


def _twos(values: list) -> list[list]:
    return [values[i : i + 2] for i in range(0, len(values), 2)]


def noted(record: Sample, example: Example, item: Grouped, task: Task) -> Sample:
    """A record of samples.jsonl with the group of each sample, None for an unread one, and of its greedy answer."""
    groups = dict(zip(_distinct(record, example, task), item.meanings, strict=True))
    found = [None if one.answer is None else groups[task.key(one.answer, example)] for one in grades.texts(record)]
    greedy = replace(cast(Tested, record).greedy, meaning=found[-1])
    return replace(record, meanings=found[: len(record.answers)], greedy=greedy)


class ByMeaning:
    """A task whose `key` is the group that a record's answer is in; the rest is the task's own."""

    def __init__(self, task: Task, record: Sample, meanings: list[int | None]):
        self._task = task
        self._groups: dict[str | None, Any] = dict(zip(record.answers, meanings, strict=True))
        if not isinstance(record.greedy, UnsetType):
            self._groups[record.greedy.answer] = record.greedy.meaning

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def key(self, answer: str, example: Example) -> str:
        group = self._groups.get(answer)
        return self._task.key(answer, example) if group is None else f"meaning {group}"


def task_of(task: Task, record: Sample) -> Task:
    """The task as methods that compare a record's answers shall see it: by meaning, where the record has its groups."""
    return task if isinstance(record.meanings, UnsetType) else cast(Task, ByMeaning(task, record, record.meanings))
