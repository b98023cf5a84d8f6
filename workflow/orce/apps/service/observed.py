"""How a judge's stated confidences held on its test set: the reliability diagram, and its words for one answer."""

from pathlib import Path

import numpy as np

from orce.errors import BadInput
from orce.evaluation import metrics, stated

N_BINS = 10  # as in the tables
METHODS = {"dpo": "orce"}  # folder of a judge's weights -> folder of its confidences, where the names differ


def of_judge(folder: Path) -> Path | None:
    """The confidences that a run's judge stated on its test set; None outside a run."""
    name = folder.name.replace("dpo", METHODS["dpo"], 1) if folder.name.startswith("dpo") else folder.name
    found = folder.resolve().parent / name / "confidences.jsonl"
    return found if found.is_file() else None


def bins(path: str | Path, unparsed: float = 0.5) -> dict:
    """{n, ece, accuracy, bins: [{low, high, count, confidence, accuracy}]} of a confidences.jsonl; bins with items only.

    Bins are those of ECE: right-closed tenths, 0 in the first. Raises BadInput for what no confidence step writes.
    """
    found = stated.read(path, unparsed)
    ece = metrics.expected_calibration_error(found.confidence, found.correct, N_BINS)
    which, count, confidence, accuracy = metrics.reliability_bins(found.confidence, found.correct, N_BINS)
    rows = zip(which.tolist(), count.tolist(), confidence.tolist(), accuracy.tolist(), strict=True)
    return {
        "n": len(found.ids),
        "unread": found.unread,
        "accuracy": float(np.mean(found.correct)),
        "ece": ece,
        "bins": [
            {"low": i / N_BINS, "high": (i + 1) / N_BINS, "count": int(n), "confidence": mean, "accuracy": right}
            for i, n, mean, right in rows
        ],
    }


def bin_of(confidence: float, found: dict) -> dict | None:
    """The bin that a confidence falls into; None if the test set has none of its items there."""
    percent = round(100 * confidence)
    width = 100 // N_BINS
    number = max(0, -(-percent // width) - 1)
    return next((one for one in found["bins"] if round(one["low"] * N_BINS) == number), None)


def sentence(confidence: float | None, found: dict) -> str:
    """What happened on the test set when so much confidence was stated."""
    if confidence is None:
        return "no confidence could be read"
    one = bin_of(confidence, found)
    if one is None:
        return f"of {found['n']} test answers none had a confidence in this tenth"
    right = round(one["accuracy"] * one["count"])
    span = f"{round(100 * one['low'])} to {round(100 * one['high'])} %"
    return f"of {found['n']} test answers {one['count']} had {span}; {right} of these were right"


def read(path: str | None, folder: Path) -> dict | None:
    """The diagram's bins, of a named file or of the judge's own run; None if there is neither."""
    place = Path(path) if path is not None else of_judge(folder)
    if path is not None and not Path(path).is_file():
        raise BadInput(f"{path}: no such file; --test names the confidences.jsonl of the judge's test set")
    return None if place is None else bins(place)
