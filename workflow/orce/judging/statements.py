"""What a confidence LLM is asked about an answer, and what it states (section 3.2)."""

from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from orce.llm.chat import statement
from orce.records import Example, Messages
from orce.tasks import Task
from orce.text import extract, render


def judge_prompt(task: Task, example: Example, answer: str | None, reasoning: str | None = None) -> Messages:
    """The confidence LLM's prompt for a question and an answer: the same for every method that reads pairs.

    reasoning: the whole reply that ends in the answer, where the confidence LLM reads that too (judge_reads: reasoning).
    """
    shown = {"question": task.question(example), "answer": task.display(answer, example)}
    return [{"role": "user", "content": render("confidence", reasoning=reasoning, **shown)}]


class Stated(NamedTuple):
    """What a confidence LLM states; see orce.stages.state.Statement."""

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
