"""Section 3.1, "Prompt Level Confidence Estimation": kappa, the share of a prompt's sampled answers
that are right; and the realised answer, in which the confidence LLM states its confidence.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from orce.artefacts import tables
from orce.artefacts.store import verify
from orce.errors import BadInput

__all__ = ["kappa", "read_surrogate", "realised_answer", "write_surrogate"]
Answer = TypeVar("Answer")


def kappa(correct: Sequence[bool]) -> float:
    """kappa_s(x) = 1/K sum_i g(Y_i, y*), in [0, 1]: the surrogate of a prompt's reliability.

    correct: g(Y_i, y*) of the K sampled answers, each 0 or 1. Raises ValueError for other values,
    and without samples.
    """
    if not len(correct):
        raise ValueError("a prompt without sampled answers has no kappa")
    if odd := [value for value in correct if value not in (0, 1)]:
        raise ValueError(f"correct must be 0 or 1, not {odd[0]!r}")
    return sum(map(bool, correct)) / len(correct)


def realised_answer(answers: Sequence[Answer], correct: Sequence[bool], rng) -> tuple[Answer, bool]:
    """The answer that the confidence LLM is shown, and whether it is right: a right sample if
    kappa >= 1/2, else a wrong one ("Selection of prompt-answer pairs").

    It is drawn uniformly among these samples, so a frequent answer is drawn often. rng: a numpy
    Generator. Raises ValueError without samples, or if the lengths differ.
    """
    if len(answers) != len(correct):
        raise ValueError(f"{len(answers)} answers but {len(correct)} labels")
    take_right = kappa(correct) >= 0.5
    eligible = [i for i, right in enumerate(correct) if bool(right) == take_right]
    return answers[int(rng.choice(eligible))], take_right


# The file surrogate.csv


class Row(msgspec.Struct, kw_only=True):
    """A prompt with its kappa and its realised answer.

    answer: empty if it could not be read. raw: the reply that states the answer, where the
    confidence LLM reads the reasoning too.
    """

    id: str
    split: str
    n_correct: int
    n_samples: int
    kappa: float
    answer: str
    answer_correct: int
    raw: str | UnsetType = UNSET

    @property
    def key(self) -> tuple[str, str]:
        return self.split, self.id


COLUMNS = Row.__struct_fields__[:-1]  # all but the optional `raw`


def write_surrogate(handle, rows: Sequence[Row]) -> None:
    """Write rows as CSV, with the column `raw` where they have it; floats keep every digit."""
    columns = COLUMNS if not rows or rows[0].raw is UNSET else (*COLUMNS, "raw")
    lines = [msgspec.structs.astuple(row)[: len(columns)] for row in rows]
    tables.write_csv(handle, [columns, *lines])


def read_surrogate(path) -> list[Row]:
    """The rows of surrogate.csv, in file order. Raises BadInput naming the file or the line."""
    lines = tables.cells(verify(path))
    _, header = next(lines, ("", []))  # of an empty file no column
    if missing := [column for column in COLUMNS if column not in header]:
        raise BadInput(f"{path}: no column {missing[0]!r}; expected {', '.join(COLUMNS)}")
    rows = []
    for where, cells in lines:
        try:
            rows.append(msgspec.convert(dict(zip(header, cells, strict=False)), Row, strict=False))
        except msgspec.ValidationError as error:
            raise BadInput(f"{where}: not of the surrogate step ({error}); make it again") from None
    return rows
