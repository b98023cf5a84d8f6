"""Chain of thought (Wei et al., 2022; Xiong et al., 2024): reason, answer, then state the confidence, in one text."""

from orce.text import extract
from orce.text.prompting import render

LABEL, KIND = "CoT", "prompted"
SETTINGS = {
    "max_tokens": {
        "type": "integer",
        "minimum": 1,
        "default": 512,
        "description": "budget of the text",
        "unit": "tokens",
    }
}


def prompt(example: dict, task, settings: dict) -> list[dict]:
    content = render("cot", question=task.question(example), kind=task.ANSWER_KIND)
    return [{"role": "user", "content": content}]


def read(text: str, example: dict, task, settings: dict) -> tuple[str | None, float | None]:
    """(answer, confidence); None for what cannot be read."""
    answer, confidence = extract.answer_and_confidence(text)
    return (None if answer is None else task.extract(answer, example)), confidence
