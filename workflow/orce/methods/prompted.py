"""What the answer LLM says of its answer: with it (Top-k, CoT), or asked about its greedy answer
(linguistic confidence).
"""

import itertools
import re
from typing import Any, NamedTuple

from orce.artefacts.records import Example, Messages
from orce.methods.method import Method
from orce.tasks import Task, judge_prompt
from orce.text import extract, render
from orce.text.marks import DENIED

Settings = dict[str, Any]

# Of the worked examples, in percent. All their answers are right; the numbers differ so that the
# model copies the form and not one number.
CONFIDENCES = (90, 60, 100, 40)


class Worked(NamedTuple):
    """A worked example: `reply` is as a model should write it, with the answer in it."""

    question: str
    reply: str
    answer: str
    confidence: int


def worked_examples(task: Task, settings: Settings) -> list[Worked]:
    """The task's worked examples, if it has any, as many as `shots` allows."""
    rows = getattr(task, "worked", list)()[: settings.get("shots")]
    confidences = itertools.cycle(CONFIDENCES)
    return [Worked(*row, confidence=next(confidences)) for row in rows]


def conversation(
    template: str, example: Example, task: Task, worked: list[Worked], replies: list[str], **values
) -> Messages:
    """The worked examples with their replies as earlier turns, and the question. The first turn has
    the instruction.
    """
    first, *later = [*(shot.question for shot in worked), task.question(example)]
    instruction = render(template, question=first, kind=task.ANSWER_KIND, **values)
    turns = [{"role": "user", "content": instruction}]
    for reply, question in zip(replies, later, strict=True):
        turns.append({"role": "assistant", "content": reply})
        turns.append({"role": "user", "content": f"Question: {question}"})
    return turns


def topk_prompt(example: Example, task: Task, settings: Settings) -> Messages:
    k = settings["k"]
    worked = worked_examples(task, settings)
    answers = [shot.answer for shot in worked]
    replies = [topk_reply(shot, answers, k) for shot in worked]
    return conversation("topk", example, task, worked, replies, k=k)


def topk_reply(shot: Worked, answers: list[str], k: int) -> str:
    """A worked reply: the right guess first, then the answers of other questions as equally likely
    wrong guesses.
    """
    others = [answer for answer in dict.fromkeys(answers) if answer != shot.answer]
    lines = [f"G1: {shot.reply}", f"P1: {shot.confidence}%"]
    for i, answer in enumerate(others[: k - 1], 2):
        guess = answer.join(shot.reply.rsplit(shot.answer, 1))  # in place of the last mention
        lines += [f"G{i}: {guess}", f"P{i}: {(100 - shot.confidence) // k}%"]
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
    worked = worked_examples(task, settings)
    replies = []
    for shot in worked:
        end = f"Answer: {shot.answer}\nConfidence: {shot.confidence}%"
        replies.append(f"Explanation: {shot.reply}\n{end}")
    return conversation("cot", example, task, worked, replies)


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


def ask_about(
    template: str, example: Example, answer: str | None, task: Task, **values
) -> Messages:
    """One turn that shows the question with the answer."""
    question = task.question(example)
    text = render(template, question=question, answer=task.display(answer, example), **values)
    return [{"role": "user", "content": text}]


def linguistic_ask(
    example: Example, answer: str | None, task: Task, settings: Settings
) -> Messages:
    return ask_about("linguistic", example, answer, task, expressions=[*EXPRESSIONS])


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


def p_true_ask(example: Example, answer: str | None, task: Task, settings: Settings) -> Messages:
    return ask_about("p_true_text", example, answer, task)


# One of the two is denied ("that is not true"), or the letter is in a sentence ("A better ...").
NOT_SAID = rf"(?i:{DENIED})(?:(?i:true|false)|[AB])\b|\b[AB] (?!is )[a-z]"


def p_true_read(text: str, settings: Settings) -> float | None:
    """1 for A, True, and 0 for B, False; None for a text that says neither or both, or denies one."""
    plain = extract.plain(text)
    if re.search(NOT_SAID, plain):
        return None
    letters = re.findall(r"\b(?:[ABab](?=[.):]|\s*$)|[AB]\b)", plain)
    words = re.findall(r"(?i)\b(?:true|false)\b", text)
    said = {letter in "Aa" for letter in letters} | {word.casefold() == "true" for word in words}
    return float(said.pop()) if len(said) == 1 else None


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

# Two methods that read probabilities, for a server that gives texts alone: the model is asked about
# its greedy answer, and its reply is read. P(True) is then 1 or 0. `orce.confidence` uses them under
# the names in BY_TEXT.
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
