"""Sample K answers to every prompt, and one greedy answer to every test prompt (section 3.1)."""

from collections.abc import Sequence
from typing import Self

from msgspec import UNSET
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
    items = [(split, example) for (split, _), example in stages.read_by_split(prompts).items()]
    task = tasks.get(settings.task)
    budget = max_tokens(settings)
    examples: list[Example] = []  # of this run's samples; a killed one has reported its own
    sampled: list[Sample] = []

    def load():
        # fail on a broken task before paying for generation
        _, first = items[0]
        task.score(task.extract("", first), first)
        task.display(None, first)
        conversations = [stages.answer_prompt(task, example, settings) for _, example in items]
        return stages.open_engine(settings, conversations, budget)

    def work(chunk, engine):
        records = sample_chunk(chunk, engine, settings)
        examples.extend(example for _, example in chunk)
        sampled.extend(records)
        return records

    stages.write_in_chunks(settings, items, out, load, work, kind="answers", shard=shard)
    near_misses = stages.near_miss_report(sampled, examples, task)
    for line in (truncation_report(sampled, budget), near_misses):
        if line:
            say(f"[{settings.label}] {line}")


def sample_chunk(
    chunk: list[tuple[str, Example]], engine, settings: SampleSettings
) -> list[Sample]:
    """The samples of every (split, example), with the greedy answer where a split is tested on."""
    task = tasks.get(settings.task)
    conversations = [stages.answer_prompt(task, example, settings) for _, example in chunk]
    seeds = [seed_of(settings.seed, "answers", example["id"]) for _, example in chunk]
    tested = frozenset(i for i, (split, _) in enumerate(chunk) if split in TESTED)
    generated = engines.generate_with_greedy(
        engine,
        conversations,
        settings.samples,
        settings.temperature,
        max_tokens(settings),
        seeds,
        settings.top_p,
        tested,
    )
    records = []
    for (split, example), (texts, greedy) in zip(chunk, generated, strict=True):
        records.append(make_sample(split, example, texts, greedy, task, settings))
    return records


def max_tokens(settings: SampleSettings) -> int:
    """Token budget of an answer: the configuration's, or else the task's."""
    if settings.max_tokens:
        return settings.max_tokens
    return REASONING_TOKENS if settings.reasoning else tasks.get(settings.task).MAX_TOKENS


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

    def read(text: str) -> Greedy:
        """The answer in one text; an unreadable answer is None, and wrong."""
        answer = read_answer(task, text, example, settings)
        if not isinstance(answer, str | None):
            returned = f"extract returned {answer!r} for id {example['id']!r}"
            raise BadInput(f"{settings.task}: {returned}; expected a text, or None")
        reading = Greedy.of(answer, text, task.score(answer, example))
        reading = replace(reading, read_by=read_by(answer))
        logprobs = getattr(text, "logprobs", None)  # of a greedy text, where a server gave them
        return reading if logprobs is None else replace(reading, logprobs=logprobs)

    readings = [read(text) for text in texts]
    return Sample(
        id=example["id"],
        split=split,
        answers=[reading.answer for reading in readings],
        raw=texts,
        correct=[bool(reading.correct) for reading in readings],
        read_by=[read_by(reading.answer) for reading in readings],
        greedy=UNSET if greedy is None else read(greedy),
    )


def read_answer(task: Task, text: str, example: Example, settings: AnswerSettings) -> str | None:
    """The answer that a text states. A reasoned text states none without a mark (orce.text.marks)
    or a pattern.
    """
    if settings.reasoning and "answer_pattern" not in example:
        bare = plain(own_marks(text, example.get("answer_marks", [])))
        # the last of the statements is the whole text
        if len(statements(bare, short=not example["choices"])) == 1:
            return None
    return task.extract(text, example)


def truncation_report(records: Sequence[Sample], budget: int) -> str | None:
    """How many texts ended at their budget, and how many of these have no answer that can be read,
    as a line; None if none did.
    """
    texts = []
    for record in records:
        texts += zip(record.raw, record.answers, strict=True)
        if record.greedy is not UNSET:
            texts.append((record.greedy.raw, record.greedy.answer))
    ended = [answer for text, answer in texts if getattr(text, "cut", False)]
    if not ended:
        return None
    counted = f"{len(ended)} of {len(texts)} texts ended at their budget of {budget} tokens"
    unread = f"{ended.count(None)} of them without an answer that can be read"
    return f"{counted}, {unread}; answers.max_tokens, or --max-tokens, raises it"
