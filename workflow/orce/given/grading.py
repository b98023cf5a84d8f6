"""A grader's verdicts: whether an answer means the same as a reference of its question, and which
answers mean the same.

Meanings are grouped as in Farquhar et al. (2024): each answer is compared with the first answer of
every group so far, and joins the first group with which it agrees in both directions. Answers with
the same key of the task share a group from the start.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from orce.artefacts.records import Example, Messages, Sample, Tested
from orce.errors import BadInput, one_line
from orce.runtime import process
from orce.tasks import Task
from orce.text import TEMPLATES, environment
from orce.text.extract import plain

Items = Sequence[tuple[Sample, Example]]
# A question and two answers to it, in this order.
Comparison = tuple[str, str, str]
# Whether the first answer of each has the meaning of the second, None for unread, and the reply.
SameMeaning = Callable[[list[Comparison]], Sequence[tuple[bool | None, Any]]]
CPU_SECONDS = 3  # to fill in a template of a user's own
MARKED = re.compile(
    r"\b(?:answer|verdict|grade|judge?ment)[\"']?\s*(?:[:=]|is\b)\s*", re.IGNORECASE
)
SAMPLE_PAIR = {"question": "Where is Lima?", "one": "In Peru", "other": "In South America"}
SAMPLE_QUESTION = {
    "question": "Where is Lima?",
    "references": ["In Peru"],
    "answer": "It lies in South America",
}


class Question(msgspec.Struct, frozen=True):
    """What a grader is asked about: an answer to a question with its references."""

    question: str
    references: tuple[str, ...]
    answer: str


class Verdict(Question, frozen=True, kw_only=True):
    """A line of verdicts.jsonl. right: what the grader says, None for an unread reply; raw: the
    reply.
    """

    right: bool | None
    raw: str
    spent: dict[str, Any] | UnsetType = UNSET


class Distinct(msgspec.Struct, frozen=True):
    """A tested question with its answers that have different keys, as they are shown."""

    id: str
    split: str
    question: str
    answers: list[str]


class Grouping(Distinct, frozen=True, kw_only=True):
    """A line of meanings.jsonl. meanings: the group of each answer; compared: {places, same, raw}
    of two answers: whether they mean the same, None for unread, and the replies in both orders.
    """

    meanings: list[int]
    compared: list[dict[str, Any]]
    spent: dict[str, Any] | UnsetType = UNSET

    @property
    def key(self) -> tuple[str, str]:
        return self.split, self.id


class Form:
    """A grader's question: a Jinja template, with the words of its verdicts as
    {% set right, wrong = "yes", "no" %}. Raises BadInput for a template that leaves out a value of
    `sample`.
    """

    def __init__(self, path: str | Path, sample: dict[str, Any]):
        self.path = path
        try:
            self.template = environment(Path(path).parent).get_template(Path(path).name)
            with self.limit():
                module: Any = self.template.make_module(sample)
        except BadInput:
            raise
        except Exception as error:  # noqa: BLE001 - a template is a program, and can fail in any way
            named = ", ".join(sample)
            raise BadInput(f"{path}: not a template with {named} ({one_line(error)})") from None
        self.right = getattr(module, "right", "yes")
        self.wrong = getattr(module, "wrong", "no")
        words = (self.right, self.wrong)
        are_words = all(isinstance(word, str) and word.strip() for word in words)
        if not are_words or self.right == self.wrong:
            expected = 'two words: {% set right, wrong = "yes", "no" %}'
            raise BadInput(f"{path}: right and wrong are {words}; expected {expected}")
        for name, value in sample.items():
            shown = value if isinstance(value, str) else value[0]
            if shown not in str(module):
                remedy = f"write {{{{ {name} }}}} where it belongs"
                raise BadInput(f"{path}: does not show {name}; {remedy}")

    def limit(self) -> Any:
        # a template of a user's own is a program, which may loop for ever
        return process.time_limit(CPU_SECONDS, f"{self.path}: to write a question")

    def messages(self, **values) -> Messages:
        with self.limit():
            return [{"role": "user", "content": self.template.render(**values).strip()}]

    def verdict(self, reply: str) -> bool | None:
        """Whether a reply says the right word; None for a reply with neither word, or both. The
        word stands alone, or a punctuation mark or a new line follows it. What follows "Verdict:"
        or "The answer is" counts too.
        """
        text = plain(reply)
        for verdict in (text, MARKED.split(text)[-1]):
            verdict = verdict.strip(" \n\t\"'([*>-")
            if rest := _after_word(self.right, verdict):
                return None if _contains_word(self.wrong, rest[1]) else True
            if rest := _after_word(self.wrong, verdict):
                return None if _contains_word(self.right, rest[1]) else False
        return None


def _after_word(word: str, text: str) -> re.Match | None:
    """Matches a text that begins with a word of its own; group 1 is what follows it."""
    pattern = rf"{re.escape(word)}(?=$|[\n.,;:!)\]\"'*])(.*)"
    return re.match(pattern, text, re.IGNORECASE | re.DOTALL)


def _contains_word(word: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


def grade_form(path: str | None = None) -> Form:
    return Form(path or TEMPLATES / "grade.j2", SAMPLE_QUESTION)


def answers_with_grades(record: Sample) -> list[tuple[str | None, bool | int]]:
    """(answer, exact grade) of the K samples of a record, and of its greedy answer where it has
    one.
    """
    greedy = [] if record.greedy is UNSET else [(record.greedy.answer, record.greedy.correct)]
    return [*zip(record.answers, record.correct, strict=True), *greedy]


def ask_grader(answer: str, example: Example, task: Task) -> Question:
    """What the grader is asked: an option shows its letter, commas join several spans of one
    reference.
    """
    reference = example["reference"]
    shown = []
    for gold in reference if isinstance(reference, list) else [reference]:
        if gold:
            shown.append(task.display(gold, example) if isinstance(gold, str) else ", ".join(gold))
    if not shown:
        remedy = "use grading: exact, or name fields.answer"
        raise BadInput(f"id {example['id']!r} has no reference to compare with; {remedy}")
    return Question(task.question(example), tuple(shown), task.display(answer, example))


def apply_verdicts(
    items: Items, verdicts: Sequence[Verdict], task: Task
) -> tuple[list[Sample], list[dict], Counter]:
    """The records with the grader's grades, the answers that it grades otherwise than the task, and
    counts of answers.
    """
    by_question = {Question(v.question, v.references, v.answer): v for v in verdicts}
    counts = Counter(asked=len(by_question), unread=0, only_grader=0, only_exact=0)
    counts["unread"] = sum(verdict.right is None for verdict in verdicts)
    records = []
    differ: dict[Any, dict[str, Any]] = {}
    for record, example in items:
        grades: list[Any] = []
        for answer, exact in answers_with_grades(record):
            if answer is None:  # an unreadable answer is wrong, and nobody is asked about it
                grades.append(False)
                continue
            question = ask_grader(answer, example, task)
            verdict = by_question[question]
            grade = exact if verdict.right is None else verdict.right
            grades.append(grade)
            if grade != exact:
                counts["only_grader" if grade else "only_exact"] += 1
                line = {"id": record.id, "split": record.split} | asdict(question)
                line |= {"right": grade, "raw": verdict.raw, "exact": exact, "texts": 0}
                differ.setdefault((record.key, answer), line)["texts"] += 1
        greedy = record.greedy
        if greedy is not UNSET:
            greedy = replace(greedy, correct=grades[-1])
        own = grades[: len(record.answers)]
        records.append(replace(record, correct=own, graded=True, greedy=greedy))
    return records, list(differ.values()), counts


def distinct_answers(record: Sample, example: Example, task: Task) -> dict[str, str]:
    """{key: the first answer that has it} of the samples and the greedy answer."""
    first: dict[str, str] = {}
    for answer, _ in answers_with_grades(record):
        if answer is not None:
            first.setdefault(task.key(answer, example), task.display(answer, example))
    return first


def group_by_meaning(chunk: list[Distinct], same_meaning: SameMeaning) -> list[Grouping]:
    """The groups of each question's answers (Farquhar et al., 2024, algorithm 1).

    One more answer of every question is compared at a time, so that a chunk's comparisons are made
    together.
    """
    groupings = []
    for item in chunk:
        first = [0] if item.answers else []
        groupings.append(Grouping(**asdict(item), meanings=first, compared=[]))
    for index in range(1, max((len(item.answers) for item in chunk), default=0)):
        _place_answers(
            index, [item for item in groupings if index < len(item.answers)], same_meaning
        )
    return groupings


def _place_answers(index: int, groupings: list[Grouping], same_meaning: SameMeaning) -> None:
    """Put answer number `index` of each question into the first group whose first answer agrees with
    it in both directions, or into a group of its own. A comparison is unread if one order is unread
    and the other is not a no.
    """
    pairs = []
    orders: list[Comparison] = []
    for item in groupings:
        for group in range(max(item.meanings) + 1):
            first = item.meanings.index(group)
            pairs.append((item, first))
            one = item.answers[first]
            other = item.answers[index]
            orders += [(item.question, one, other), (item.question, other, one)]
    replies = same_meaning(orders)
    joined: dict[tuple[str, str], int] = {}
    for number, (item, first) in enumerate(pairs):
        (there, raw), (back, raw_back) = replies[2 * number : 2 * number + 2]
        unread = None in (there, back) and False not in (there, back)
        same = None if unread else bool(there and back)
        item.compared.append({"places": [first, index], "same": same, "raw": [raw, raw_back]})
        if same:
            joined.setdefault(item.key, item.meanings[first])
    for item in groupings:
        item.meanings.append(joined.get(item.key, max(item.meanings) + 1))


def note_meanings(record: Sample, example: Example, item: Grouping, task: Task) -> Sample:
    """A record of samples.jsonl with the group of each sample, None for an unread one, and of its
    greedy answer.
    """
    keys = distinct_answers(record, example, task)
    groups = dict(zip(keys, item.meanings, strict=True))
    meanings = []
    for answer, _ in answers_with_grades(record):
        meanings.append(None if answer is None else groups[task.key(answer, example)])
    greedy = replace(cast(Tested, record).greedy, meaning=meanings[-1])
    return replace(record, meanings=meanings[: len(record.answers)], greedy=greedy)


class ByMeaning:
    """A task for methods that compare a record's answers: its `key` is the group, where the record
    has its groups.
    """

    def __init__(self, task: Task, record: Sample):
        meanings = [] if record.meanings is UNSET else record.meanings
        self.task = task
        self.groups = dict(zip(record.answers, meanings, strict=False))
        if meanings and record.greedy is not UNSET:
            self.groups[record.greedy.answer] = cast(Any, record.greedy.meaning)

    def key(self, answer: str, example: Example) -> str:
        group = self.groups.get(answer)
        return self.task.key(answer, example) if group is None else f"meaning {group}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)
