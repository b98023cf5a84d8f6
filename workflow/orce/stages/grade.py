"""Let a grader say which answers are right, and group those that mean the same.

`verdicts` has the grader's reply to each distinct answer, `disagreements` those that it grades
otherwise than the task, and `meanings` the comparisons of answers with each other.
"""

from collections import Counter
from functools import partial
from typing import Annotated, Self

from msgspec import UNSET, convert
from msgspec.structs import asdict, replace

from orce import stages, tasks
from orce.artefacts import store
from orce.artefacts.records import Example, Messages, Sample
from orce.config import picking
from orce.errors import BadInput
from orce.given import grading
from orce.given.grading import Comparison, Distinct, Form, Grouping, Items, Question, Verdict
from orce.runtime.process import say, seed_of, speed
from orce.settings.schema import Config
from orce.settings.stage import Encoder, ModelSettings, Source
from orce.tasks import Task
from orce.text import TEMPLATES


class GradeSettings(ModelSettings, kw_only=True):
    engine: str
    max_tokens: int
    seed: int
    prompt: str | None = None  # template of the question; None is the package's own
    group: str  # none, grader or nli: what says which answers mean the same
    nli: Encoder | None = None
    grades: bool = True  # false: a model only groups the answers, and their exact grades count

    @classmethod
    def of(cls, config: Config, dataset: str, model: str) -> Self:
        spec = config.grading
        assert spec is not None  # a rule asks for graded cells alone
        nli = None
        if spec.nli:
            source = convert(spec.nli, Source)
            nli = Encoder(source=source, dtype=config.dtype, device=config.device)
        return picking.pick(
            cls,
            config,
            "grade",
            dataset,
            model,
            loads=spec.model or "",
            group=spec.group,
            max_tokens=spec.max_tokens,
            prompt=spec.prompt,
            nli=nli,
            grades=spec.grades and spec.model is not None,
        )


def run(
    settings: GradeSettings,
    prompts: stages.Prompts,
    samples: Annotated[str, "with the exact grades"],
    verdicts: str,
    disagreements: str,
    out: str,
    manifest: str,
    meanings: Annotated[str | None, "where the settings have a group"] = None,
):
    """Reads samples with the task's exact grades; writes them with the grader's, and their groups.

    A distinct answer is asked about once, whatever number of samples gave it. Without a verdict
    that can be read, the exact grade of an answer stays.
    """
    task = tasks.get(settings.task)
    items = read_items(prompts, samples)
    questions = questions_about(items, task) if settings.grades else []
    distinct = tested_answers(items, task) if meanings else []

    grader = Grader(settings)
    with stages.LazyModel(partial(grader.open, questions, distinct)) as engine:
        stages.write_in_chunks(
            grading_alone(settings),
            questions,
            verdicts,
            engine,
            grader.give_verdicts,
            kind="answers",
        )
        if meanings:
            model = partial(open_nli, settings) if settings.group == "nli" else engine
            stages.write_in_chunks(
                settings, distinct, meanings, model, grader.group, kind="answers"
            )

    records = [record for record, _ in items]
    differ: list[dict] = []
    counts = Counter[str]()
    if settings.grades:
        given = store.records(verdicts, Verdict) if questions else []
        records, differ, counts = grading.apply_verdicts(items, given, task)
    groups: list[Grouping] = []
    if meanings and distinct:
        groups = store.records(meanings, Grouping)
        records = with_groups(records, items, groups, task)
    for line in report(settings, counts, groups):
        say(f"[{settings.label}] {line}")
    store.write(disagreements, differ, settings)
    store.write(out, records, settings, manifest, grading={**counts, "disagreements": len(differ)})


def read_items(prompts: stages.Prompts, samples: str) -> list[tuple[Sample, Example]]:
    """Every record of the samples with its example."""
    examples = stages.read_by_split(prompts)
    items = []
    for record in store.records(samples, Sample):
        if record.key not in examples:
            named = f"{' '.join(record.key)} is in none of {', '.join(prompts.values())}"
            raise BadInput(f"{samples}: {named}; sample it again")
        items.append((record, examples[record.key]))
    return items


def questions_about(items: Items, task: Task) -> list[Question]:
    """What the grader is asked: each distinct answer to a question once, in the samples' order."""
    questions = []
    for record, example in items:
        for answer, _ in grading.answers_with_grades(record):
            if answer is not None:
                questions.append(grading.ask_grader(answer, example, task))
    return list(dict.fromkeys(questions))


def tested_answers(items: Items, task: Task) -> list[Distinct]:
    """The distinct answers to each question that is tested on: these alone are grouped."""
    found = []
    for record, example in items:
        if record.greedy is not UNSET:
            answers = list(grading.distinct_answers(record, example, task).values())
            found.append(Distinct(record.id, record.split, task.question(example), answers))
    return found


def grading_alone(settings: GradeSettings) -> GradeSettings:
    """What the verdicts depend on: with another `group` none of them is asked for again."""
    nli_path = settings.nli and settings.nli.source.path
    contents = {path: digest for path, digest in settings.contents.items() if path != nli_path}
    return replace(settings, group="none", nli=None, contents=contents)


class Grader:
    """Asks about answers, and compares them with each other, where no NLI model does that."""

    def __init__(self, settings: GradeSettings):
        self.settings = settings
        self.form = grading.grade_form(settings.prompt)
        self.same = Form(TEMPLATES / "same_meaning.j2", grading.SAMPLE_PAIR)

    def open(self, questions: list[Question], distinct: list[Distinct]):
        """The grader's engine, sized for the longest of its questions."""
        conversations = [self.form.messages(**asdict(question)) for question in questions]
        if self.settings.group == "grader":
            # which pairs are compared is known only as the groups grow: no pair is longer than these
            for item in distinct:
                if len(item.answers) > 1:
                    one, other = sorted(item.answers, key=len)[-2:]
                    pair = {"question": item.question, "one": one, "other": other}
                    conversations.append(self.same.messages(**pair))
        return stages.open_engine(self.settings, conversations, self.settings.max_tokens)

    def replies(self, engine, conversations: list[Messages]) -> list[str]:
        seed = self.settings.seed
        seeds = [seed_of(seed, "grade", turns[-1]["content"]) for turns in conversations]
        texts = engine.generate(conversations, 1, 0.0, self.settings.max_tokens, seeds)
        return [text for (text,) in texts]

    def give_verdicts(self, chunk: list[Question], engine) -> list[Verdict]:
        asked = [self.form.messages(**asdict(question)) for question in chunk]
        verdicts = []
        for question, text in zip(chunk, self.replies(engine, asked), strict=True):
            right = self.form.verdict(text)
            verdicts.append(Verdict(**asdict(question), right=right, raw=text))
        return verdicts

    def group(self, chunk: list[Distinct], model) -> list[Grouping]:
        compare = entail if self.settings.group == "nli" else self.compare
        return grading.group_by_meaning(chunk, partial(compare, model))

    def compare(self, engine, pairs: list[Comparison]) -> list[tuple[bool | None, str]]:
        """Whether the grader says that two answers mean the same, None for unread; and its reply."""
        asked = []
        for question, one, other in pairs:
            asked.append(self.same.messages(question=question, one=one, other=other))
        return [(self.same.verdict(text), text) for text in self.replies(engine, asked)]


def open_nli(settings: GradeSettings):
    from orce.llm.reading import Nli

    assert settings.nli is not None  # of group: nli
    say(f"[{settings.label}] starting the NLI model")
    return Nli(settings.nli, speed("answers")["batch_tokens"])


def entail(nli, pairs: list[Comparison]) -> list[tuple[bool, str]]:
    """Whether the first answer, after its question, entails the second; and the model's label."""
    texts = [(f"{question} {one}", f"{question} {other}") for question, one, other in pairs]
    return [(label == "entailment", label) for label in nli.labels(texts)]


def with_groups(
    records: list[Sample], items: Items, groups: list[Grouping], task: Task
) -> list[Sample]:
    """The records, those that are tested on with the group of each answer."""
    by_key = {group.key: group for group in groups}
    noted = []
    for record, (_, example) in zip(records, items, strict=True):
        if record.greedy is not UNSET:
            record = grading.note_meanings(record, example, by_key[record.key], task)
        noted.append(record)
    return noted


def report(settings: GradeSettings, counts: Counter[str], groups: list[Grouping]) -> list[str]:
    """Lines for the screen: how the two grades differ, and what could not be read."""
    lines = []
    if settings.grades:
        asked = f"{counts['asked']} distinct answers asked about"
        grader = f"the grader alone says right of {counts['only_grader']} answers"
        lines.append(f"{asked}; {grader}, the exact grade alone of {counts['only_exact']}")
    if counts["unread"]:
        lines.append(f"{counts['unread']} replies could not be read: the exact grade counts there")
    unread = 0
    for group in groups:
        unread += sum(pair["same"] is None for pair in group.compared)
    if unread:
        what = f"{unread} comparisons of answers could not be read"
        lines.append(f"{what}: these count as different")
    return lines
