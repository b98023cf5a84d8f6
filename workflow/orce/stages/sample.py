"""Sample K answers to every prompt, and one greedy answer to every test prompt (section 3.1)."""

from collections.abc import Sequence
from typing import Self

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from orce import stages, tasks
from orce.artefacts.records import Example, Greedy, Sample
from orce.config import picking
from orce.errors import BadInput
from orce.llm import engines
from orce.runtime.process import say, seed_of
from orce.settings.schema import Config, Number
from orce.settings.stage import AnswerSettings
from orce.tasks import Task
from orce.tasks.examples import TESTED
from orce.text import read_by
from orce.text.marks import own_marks, plain, statements

REASONING_TOKENS = 1024  # budget of a reasoned answer


class SampleSettings(AnswerSettings, kw_only=True):
    engine: str
    samples: int
    temperature: Number
    top_p: Number
    max_tokens: int | None
    seed: int

    @classmethod
    def of(cls, config: Config, dataset: str, model: str) -> Self:
        return picking.pick(cls, config, "sample", dataset, model, config.answers)


def run(settings: SampleSettings, prompts: stages.Prompts, out: str, shard: stages.Shard = "0/1"):
    """Reads frozen prompts; writes samples.jsonl: for each K answers at `temperature`, and a greedy
    one where the split is tested on. Each prompt has a seed of its own, so no batch changes an
    answer.
    """
    items = stages.read_by_split(prompts)
    task = tasks.get(settings.task)
    budget = max_tokens(settings)
    examples: list[Example] = []  # of this run's samples; a killed one has reported its own
    sampled: list[Sample] = []

    def load(fast):
        # fail on a broken task before paying for generation
        task.score(task.extract("", items[0][1]), items[0][1])
        task.display(None, items[0][1])
        conversations = [stages.answer_prompt(task, example, settings) for _, example in items]
        return stages.open_engine(settings, fast, conversations, budget)

    def work(chunk, engine):
        made = sample_chunk(chunk, engine, settings)
        examples.extend(example for _, example in chunk)
        sampled.extend(made)
        return made

    stages.write_in_chunks(settings, items, out, load, work, kind="answers", shard=shard)
    for line in filter(
        None, (truncation_report(sampled, budget), stages.near_miss_report(sampled, examples, task))
    ):
        say(f"[{settings.label}] {line}")


def sample_chunk(
    chunk: list[tuple[str, Example]], engine, settings: SampleSettings
) -> list[Sample]:
    """The samples of every (split, example), with the greedy answer where a split is tested on."""
    task = tasks.get(settings.task)
    conversations = [stages.answer_prompt(task, example, settings) for _, example in chunk]
    seeds = [seed_of(settings.seed, "answers", example["id"]) for _, example in chunk]
    tested = frozenset(i for i, (split, _) in enumerate(chunk) if split in TESTED)
    sampling = (
        settings.samples,
        settings.temperature,
        max_tokens(settings),
        seeds,
        settings.top_p,
        tested,
    )
    texts = engines.generate_with_greedy(engine, conversations, *sampling)
    return [
        make_sample(*item, *both, task, settings) for item, both in zip(chunk, texts, strict=True)
    ]


def max_tokens(settings: SampleSettings) -> int:
    """Token budget of an answer: the configuration's, or else the task's."""
    usual = REASONING_TOKENS if settings.reasoning else tasks.get(settings.task).MAX_TOKENS
    return settings.max_tokens or usual


def make_sample(
    split: str,
    example: Example,
    texts: list[str],
    greedy: str | None,
    task: Task,
    settings: SampleSettings,
) -> Sample:
    """A line of samples.jsonl: the texts, the answers that the task reads in them, and whether they
    are right.
    """

    def scored(text: str) -> Greedy:
        """The answer in one text; an unreadable answer is None, and wrong."""
        read = read_answer(task, text, example, settings)
        if not isinstance(read, str | None):
            returned = f"extract returned {read!r} for id {example['id']!r}"
            raise BadInput(f"{settings.task}: {returned}; expected a text, or None")
        reading = Greedy.of(read, text, task.score(read, example))
        return replace(reading, read_by=read_by(read))

    read = [scored(text) for text in texts]
    best = UNSET if greedy is None else scored(greedy)
    if isinstance(best, Greedy) and (logprobs := getattr(greedy, "logprobs", None)) is not None:
        best = replace(best, logprobs=logprobs)
    return Sample(
        id=example["id"],
        split=split,
        answers=[reading.answer for reading in read],
        raw=texts,
        correct=[bool(reading.correct) for reading in read],
        read_by=[read_by(reading.answer) for reading in read],
        greedy=best,
    )


def read_answer(task: Task, text: str, example: Example, settings: AnswerSettings) -> str | None:
    """The answer that a text states. A reasoned text states none without a mark (orce.text.marks)
    or a pattern.
    """
    bare = plain(own_marks(text, example.get("answer_marks", [])))
    marked = "answer_pattern" in example or len(statements(bare, short=not example["choices"])) > 1
    return task.extract(text, example) if marked or not settings.reasoning else None


def truncation_report(records: Sequence[Sample], budget: int) -> str | None:
    """How many texts ended at their budget, and how many of these have no answer that can be read,
    as a line; None if none did.
    """
    texts = []
    for row in records:
        texts += zip(row.raw, row.answers, strict=True)
        if not isinstance(row.greedy, UnsetType):
            texts.append((row.greedy.raw, row.greedy.answer))
    ended = [answer for text, answer in texts if getattr(text, "cut", False)]
    counted = f"{len(ended)} of {len(texts)} texts ended at their budget of {budget} tokens"
    unread = f"{ended.count(None)} of them without an answer that can be read"
    return f"{counted}, {unread}; answers.max_tokens raises it" if ended else None
