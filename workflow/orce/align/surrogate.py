"""Correctness likelihood of a prompt and its realised answer (paper, section "Prompt Level
Confidence Estimation").
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


class Row(msgspec.Struct, kw_only=True):
    """A prompt in surrogate.csv, with its kappa and its realised answer.

    answer: the empty text for one that could not be read. raw: the reply that states the answer,
        where a model grades it.
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


def kappa(correct: Sequence[bool]) -> float:
    """Share of a prompt's K sampled answers that are right, kappa_s(x) in [0, 1]; ValueError
    without samples.
    """
    if not len(correct):
        raise ValueError("a prompt without sampled answers has no kappa")
    if odd := [value for value in correct if value not in (0, 1)]:
        raise ValueError(f"correct must be 0 or 1, not {odd[0]!r}")
    return sum(map(bool, correct)) / len(correct)


def realised_answer(answers: Sequence[Answer], correct: Sequence[bool], rng) -> tuple[Answer, bool]:
    """The answer that the confidence LLM sees, and whether it is right; rng: a numpy Generator.

    A right sample if kappa >= 1/2, else a wrong one (paper, "Selection of prompt-answer pairs"),
    uniformly among the samples, so a frequent answer is chosen often. ValueError without samples,
    or if the lengths differ.
    """
    if len(answers) != len(correct):
        raise ValueError(f"{len(answers)} answers but {len(correct)} labels")
    take_right = kappa(correct) >= 0.5
    eligible = [i for i, right in enumerate(correct) if bool(right) == take_right]
    return answers[int(rng.choice(eligible))], take_right


def write_surrogate(handle, rows: Sequence[Row]) -> None:
    """Write rows as CSV, with the column `raw` where they have it; floats keep every digit."""
    columns = COLUMNS if not rows or rows[0].raw is UNSET else (*COLUMNS, "raw")
    lines = ([getattr(row, column) for column in columns] for row in rows)
    tables.write_csv(handle, [columns, *lines])


def read_surrogate(path) -> list[Row]:
    """The rows of surrogate.csv with their types, in file order; an unreadable answer is the empty
    string.
    """
    lines = tables.cells(verify(path))
    _, header = next(lines)
    if missing := [column for column in COLUMNS if column not in header]:
        raise BadInput(f"{path}: no column {missing[0]!r}; expected {', '.join(COLUMNS)}")
    rows = []
    for where, cells in lines:
        try:
            rows.append(msgspec.convert(dict(zip(header, cells, strict=False)), Row, strict=False))
        except msgspec.ValidationError as error:
            raise BadInput(f"{where}: not of the surrogate step ({error}); make it again") from None
    return rows
