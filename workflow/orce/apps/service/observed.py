"""How a judge's stated confidences held on its test set: the reliability diagram, and its words for one answer."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orce.errors import BadInput
from orce.evaluation import metrics, stated

N_BINS = 10  # as in the tables


def of_judge(folder: Path) -> Path | None:
    """The confidences that a run's judge stated on its test set; None outside a run."""
    name = folder.name.replace("dpo", "orce", 1) if folder.name.startswith("dpo") else folder.name
    confidences = folder.resolve().parent / name / "confidences.jsonl"
    return confidences if confidences.is_file() else None


@dataclass(frozen=True)
class Bin:
    """Items of a test set whose confidences lie between low and high: their number, mean confidence and accuracy."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Diagram:
    """A reliability diagram; bins: right-closed tenths as for ECE, 0 in the first; only the ones with items."""

    n: int
    unread: int
    accuracy: float
    ece: float | None
    bins: list[Bin]

    def sentence(self, confidence: float | None) -> str:
        """What happened on the test set when so much confidence was stated."""
        if confidence is None:
            return "no confidence could be read"
        number = max(0, -(-round(100 * confidence) * N_BINS // 100) - 1)
        one = next((one for one in self.bins if round(one.low * N_BINS) == number), None)
        if one is None:
            return f"of {self.n} test answers none had a confidence in this tenth"
        span = f"{round(100 * one.low)} to {round(100 * one.high)} %"
        right = round(one.accuracy * one.count)
        return f"of {self.n} test answers {one.count} had {span}; {right} of these were right"


def diagram(path: str | Path, unparsed: float = 0.5) -> Diagram:
    """The diagram of a confidences.jsonl. Raises BadInput for what no confidence step writes."""
    statements = stated.read(path, unparsed)
    ece = metrics.expected_calibration_error(statements.confidence, statements.correct, N_BINS)
    columns = metrics.reliability_bins(statements.confidence, statements.correct, N_BINS)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    bins = [Bin(i / N_BINS, (i + 1) / N_BINS, *values) for i, *values in rows]
    return Diagram(len(statements.ids), statements.unread, float(np.mean(statements.correct)), ece, bins)


def read(path: str | None, folder: Path) -> Diagram | None:
    """The diagram of a named file, or of the judge's own run; None if there is neither."""
    place = Path(path) if path is not None else of_judge(folder)
    if path is not None and not Path(path).is_file():
        raise BadInput(f"{path}: no such file; --test names the confidences.jsonl of the judge's test set")
    return None if place is None else diagram(place)
