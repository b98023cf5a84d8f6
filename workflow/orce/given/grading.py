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
from orce.tasks.values import as_list
from orce.text import TEMPLATES, environment
from orce.text.extract import plain

Items = Sequence[tuple[Sample, Example]]
Comparison = tuple[str, str, str]  # a question and two answers to it
# Whether the first answer of each has the meaning of the second (None for an unread reply); the reply.
SameMeaning = Callable[[list[Comparison]], Sequence[tuple[bool | None, Any]]]
CPU_SECONDS = 3  # to fill in a template
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
    """A line of verdicts.jsonl. right: whether the grader says so, None for an unread reply; raw:
    the reply.
    """

    right: bool | None
    raw: str
    spent: dict[str, Any] | UnsetType = UNSET


class Distinct(msgspec.Struct, frozen=True):
    """A tested question with its answers, as they are shown; of those with one key of the task, the
    first.
    """

    id: str
    split: str
    question: str
    answers: list[str]


class Grouping(Distinct, frozen=True, kw_only=True):
    """A line of meanings.jsonl. meanings: the group of each answer, by number; compared: {places,
    same, raw} of each pair of answers that was compared: whether they mean the same (None for
    unread), and the replies in both orders.
    """

    meanings: list[int]
    compared: list[dict[str, Any]]
    spent: dict[str, Any] | UnsetType = UNSET

    @property
    def key(self) -> tuple[str, str]:
        return self.split, self.id


class Form:
    """A grader's question: a Jinja template that sets the words of its verdicts, as in
    {% set right, wrong = "yes", "no" %}.

    sample: values to try it with. Raises BadInput for a template that fails or does not show each.
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
        # A template is a program, and a user's may never end.
        return process.time_limit(CPU_SECONDS, f"{self.path}: to write a question")

    def messages(self, **values) -> Messages:
        with self.limit():
            return [{"role": "user", "content": self.template.render(**values).strip()}]

    def verdict(self, reply: str) -> bool | None:
        """Whether a reply says the right word; None for a reply with neither word, or both. The reply
        begins with the word, and then ends or goes on after a punctuation mark or on a new line. What
        follows the last "Verdict:" or "The answer is" counts as a reply too.
        """
        text = plain(reply)
        for verdict in (text, MARKED.split(text)[-1]):
            verdict = verdict.strip(" \n\t\"'([*>-")
            for word, other in ((self.right, self.wrong), (self.wrong, self.right)):
                pattern = rf"(?is){re.escape(word)}(?=$|[\n.,;:!)\]\"'*])(.*)"
                if rest := re.match(pattern, verdict):
                    contradicted = re.search(rf"(?i)\b{re.escape(other)}\b", rest[1])
                    return None if contradicted else word == self.right
        return None


def grade_form(path: str | None = None) -> Form:
    return Form(path or TEMPLATES / "grade.j2", SAMPLE_QUESTION)


def answers_with_grades(record: Sample) -> list[tuple[str | None, bool | int]]:
    """(answer, exact grade) of the K samples of a record, and of its greedy answer if it has one."""
    samples = zip(record.answers, record.correct, strict=True)
    if record.greedy is UNSET:
        return [*samples]
    return [*samples, (record.greedy.answer, record.greedy.correct)]


def ask_grader(answer: str, example: Example, task: Task) -> Question:
    """What the grader is asked. An option shows its letter, and commas join the spans of a reference
    that has several.
    """
    shown = []
    for gold in as_list(example["reference"]):
        if gold:
            shown.append(task.display(gold, example) if isinstance(gold, str) else ", ".join(gold))
    if not shown:
        remedy = "use grading: exact, or name fields.answer"
        raise BadInput(f"id {example['id']!r} has no reference to compare with; {remedy}")
    return Question(task.question(example), tuple(shown), task.display(answer, example))


def apply_verdicts(
    items: Items, verdicts: Sequence[Verdict], task: Task
) -> tuple[list[Sample], list[dict], Counter]:
    """The records with the grader's grades; the answers that it grades otherwise than the task, each
    with the number of texts that gave it; and counts of all answers. The exact grade of an answer
    stays where the verdict is unread.
    """
    by_question = {Question(v.question, v.references, v.answer): v for v in verdicts}
    unread = sum(verdict.right is None for verdict in verdicts)
    counts = Counter(asked=len(by_question), unread=unread, only_grader=0, only_exact=0)
    records = []
    differ: dict[Any, dict[str, Any]] = {}
    for record, example in items:
        grades: list[Any] = []
        for answer, exact in answers_with_grades(record):
            if answer is None:  # an unreadable answer is wrong, and the grader is not asked
                grades.append(False)
                continue
            question = ask_grader(answer, example, task)
            verdict = by_question[question]
            grade = exact if verdict.right is None else verdict.right
            grades.append(grade)
            if grade == exact:
                continue
            counts["only_grader" if grade else "only_exact"] += 1
            line = {"id": record.id, "split": record.split, **asdict(question)}
            line |= {"right": grade, "raw": verdict.raw, "exact": exact, "texts": 0}
            differ.setdefault((record.key, answer), line)["texts"] += 1
        own = grades[: len(record.answers)]
        record = replace(record, correct=own, graded=True)
        if record.greedy is not UNSET:
            record = replace(record, greedy=replace(record.greedy, correct=grades[-1]))
        records.append(record)
    return records, [*differ.values()], counts


def distinct_answers(record: Sample, example: Example, task: Task) -> dict[str, str]:
    """{key of the task: the first answer that has it, as it is shown} of a record's answers."""
    first: dict[str, str] = {}
    for answer, _ in answers_with_grades(record):
        if answer is not None:
            first.setdefault(task.key(answer, example), task.display(answer, example))
    return first


def group_by_meaning(chunk: list[Distinct], same_meaning: SameMeaning) -> list[Grouping]:
    """The groups of each question's answers (Farquhar et al., 2024, algorithm 1).

    The second answers of all questions are placed first, then the third ones, and so on, so that a
    chunk's comparisons are made together.
    """
    groupings = []
    for item in chunk:
        first = [0] if item.answers else []
        groupings.append(Grouping(**asdict(item), meanings=first, compared=[]))
    for index in range(1, max((len(item.answers) for item in chunk), default=0)):
        longer = [item for item in groupings if index < len(item.answers)]
        _place_answers(index, longer, same_meaning)
    return groupings


def _place_answers(index: int, groupings: list[Grouping], same_meaning: SameMeaning) -> None:
    """Put answer number `index` of each question into the first group whose first answer agrees with
    it in both directions, or into a group of its own. A comparison is unread if one order is unread
    and the other is not a no.
    """
    pairs = []
    orders: list[Comparison] = []
    for item in groupings:
        other = item.answers[index]
        for group in range(max(item.meanings) + 1):
            first = item.meanings.index(group)
            one = item.answers[first]
            pairs.append((item, first))
            orders += [(item.question, one, other), (item.question, other, one)]
    replies = iter(same_meaning(orders))
    joined: dict[tuple[str, str], int] = {}
    for item, first in pairs:
        there, raw = next(replies)
        back, raw_back = next(replies)
        unread = None in (there, back) and False not in (there, back)
        same = None if unread else bool(there and back)
        item.compared.append({"places": [first, index], "same": same, "raw": [raw, raw_back]})
        if same:
            joined.setdefault(item.key, item.meanings[first])
    for item in groupings:
        item.meanings.append(joined.get(item.key, max(item.meanings) + 1))


def note_meanings(record: Sample, example: Example, item: Grouping, task: Task) -> Sample:
    """A tested record of samples.jsonl with the group of each sample, None for an unread one, and
    that of its greedy answer.
    """
    keys = distinct_answers(record, example, task)
    groups = dict(zip(keys, item.meanings, strict=True))
    meanings = []
    for answer, _ in answers_with_grades(record):
        meanings.append(None if answer is None else groups[task.key(answer, example)])
    greedy = replace(cast(Tested, record).greedy, meaning=meanings[-1])
    return replace(record, meanings=meanings[: len(record.answers)], greedy=greedy)


class ByMeaning:
    """A task for methods that compare a record's answers: its `key` is an answer's group, where the
    record has groups.
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
