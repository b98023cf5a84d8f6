"""Top-k (Tian et al., 2023; Xiong et al., 2024): k guesses with probabilities, of which the first counts."""

from orce.text import extract
from orce.text.prompting import render

LABEL, KIND = "Top-k", "prompted"
SETTINGS = {
    "k": {"type": "integer", "minimum": 1, "default": 4, "description": "asked for", "unit": "guesses"},
    "max_tokens": {
        "type": "integer",
        "minimum": 1,
        "default": 200,
        "description": "budget of the text",
        "unit": "tokens",
    },
}


def prompt(example: dict, task, settings: dict) -> list[dict]:
    content = render("topk", question=task.question(example), k=settings["k"], kind=task.ANSWER_KIND)
    return [{"role": "user", "content": content}]


def read(text: str, example: dict, task, settings: dict) -> tuple[str | None, float | None]:
    """(answer, confidence) of the first guess; None for what cannot be read."""
    guesses = extract.guesses(text, settings["k"])
    if not guesses:
        return None, None
    guess, probability = guesses[0]
    return task.extract(guess, example), probability
