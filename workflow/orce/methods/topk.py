"""Top-k (Tian et al., 2023; Xiong et al., 2024): k guesses with probabilities; the first guess counts."""

from typing import Any

from orce.records import Example
from orce.tasks import Task
from orce.tasks.examples import Worked, conversation, worked
from orce.text import extract
from orce.text.prompting import render

LABEL, KIND, ANSWER = "Top-k", "prompted", "the first guess"
SETTINGS = {
    "k": 4,  # guesses asked for
    "max_tokens": 200,  # budget of the text
}


def prompt(example: Example, task: Task, settings: dict[str, Any]) -> list[dict]:
    """The question, after the task's worked examples (if any) as earlier turns."""
    question, shown = task.question(example), worked(task, settings.get("shots"))
    opening = shown[0].question if shown else question
    first = render("topk", question=opening, k=settings["k"], kind=task.ANSWER_KIND)
    return conversation(first, shown, [_reply(one, shown, settings["k"]) for one in shown], question)


def _reply(one: Worked, shown: list[Worked], k: int) -> str:
    """A worked reply: the right guess first, then the other questions' answers as equally likely wrong guesses."""
    wrong = list(dict.fromkeys(other.answer for other in shown if other.answer != one.answer))[: k - 1]
    guesses = [one.reply, *(answer.join(one.reply.rsplit(one.answer, 1)) for answer in wrong)]
    percents = [one.confidence, *[(100 - one.confidence) // k] * len(wrong)]
    pairs = enumerate(zip(guesses, percents, strict=True), 1)
    return "\n".join(f"G{i}: {guess}\nP{i}: {percent}%" for i, (guess, percent) in pairs)


def read(text: str, example: Example, task: Task, settings: dict[str, Any]) -> tuple[str | None, float | None]:
    """(answer, confidence) of the first guess; None for what cannot be read."""
    guesses = extract.guesses(text, settings["k"])
    if not guesses:
        return None, None
    guess, probability = guesses[0]
    return task.extract(guess, example), probability
