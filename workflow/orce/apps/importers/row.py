"""One question with what a foreign file says of it: the form that every format is read into."""

import math
from dataclasses import dataclass, field
from typing import Any

from orce.errors import BadInput


@dataclass
class Row:
    """`place` is for messages. answers: the K samples. correct: one judgement for each, or None. choices: the options of a
    multiple-choice question, whose reference is a letter; otherwise the references are the accepted answers.
    stated: {method: {confidence, and its own answer and correct where it has them}}. further: its columns that are not read.
    """

    place: str
    question: str
    answers: list[str | None]
    id: str | None = None
    correct: list[bool] | None = None
    choices: list[str] | None = None
    reference: Any = None
    stated: dict[str, dict] = field(default_factory=dict)
    further: tuple[str, ...] = ()
    same: str = ""  # rows of one question have the same; without it, the id or the question

    def __post_init__(self):
        self.same = self.same or self.id or self.question


def judgement(place: str, value) -> bool:
    """True or false of 0, 1, 1.0, "true", "FALSE", ... Raises BadInput for anything else."""
    known = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
    if str(value).strip().lower() not in known:
        raise BadInput(f"{place}: a judgement is {value!r}; expected true or false, or 1 or 0")
    return known[str(value).strip().lower()]


def confidence(place: str, value) -> float | None:
    """A number from 0 to 1; None for an empty cell, null or NaN, which say that none could be read."""
    if value is None or not str(value).strip():
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if math.isnan(number):
        return None
    if not 0 <= number <= 1 or isinstance(value, bool):
        raise BadInput(
            f"{place}: a confidence is {value!r}; expected a number from 0 to 1, or nothing where it is unread"
        )
    return number


def letter(place: int) -> str:
    return chr(ord("A") + place)
