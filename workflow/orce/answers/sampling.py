"""Stage one: the answer LLM samples K answers to every prompt, and one greedy answer to every test prompt."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from orce import stage_settings as settings
from orce import tasks
from orce.answers import asking
from orce.errors import BadInput
from orce.llm import engines
from orce.records import Example, Greedy, Sample, Scored
from orce.runtime.seeds import seed_of
from orce.tasks import Task
from orce.tasks.parts.prompt_files import read_prompts
from orce.tasks.parts.splits import TESTED


def items(prompts: dict[str, str]) -> list[tuple[str, Example]]:
    """(split, example) of every prompt in the files {split: path}."""
    return [(split, example) for split, path in prompts.items() for example in read_prompts(path)]


def messages(chunk: list[tuple[str, Example]], options: settings.Sample) -> list:
    """The conversation of every item, as the answer LLM reads it."""
    task = tasks.get(options.task)
    return [asking.prompt(task, example, options) for _, example in chunk]


def tried(item: tuple[str, Example], options: settings.Sample) -> None:
    """Let the task read an empty text: a mistake in a user's task shows before anything is generated."""
    tasks.tried(tasks.get(options.task), item[1])


def records(chunk: list[tuple[str, Example]], engine, options: settings.Sample) -> list[Sample]:
    """The samples of every item, with the greedy answer where a split is tested on."""
    task, prompts = tasks.get(options.task), messages(chunk, options)
    seeds = [seed_of(options.seed, "answers", example["id"]) for _, example in chunk]
    tested = frozenset(i for i, (split, _) in enumerate(chunk) if split in TESTED)
    found = engines.generate_with_greedy(
        engine,
        prompts,
        options.samples,
        options.temperature,
        asking.max_tokens(options),
        seeds,
        options.top_p,
        tested,
    )
    return [
        record(split, example, texts, greedy, task, options)
        for (split, example), (texts, greedy) in zip(chunk, found, strict=True)
    ]


class Budget:
    """Counts the texts that ended at the token budget, and the ones among them whose answer could not be read."""

    def __init__(self, tokens: int):
        self.tokens, self.texts, self.cut, self.unread = tokens, 0, 0, 0

    def add(self, records: Sequence[Sample]) -> None:
        for one in records:
            both = [*zip(one.raw, one.answers, strict=True)]
            both += [] if isinstance(one.greedy, UnsetType) else [(one.greedy.raw, one.greedy.answer)]
            ended = [answer for text, answer in both if getattr(text, "cut", False)]
            self.texts, self.cut = self.texts + len(both), self.cut + len(ended)
            self.unread += sum(answer is None for answer in ended)

    def __str__(self) -> str:
        return (
            f"{self.cut} of {self.texts} texts ended at their budget of {self.tokens} tokens, {self.unread} of them "
            "without an answer that can be read; answers.max_tokens raises it"
        )


def near_misses(records: Sequence[Sample], examples: list[Example], task: Task) -> str | None:
    """A line about answers that count as wrong although an accepted answer stands in them; None if there are none."""
    if not isinstance(task, tasks.WithHolding):
        return None
    wrong = [
        (answer, example)
        for record, example in zip(records, examples, strict=True)
        for answer, right in zip(record.answers, record.correct, strict=True)
        if answer is not None and not right
    ]
    near = sum(task.holds(answer, example) is not None for answer, example in wrong)
    if not near:
        return None
    return (
        f"{near} of {len(wrong)} wrong answers contain an accepted answer; if they only say it in more words, "
        "equality: contains counts them as right (datasets.NAME.equality, or a key of the question)"
    )


def record(
    split: str, example: Example, texts: list[str], greedy: str | None, task: Task, options: settings.Sample
) -> Sample:
    """The samples of one prompt, with the answers that the task extracts from them."""
    read = [scored(text, example, task, options) for text in texts]
    return Sample(
        id=example["id"],
        split=split,
        answers=[one.answer for one in read],
        raw=texts,
        correct=[bool(one.correct) for one in read],
        greedy=UNSET if greedy is None else _greedy(greedy, example, task, options),
    )


def _greedy(text: str, example: Example, task: Task, options: settings.Sample) -> Greedy:
    """The greedy answer, with the log-probabilities of its tokens where a server gave them."""
    read, logprobs = scored(text, example, task, options), getattr(text, "logprobs", None)
    said = {"answer": read.answer, "raw": text, "correct": read.correct, "f1": read.f1}
    return Greedy(**said, logprobs=UNSET if logprobs is None else logprobs)


def scored(text: str, example: Example, task: Task, options: settings.Sample) -> Scored:
    """The answer in one text; an unreadable answer is None, and wrong."""
    answer = asking.answer(task, text, example, options)
    if not isinstance(answer, str | None):
        raise BadInput(
            f"{options.task}: extract returned {answer!r} for id {example['id']!r}; expected a text, or None"
        )
    return Scored.of(answer, text, task.score(answer, example))
