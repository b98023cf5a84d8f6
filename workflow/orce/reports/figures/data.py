"""Data for the pictures of confidences: a cell's confidences.jsonl, method by method."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from orce import metrics
from orce.metrics import summary
from orce.stage_settings import Pictured


@dataclass(frozen=True)
class Stated:
    """One method's confidence [n] in [0, 1] and correct [n] of 0/1 on the test items; `missing` says why there is none.

    answers: the answers themselves, to see which methods judge the same. unread: how many confidences could not be read
    and have the value that stands for them.
    """

    method: str
    label: str
    confidence: np.ndarray = field(default_factory=lambda: np.zeros(0))
    correct: np.ndarray = field(default_factory=lambda: np.zeros(0))
    answers: tuple = ()
    unread: int = 0
    missing: str = ""

    @property
    def remarks(self) -> str:
        """Caveats for the reader of the picture, in a few words."""
        n = len(self.confidence)
        unread = f"{self.unread} of {n} unread" if self.unread else ""
        if self.unread == n:
            return unread
        why = metrics.undefined_reason("spearman", self.confidence, self.correct) or ""
        return "; ".join(filter(None, [unread, why]))


def read_cell(cell: Pictured, results: Path, unparsed: float) -> list[Stated]:
    """A cell's methods in the order of its table."""
    folder = Path(results) / cell.dataset / cell.model
    return [read(folder / method, method, label, unparsed) for method, label in cell.methods]


def read(folder: Path, method: str, label: str, unparsed: float) -> Stated:
    """One method's statements, unreadable ones replaced by `unparsed`; a file that does not exist is reported as missing."""
    path = folder / "confidences.jsonl"
    if not path.exists():
        return Stated(method, label, missing=f"no {path.name}")
    found = summary.read_stated(path, unparsed)
    return Stated(method, label, found.confidence, found.correct, tuple(found.answers), found.unread)
