"""A judge, a model that is asked, says whether an answer means the same as a reference of its question.

Each distinct (question, references, answer) is asked about once, by greedy decoding. A reply counts if it is one of the two
words that the template names; any other reply is unread, and the exact grade of the task counts there.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import TemplateError
from msgspec import UnsetType
from msgspec.structs import asdict, replace

from orce.errors import BadInput
from orce.llm.chat import Messages
from orce.records import Disagreement, Example, Question, Sample, Tested, Verdict
from orce.runtime.seeds import seed_of
from orce.stage_settings import Asked
from orce.tasks import Task
from orce.text.extract import plain
from orce.text.prompting import TEMPLATES, environment

MODES = ("judge", "both")  # of datasets.NAME.grading, beside exact: those with a judge
MAX_TOKENS = 16  # budget of a reply
MARKED = re.compile(r"\b(?:answer|verdict|grade|judge?ment)\s*(?:[:=]|is\b)\s*", re.IGNORECASE)
Key = tuple[str, tuple[str, ...], str]  # what a verdict is about


class Said(NamedTuple):
    """The word that a text begins with, and whether the other one follows."""

    right: bool
    contradicted: bool


class Given(NamedTuple):
    """An answer, and whether it is right by the exact grade."""

    answer: str | None
    correct: bool | int


class Form:
    """A judge's question: a Jinja template, with the words of its verdicts as {% set right, wrong = "yes", "no" %}.

    Raises BadInput, from the start, for a template that cannot be filled in with `sample`.
    """

    def __init__(self, path: str | Path, **sample):
        folder, name = Path(path).parent, Path(path).name
        try:
            self._template = environment(folder).get_template(name)
            module: Any = self._template.make_module(sample)
        except (TemplateError, OSError, ValueError, TypeError) as error:
            raise BadInput(
                f"{path}: not a template with {', '.join(sample)} ({' '.join(str(error).split())})"
            ) from None
        self.right, self.wrong = getattr(module, "right", "yes"), getattr(module, "wrong", "no")
        words = (self.right, self.wrong)
        if not all(isinstance(word, str) and word.strip() for word in words) or self.right == self.wrong:
            raise BadInput(
                f'{path}: right and wrong are {words}; expected two words: {{% set right, wrong = "yes", "no" %}}'
            )
        for name, value in sample.items():
            shown = value if isinstance(value, str) else value[0]
            if shown not in str(module):
                raise BadInput(f"{path}: does not show {name}; write {{{{ {name} }}}} where it belongs")

    def messages(self, **values) -> Messages:
        return [{"role": "user", "content": self._template.render(**values).strip()}]

    def verdict(self, reply: str) -> bool | None:
        """Whether a reply says the right word; None for a reply that is neither word, or both.

        The word stands alone, or a punctuation mark or a new line follows it. What follows "Verdict:" or "The answer is" counts too.
        """
        text = plain(reply)
        for part in (text, MARKED.split(text)[-1]):
            if said := self._begins(part.strip(" \n\t\"'([*")):
                return None if said.contradicted else said.right
        return None

    def _begins(self, text: str) -> "Said | None":
        for right, word, other in ((True, self.right, self.wrong), (False, self.wrong, self.right)):
            if begins := re.match(rf"{re.escape(word)}(?=$|[\n.,;:!)\]\"'*])", text, re.IGNORECASE):
                rest = re.search(rf"\b{re.escape(other)}\b", text[begins.end() :], re.IGNORECASE)
                return Said(right, contradicted=rest is not None)
        return None


def grade_form(path: str | None = None) -> Form:
    """The question whether an answer is right: the package's own, or a file's."""
    sample = {"question": "Where is Lima?", "references": ["In Peru"], "answer": "It lies in South America"}
    return Form(path or TEMPLATES / "grade.j2", **sample)


def same_form() -> Form:
    """The question whether two answers mean the same."""
    return Form(TEMPLATES / "same_meaning.j2", question="Where is Lima?", one="In Peru", other="In South America")


def texts(record: Sample | Tested) -> list[Given]:
    """The K samples of a record, and its greedy answer where it has one."""
    samples, greedy = list(map(Given, record.answers, record.correct)), record.greedy
    return samples if isinstance(greedy, UnsetType) else [*samples, Given(greedy.answer, greedy.correct)]


def key(answer: str, example: Example, task: Task) -> Key:
    """What the judge is asked about: a question with its references and an answer, as the confidence LLM reads them."""
    return task.question(example), tuple(references(example, task)), task.display(answer, example)


def references(example: Example, task: Task) -> list[str]:
    """The accepted answers as texts; an option with its letter, several spans of one answer with commas."""
    given = example["reference"] if isinstance(example["reference"], list) else [example["reference"]]
    return [task.display(one, example) if isinstance(one, str) else ", ".join(one) for one in given if one]


def questions(items: Iterable[tuple[Sample, Example]], task: Task) -> list[Question]:
    """The question about every distinct answer of some (record, example), in their order.

    Raises BadInput for a question without references.
    """
    found: dict[Key, None] = {}
    for record, example in items:
        if not references(example, task):
            raise BadInput(
                f"id {example['id']!r} has no reference to compare with; use grading: exact, or name fields.answer"
            )
        found |= {key(one.answer, example, task): None for one in texts(record) if one.answer is not None}
    return [Question(question, [*references], answer) for question, references, answer in found]


def verdicts(chunk: list[Question], engine, form: Form, options: Asked) -> list[Verdict]:
    """What the judge says of each."""
    replies = ask(engine, [form.messages(**asdict(one)) for one in chunk], options)
    return [
        Verdict(**asdict(one), judge=form.verdict(reply), raw=reply) for one, reply in zip(chunk, replies, strict=True)
    ]


def ask(engine, conversations: list[Messages], options: Asked) -> list[str]:
    """The judge's greedy replies. options: max_tokens, seed."""
    seeds = [seed_of(options.seed, "grade", turns[-1]["content"]) for turns in conversations]
    return [text for (text,) in engine.generate(conversations, 1, 0.0, options.max_tokens, seeds)]


@dataclass
class Counts:
    """Of distinct answers asked about, and of texts: how many samples say one that was graded."""

    asked: int
    unread: int
    texts: int = 0
    unread_texts: int = 0
    only_judge: int = 0
    only_exact: int = 0


class Grades:
    """The grades of all samples of a cell: `record` grades one record, `disagreements` and `counts` say what came of it.

    said: the judge's verdicts; judged: whether the judge's verdict counts where it differs from the exact grade.
    """

    def __init__(self, said: list[Verdict], task: Task, judged: bool):
        self.said = {(one.question, tuple(one.references), one.answer): one for one in said}
        self.task, self.judged = task, judged
        self.disagreements: list[Disagreement] = []
        self.counts = Counts(asked=len(said), unread=sum(one.judge is None for one in said))

    def record(self, record: Sample, example: Example) -> Sample:
        """A record of samples.jsonl with its grades; `graded` says that its judgements are not the task's."""
        grades, greedy = list(self._of(record, example)), record.greedy
        if not isinstance(greedy, UnsetType):
            greedy = replace(greedy, correct=grades[-1])
        return replace(record, correct=grades[: len(record.answers)], graded=True, greedy=greedy)

    def _of(self, record: Sample, example: Example) -> Iterator[bool | int]:
        seen: dict[Given, Disagreement] = {}
        for answer, exact in texts(record):
            if answer is None:
                yield False
                continue
            verdict = self.said[key(answer, example, self.task)]
            judge = verdict.judge
            self.counts.texts += 1
            self.counts.unread_texts += judge is None
            if judge is not None and judge != exact:
                self.counts.only_judge += judge
                self.counts.only_exact += not judge
                said = {name: getattr(verdict, name) for name in ("question", "references", "answer", "judge", "raw")}
                new = Disagreement(id=record.id, split=record.split, **said, exact=exact, texts=0)
                seen.setdefault(Given(answer, exact), new).texts += 1
            yield judge if self.judged and judge is not None else exact
        self.disagreements += seen.values()

    def __str__(self) -> str:
        n = self.counts
        line = (
            f"{n.asked} distinct answers asked about; {n.texts} answers, the judge alone says right of {n.only_judge}, "
            f"the exact grade alone of {n.only_exact}; the {'judge' if self.judged else 'exact grade'} counts"
        )
        unread = f"; {n.unread} replies could not be read: the exact grade counts for {n.unread_texts} answers"
        return line + (unread if n.unread else "")
