"""The confidence LLM: what it is asked about an answer and what it states (section 3.2), and its reader."""

import math
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from orce.errors import BadInput
from orce.llm.chat import statement
from orce.records import Example, Messages
from orce.runtime import process
from orce.tasks import Task
from orce.text import extract, render

MASS = 0.9  # of the 101 values; prompts that give them less are counted


def judge_prompt(task: Task, example: Example, answer: str | None, reasoning: str | None = None) -> Messages:
    """The confidence LLM's prompt for a question and an answer: the same for every method that reads pairs. reasoning: the
    whole reply that ends in the answer, where the confidence LLM reads that too (judge_reads: reasoning)."""
    shown = {"question": task.question(example), "answer": task.display(answer, example)}
    return [{"role": "user", "content": render("confidence", reasoning=reasoning, **shown)}]


class Stated(NamedTuple):
    """What a confidence LLM states, the mean and mode of its distribution, and its mass: the probability of a valid value."""

    stated: float
    mean: float
    mass: float
    raw: str | list[str]
    retried: bool
    mode: float | UnsetType = UNSET

    def written(self) -> dict[str, Any]:
        return {key: value for key, value in self._asdict().items() if value is not UNSET}


def state(reader, prompts: list[Messages], constrained: bool = False, mode: bool = False) -> list[Stated]:
    """Stated confidences.

    The model first states its confidence as free text. If no confidence can be read in it, greedy decoding constrained to
    the 101 valid statements replaces it; `raw` then holds both, and `retried` is true. With `constrained` there is no free
    text: every statement is decoded in this way, and counted so. With `mode` there is the mode of the distribution too.
    The log counts the prompts where free text and constrained decoding differ, and those of little mass. Raises BadInput for
    probabilities that are not finite.
    """
    stated, differ = [], 0
    for reading in reader.read(prompts, state_text=not constrained):
        if not math.isfinite(mean := reading.mean):
            remedy = "its weights are broken: train it again, with a lower learning_rate or dtype: float32"
            raise BadInput(f"the confidence LLM's probabilities are not finite numbers; {remedy}")
        raw, confidence = reading.text, None if constrained else extract.confidence(reading.text)
        retried = confidence is None
        if retried:
            again = statement(reading.greedy)
            raw, confidence = again if constrained else [raw, again], reading.greedy / 100
        differ += confidence != reading.greedy / 100
        kept = reading.mode if mode else UNSET
        stated.append(Stated(confidence, mean, reading.mass, raw, retried, kept))
    process.count_prompts("have another value in free text than by constrained decoding", differ, len(prompts))
    few = sum(record.mass < MASS for record in stated)
    process.count_prompts(f"have less than {MASS:.0%} of their probability on 0 to 100 percent", few, len(prompts))
    return stated
