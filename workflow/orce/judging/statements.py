"""A confidence LLM states its confidence in the greedy answer to every test prompt (stated methods)."""

from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from orce import tasks
from orce.answers import realised, tested
from orce.llm.chat import statement
from orce.records import Example, Greedy, Messages, Statement
from orce.stage_settings import State
from orce.text import extract


def items(prompts: str, samples: str, split: str = "test") -> list[tuple[Example, Greedy]]:
    """(example, greedy record) of every example of a split; `prompts` and `samples` are the two files."""
    return [(example, record.greedy) for example, record in tested.items(prompts, samples, split)]


def messages(chunk: list[tuple[Example, Greedy]], options: State) -> list[Messages]:
    """The conversation of every item, as the confidence LLM reads it."""
    task, whole = tasks.get(options.task), options.reads == "reasoning"
    return [realised.messages(task, example, greedy.answer, greedy.raw if whole else None) for example, greedy in chunk]


def records(chunk: list[tuple[Example, Greedy]], reader, weights: str | None, options: State) -> list[Statement]:
    """`weights`, and the options constrained and mode, as in `state`."""
    readings = state(reader, messages(chunk, options), weights, options.constrained, options.mode)
    return [
        Statement(id=example["id"], answer=greedy.answer, correct=greedy.correct, f1=greedy.f1, **read._asdict())
        for (example, greedy), read in zip(chunk, readings, strict=True)
    ]


class Stated(NamedTuple):
    """What a confidence LLM states; see orce.records.Statement."""

    stated: float
    mean: float
    mass: float
    raw: str | list[str]
    retried: bool
    mode: float | UnsetType = UNSET

    def written(self) -> dict[str, Any]:
        return {key: value for key, value in self._asdict().items() if value is not UNSET}


def state(
    reader, prompts: list[Messages], adapter: str | None = None, constrained: bool = False, mode: bool = False
) -> list[Stated]:
    """Stated confidences.

    The model first states its confidence as free text. If no confidence can be read in it, greedy decoding constrained to
    the 101 valid statements replaces it; `raw` then holds both, and `retried` is true. With `constrained` there is no free
    text: every statement is decoded in this way, and counted so. `adapter`: the weights to use, for a reader that has
    several (orce.judging.reader.SwitchingReader). With `mode` there is the mode of the distribution too.
    """
    chosen = {} if adapter is None else {"adapter": adapter}
    readings = reader.read(prompts, state_text=not constrained, **chosen)
    return [_stated(reading, reading.mode if mode else UNSET) for reading in readings]


def _stated(reading, mode: float | UnsetType) -> Stated:
    raw: str | None = reading.text
    confidence = None if raw is None else extract.confidence(raw)
    if raw is not None and confidence is not None:
        return Stated(confidence, reading.mean, reading.mass, raw, False, mode)
    among = statement(reading.greedy)
    return Stated(reading.greedy / 100, reading.mean, reading.mass, among if raw is None else [raw, among], True, mode)
