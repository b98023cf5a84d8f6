"""From confidences to probabilities of being right, and the threshold above which few answers are wrong."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from orce import methods
from orce.artefacts import files
from orce.errors import BadInput
from orce.metrics import selective
from orce.metrics.selective import Confidences, Selection
from orce.tasks import Task
from orce.tasks.examples import read_prompts


@dataclass(frozen=True)
class Calibration:
    """A monotone map from confidence to probability, fitted on n labelled items; `calibrate` makes it.

    selection: the threshold with its guarantee, where a risk was given. It is a threshold on confidences as they came in,
    not on probabilities, which depend on the same labels.
    """

    method: str
    parameters: dict[str, Any]
    n: int
    selection: Selection | None = None

    def __call__(self, confidence):
        """Probabilities in [0, 1]: a float for a number, None for None, else a list of them."""
        if confidence is None or np.ndim(confidence) == 0:
            return self([confidence])[0]
        values = selective.floats(confidence)
        probabilities, read = np.full(len(values), None), ~np.isnan(values)
        apply = methods.load(self.method).apply
        assert apply is not None  # `_known` refuses what is no calibration
        probabilities[read] = apply(self.parameters, values[read].tolist()) if read.any() else []
        return [None if value is None else float(value) for value in probabilities]

    apply = __call__

    def keeps(self, confidence: float | None) -> bool:
        """Whether to give an answer of this confidence (not yet calibrated). Raises BadInput where no risk was given."""
        if self.selection is None:
            raise BadInput("this calibration has no threshold; orce.calibrate(..., risk=0.1) chooses one")
        return self.selection.keeps(confidence)

    def save(self, path: str | Path) -> None:
        """Write a JSON file that `load` reads."""
        files.write_json(path, asdict(self))

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """The calibration in a file that `save` wrote."""
        saved = files.read_json(path)
        try:
            selection = None if saved["selection"] is None else Selection(**saved["selection"])
            return cls(_known(saved["method"]), saved["parameters"], saved["n"], selection)
        except (KeyError, TypeError):
            raise BadInput(f"{path}: not a calibration that orce.calibrate(...).save wrote") from None


def calibrate(
    confidence: Confidences,
    correct: ArrayLike,
    method: str = "isotonic",
    risk: float | None = None,
    delta: float = 0.05,
) -> Calibration:
    """A calibration of the confidences [n] in [0, 1] of answers whose correctness [n] is known.

    method: isotonic, platt, temperature, or the path of a calibrated method of your own. A confidence of None, unreadable,
    is left out of the fit. risk, delta: also choose the threshold of orce.metrics.selective, above which at most that
    share of answers is wrong, with probability 1 - delta. Raises BadInput for values outside.
    """
    values, labels = selective.checked(confidence, correct)
    read = ~np.isnan(values)
    if len(set(labels[read].tolist())) < 2:
        raise BadInput(f"a calibration needs right and wrong answers with a confidence; of {read.sum()} none differ")
    selection = None if risk is None else selective.threshold_for_risk(values, labels, risk, delta)
    fit = methods.load(_known(method)).fit
    assert fit is not None  # `_known` refuses what is no calibration
    return Calibration(method, fit(values[read], labels[read]), int(read.sum()), selection)


def _known(method: str) -> str:
    names = methods.Registry().calibrations()
    if method not in names and not (method.endswith(".py") and methods.load(method).calibrates):
        raise BadInput(f"unknown calibration {method!r}; calibrations are {', '.join(names)}")
    return method


# The items that a calibration, a combination or a probe is fitted on: never a test item


def in_both(task: Task, prompts: str, fit_prompts: str) -> set[str]:
    """Ids of the questions to fit on that are in the test set too."""
    tested = {task.question(example) for example in read_prompts(prompts)}
    return {one["id"] for one in read_prompts(fit_prompts) if task.question(one) in tested}


def require_both(correct: list[bool], path: str) -> None:
    """Raises BadInput if the items to fit on do not hold a right and a wrong answer."""
    if set(correct) != {True, False}:
        raise BadInput(
            f"{path}: {len(correct)} items to fit on, without both a right and a wrong answer; name a larger set in calibrate_on"
        )
