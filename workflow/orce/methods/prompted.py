"""What the answer LLM says of its answer: with it (Top-k, CoT), or asked about its greedy answer
(linguistic confidence).
"""

import itertools
import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any

from orce.artefacts.records import Example, Messages
from orce.methods.method import Method
from orce.tasks import Task, judge_prompt
from orce.text import extract, render
from orce.text.marks import DENIED

Settings = dict[str, Any]

# Of worked examples, which are all right. The numbers differ so that the model copies the form and
# not one number.
CONFIDENCES = (90, 60, 100, 40)
# The reply is as a model should write it, with the answer in it; the confidence is in percent.
Worked = namedtuple("Worked", ("question", "reply", "answer", "confidence"))


def _conversation(
    name: str, example: Example, task: Task, settings: Settings, reply: Callable, **values
) -> Messages:
    """The task's worked examples (if any) as earlier turns, and the question; the first turn has
    the instruction.
    """
    worked = getattr(task, "worked", list)()[: settings.get("shots")]
    confidences = itertools.cycle(CONFIDENCES)
    shown = [Worked(*row, confidence=next(confidences)) for row in worked]
    first, *later = [*(shot.question for shot in shown), task.question(example)]
    instruction = render(name, question=first, kind=task.ANSWER_KIND, **values)
    turns = [{"role": "user", "content": instruction}]
    for shot, question in zip(shown, later, strict=True):
        turns.append({"role": "assistant", "content": reply(shot, shown)})
        turns.append({"role": "user", "content": f"Question: {question}"})
    return turns


def topk_prompt(example: Example, task: Task, settings: Settings) -> Messages:
    k = settings["k"]

    def reply(shot: Worked, shown: list[Worked]) -> str:
        return _guesses(shot, shown, k)

    return _conversation("topk", example, task, settings, reply, k=k)


def _guesses(shot: Worked, shown: list[Worked], k: int) -> str:
    """A worked reply: the right guess first, then the other questions' answers as equally likely
    wrong guesses.
    """
    wrong = list(dict.fromkeys(row.answer for row in shown if row.answer != shot.answer))[: k - 1]
    guesses = [shot.reply, *(answer.join(shot.reply.rsplit(shot.answer, 1)) for answer in wrong)]
    percents = [shot.confidence, *[(100 - shot.confidence) // k] * len(wrong)]
    lines = []
    for i, (guess, percent) in enumerate(zip(guesses, percents, strict=True), 1):
        lines += [f"G{i}: {guess}", f"P{i}: {percent}%"]
    return "\n".join(lines)


def topk_read(
    text: str, example: Example, task: Task, settings: Settings
) -> tuple[str | None, float | None]:
    """(answer, confidence) of the first guess; None for what cannot be read."""
    guesses = extract.guesses(text, settings["k"])
    if not guesses:
        return None, None
    guess, probability = guesses[0]
    return task.extract(guess, example), probability


def cot_prompt(example: Example, task: Task, settings: Settings) -> Messages:
    """The reply of a worked example is the reasoning."""

    def reply(shot: Worked, _) -> str:
        return f"Explanation: {shot.reply}\nAnswer: {shot.answer}\nConfidence: {shot.confidence}%"

    return _conversation("cot", example, task, settings, reply)


def cot_read(
    text: str, example: Example, task: Task, settings: Settings
) -> tuple[str | None, float | None]:
    answer, confidence = extract.answer_and_confidence(text)
    return (None if answer is None else task.extract(answer, example)), confidence


# The probability that people gave each expression in the survey that Tian et al. use
# (Fagen-Ulmschneider, 2015); from their code.
EXPRESSIONS = {
    "Almost certain": 0.95, "Highly likely": 0.9, "Very good chance": 0.8, "Probably": 0.7, "Likely": 0.7,
    "Better than even": 0.6, "About even": 0.5, "Probably not": 0.25, "Unlikely": 0.2, "Little chance": 0.1,
    "Chances are slight": 0.1, "Highly unlikely": 0.05, "Almost no chance": 0.02,
}  # fmt: skip


def linguistic_ask(
    example: Example, answer: str | None, task: Task, settings: Settings
) -> list[dict]:
    """The question with the answer, and the expressions to choose from."""
    shown = {"question": task.question(example), "answer": task.display(answer, example)}
    return [{"role": "user", "content": render("linguistic", expressions=[*EXPRESSIONS], **shown)}]


def linguistic_read(text: str, settings: Settings) -> float | None:
    """The probability of the one expression in a text; None if it has none or several different
    ones.
    """
    text = extract.plain(text).casefold()
    if re.search(rf"{DENIED}(?:{'|'.join(EXPRESSIONS)})", text, re.IGNORECASE):
        return None  # "not likely" is none of them
    stated = set()
    # the longest first, and taken out: "highly unlikely" before "unlikely" and "likely"
    for expression in sorted(EXPRESSIONS, key=len, reverse=True):
        text, count = re.subn(rf"(?<!\w){re.escape(expression.casefold())}(?!\w)", " ", text)
        if count:
            stated.add(expression)
    return EXPRESSIONS[stated.pop()] if len(stated) == 1 else None


def confidence_ask(
    example: Example, answer: str | None, task: Task, settings: Settings
) -> Messages:
    """The prompt of the confidence LLM, for a model that replies in text alone."""
    return judge_prompt(task, example, answer)


def confidence_read(text: str, settings: Settings) -> float | None:
    return extract.confidence(text)


def p_true_ask(example: Example, answer: str | None, task: Task, settings: Settings) -> list[dict]:
    shown = {"question": task.question(example), "answer": task.display(answer, example)}
    return [{"role": "user", "content": render("p_true_text", **shown)}]


def p_true_read(text: str, settings: Settings) -> float | None:
    """1 for A, True, and 0 for B, False; None for a text that says neither or both."""
    said = {
        letter.upper()
        for letter in re.findall(r"\b(?:[ABab](?=[.):]|\s*$)|[AB]\b)", extract.plain(text))
    }
    words = {word.casefold() for word in re.findall(r"(?i)\b(?:true|false)\b", text)}
    read = {letter == "A" for letter in said} or {word == "true" for word in words}
    return float(read.pop()) if len(read) == 1 else None


METHODS = {
    # Tian et al. (2023), Xiong et al. (2024): k guesses with probabilities; the first guess counts.
    "topk": Method(
        "Top-k", "prompted", prompt=topk_prompt, read=topk_read, answer="the first guess",
        settings={
            "k": 4,  # guesses asked for
            "max_tokens": 200,  # budget of the text
        },
    ),
    # Wei et al. (2022), Xiong et al. (2024): reason, answer, then state the confidence, in one
    # text.
    "cot": Method(
        "CoT", "prompted", prompt=cot_prompt, read=cot_read,
        settings={
            "max_tokens": 512,  # budget of the text
        },
    ),
    # Tian et al. (2023), "Ling.": one of 13 expressions for its greedy answer.
    "linguistic": Method(
        "Linguistic", "prompted", ask=linguistic_ask, read=linguistic_read,
        settings={
            "max_tokens": 16,  # budget of the reply
        },
    ),
}  # fmt: skip

# Methods that read the weights, for a model of which a server gives texts alone: asked about the greedy answer, and read in the
# reply. P(True) is then 1 or 0. They are rows of `orce.confidence` under the names in BY_TEXT.
AS_TEXT = {
    "vanilla_text": Method(
        "Vanilla", "prompted", ask=confidence_ask, read=confidence_read,
        settings={
            "max_tokens": 16,  # budget of the reply
        },
    ),
    "p_true_text": Method(
        "P(True)", "prompted", ask=p_true_ask, read=p_true_read,
        settings={
            "max_tokens": 16,  # budget of the reply
        },
    ),
}  # fmt: skip
BY_TEXT = {"vanilla": "vanilla_text", "p_true": "p_true_text"}
