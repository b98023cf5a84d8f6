"""Worked examples for prompts that ask for an answer with its confidence (Top-k, CoT)."""

import itertools
from typing import NamedTuple

from orce.tasks import Task, WithExamples

# All worked answers are right. The numbers differ so that the model copies the form and not one number.
CONFIDENCES = (90, 60, 100, 40)


class Worked(NamedTuple):
    """A worked example: question, the reply as a model should write it, the answer in it, confidence in percent."""

    question: str
    reply: str
    answer: str
    confidence: int


def examples(task: Task, shots: int | None) -> list[Worked]:
    """The first `shots` worked examples of a task, or all if None; none for a zero-shot task."""
    found = task.worked() if isinstance(task, WithExamples) else []
    percents = itertools.cycle(CONFIDENCES)
    return [Worked(question, reply, answer, next(percents)) for question, reply, answer in found[:shots]]


def conversation(instruction: str, shown: list[Worked], replies: list[str], question: str) -> list[dict]:
    """Chat turns: `instruction`, which contains the first question; then replies and further questions in turn.

    The last question is the one to answer.
    """
    later = [*(one.question for one in shown[1:]), *([question] if shown else [])]
    questions = [instruction, *(f"Question: {text}" for text in later)]
    turns = [{"role": "user", "content": questions[0]}]
    for reply, text in zip(replies, questions[1:], strict=True):
        turns += [{"role": "assistant", "content": reply}, {"role": "user", "content": text}]
    return turns
