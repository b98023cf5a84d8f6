"""Linguistic confidence (Tian et al., 2023, "Ling."): the answer LLM chooses one of 13 expressions for its greedy answer.

Each expression stands for the probability that people gave it in the survey which Tian et al. use (Fagen-Ulmschneider,
2015); the values come from their code.
"""

import re
from typing import Any

from orce.records import Example
from orce.tasks import Task
from orce.text.extract import plain
from orce.text.prompting import render

LABEL, KIND = "Linguistic", "asked"
SETTINGS = {
    "max_tokens": 16,  # budget of the reply
}
EXPRESSIONS = {
    "Almost certain": 0.95,
    "Highly likely": 0.9,
    "Very good chance": 0.8,
    "Probably": 0.7,
    "Likely": 0.7,
    "Better than even": 0.6,
    "About even": 0.5,
    "Probably not": 0.25,
    "Unlikely": 0.2,
    "Little chance": 0.1,
    "Chances are slight": 0.1,
    "Highly unlikely": 0.05,
    "Almost no chance": 0.02,
}


def ask(example: Example, answer: str | None, task: Task, settings: dict[str, Any]) -> list[dict]:
    """The question with the answer, and the expressions to choose from."""
    shown = {"question": task.question(example), "answer": task.display(answer, example)}
    return [{"role": "user", "content": render("linguistic", expressions=[*EXPRESSIONS], **shown)}]


def read(text: str, settings: dict[str, Any]) -> float | None:
    """The probability of the one expression in a text; None if it has none or several different ones."""
    said, found = plain(text).casefold(), set()
    for expression in sorted(EXPRESSIONS, key=len, reverse=True):  # "highly unlikely" before "unlikely" and "likely"
        said, count = re.subn(rf"(?<!\w){re.escape(expression.casefold())}(?!\w)", " ", said)
        found |= {expression} if count else set()
    return EXPRESSIONS[found.pop()] if len(found) == 1 else None
