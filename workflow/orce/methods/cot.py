"""Chain of thought (Wei et al., 2022; Xiong et al., 2024): reason, answer, then state the confidence, in one text."""

from typing import Any

from orce.records import Example
from orce.tasks import Task
from orce.tasks.examples import conversation, worked
from orce.text import extract
from orce.text.prompting import render

LABEL, KIND = "CoT", "prompted"
SETTINGS = {
    "max_tokens": 512,  # budget of the text
}


def prompt(example: Example, task: Task, settings: dict[str, Any]) -> list[dict]:
    """The question, after the task's worked examples (if any) as earlier turns; their reply is the reasoning."""
    question, shown = task.question(example), worked(task, settings.get("shots"))
    first = render("cot", question=shown[0].question if shown else question, kind=task.ANSWER_KIND)
    replies = [f"Explanation: {one.reply}\nAnswer: {one.answer}\nConfidence: {one.confidence}%" for one in shown]
    return conversation(first, shown, replies, question)


def read(text: str, example: Example, task: Task, settings: dict[str, Any]) -> tuple[str | None, float | None]:
    """(answer, confidence); None for what cannot be read."""
    answer, confidence = extract.answer_and_confidence(text)
    return (None if answer is None else task.extract(answer, example)), confidence
