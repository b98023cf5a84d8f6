"""Which answers to give: a confidence threshold that keeps the error rate of the given answers
below a bound. And probabilities from confidences: `calibrate`.

Learn-then-test (Angelopoulos et al., 2021, arXiv:2110.01052) for selective prediction (Geifman and
El-Yaniv, 2017). R(t) is the error rate among answers with confidence >= t, over the population that
the n labelled items are drawn from, independently. With probability at least 1 - delta over that
draw, the threshold returned has R(t) <= risk. docs/measure.md has the proof.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from orce import methods
from orce.artefacts import files, tables
from orce.errors import BadInput
from orce.metrics.counts import whole_percents
from orce.runtime.modules import short, typed

Confidences = Sequence[float | None] | np.ndarray  # None, or nan in an array: unreadable
STARTS = range(0, 101, 10)  # percents that get a share of delta


@dataclass(frozen=True)
class Selection:
    """A threshold in [0, 1] (None: no threshold is safe, keep nothing), and what it did to the n
    calibration items: `kept` of them answered, `errors` of those wrong.
    """

    risk: float
    delta: float
    threshold: float | None
    n: int
    kept: int
    errors: int

    @property
    def coverage(self) -> float:
        return self.kept / self.n

    def keeps(self, confidence: float | None) -> bool:
        """Whether to give an answer of this confidence; never one with an unreadable confidence."""
        if self.threshold is None:
            return False
        (percent,) = _percents(floats([confidence]))
        return bool(percent >= round(100 * self.threshold))

    @property
    def needed(self) -> str:
        """How many items a threshold takes."""
        least = int(np.ceil(np.log(self.delta / len(STARTS)) / np.log1p(-self.risk)))
        return f"it takes at least {least} confident items without an error, or more with some"

    def __str__(self) -> str:
        bound = f"an error rate of at most {self.risk:g} with probability {1 - self.delta:g}"
        if self.threshold is None:
            on = f"on these {self.n} calibration items"
            return (
                f"no threshold ensures {bound} {on}: coverage 0, no answer is kept ({self.needed})"
            )
        kept = f"it keeps {self.kept} (coverage {self.coverage:.3f}), {self.errors} of them wrong"
        of = f"of {self.n} calibration items"
        return f"threshold {self.threshold:.2f} ensures {bound}; {of} {kept}"


@typed
def threshold_for_risk(
    confidence: Confidences, correct: ArrayLike, risk: float, delta: float = 0.05
) -> Selection:
    """The threshold that keeps the most answers while their error rate stays below `risk` (see the
    module).

    confidence [n] in [0, 1], None where it is unreadable (never answered); correct [n] of 0/1; risk
    and delta in (0, 1). Raises BadInput for values outside.
    """
    check_share("risk", risk)
    check_share("delta", delta)
    values, labels = check_inputs(confidence, correct)
    if not len(values):
        raise BadInput(
            "there are no calibration items; expected confidences with their correctness"
        )
    percents = _percents(values)
    kept = _count_from_each_percent(percents)
    errors = _count_from_each_percent(percents[~labels])
    lowest = lowest_rejected(p_values(kept, errors, risk), delta)
    if lowest is None:
        return Selection(risk, delta, None, len(values), 0, 0)
    return Selection(risk, delta, lowest / 100, len(values), int(kept[lowest]), int(errors[lowest]))


@typed
def threshold_for_coverage(confidence: Confidences, coverage: float) -> float:
    """The largest confidence in [0, 1] that at least this share of the items has, unreadable ones
    included in the count.

    confidence [n]; coverage in (0, 1]. Raises BadInput for values outside, and where fewer are
    readable.
    """
    if coverage != 1:
        check_share("coverage", coverage)
    values = floats(confidence)
    least_first = np.sort(values[~np.isnan(values)])
    kept = max(1, int(np.ceil(coverage * len(values) - 1e-9)))
    if kept > len(least_first):
        raise BadInput(
            f"coverage is {coverage:g}, and of {len(values)} confidences {len(least_first)} are readable"
        )
    return float(least_first[-kept])


def check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise BadInput(f"{name} is {value:g}; expected a number between 0 and 1, such as 0.1")


def spread(probability: float | None) -> float | None:
    """A probability of a whole text on a scale whose whole percents tell small ones apart:
    1 / (1 - ln p), in the same order.

    e^-4, which is .018, becomes .20, and e^-19 .05. Learn-then-test tries the whole percents.
    """
    if not probability:
        return probability
    return 1 / (1 - math.log(probability))


def unspread(scaled: float) -> float:
    """The probability that `spread` gives this value."""
    return 0.0 if scaled <= 0 else math.exp(1 - 1 / scaled)


def check_inputs(confidence: Confidences, correct: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Confidences [n], nan where one is unreadable, and correctness [n] as bools. Raises BadInput
    for values outside.
    """
    values = floats(confidence)
    labels = tables.held(correct)
    are_marks = isinstance(labels, list) and all(label in (0, 1) for label in labels)
    if not are_marks or len(labels) != len(values):
        raise BadInput(
            f"correct must be {len(values)} values of true or false, one for each confidence"
        )
    return values, np.array(labels, dtype=bool)


def floats(confidence: Iterable[float | None]) -> np.ndarray:
    """Confidences [n], nan where one is unreadable. Raises BadInput for one outside [0, 1]."""
    cells = tables.held(confidence)
    if not isinstance(cells, list):
        raise BadInput(f"the confidences are {short(confidence)}; expected a list or a column")
    for cell in cells:
        if not isinstance(cell, int | float | None):
            raise BadInput(
                f"a confidence is {short(cell)}; expected a number, or None for unreadable"
            )
    values = np.array([np.nan if cell is None else cell for cell in cells], dtype=float)
    if (outside := values[(values < 0) | (values > 1)]).size:
        expected = "expected 0.73 for 73 percent, or None for unreadable"
        raise BadInput(f"a confidence is {outside[0]:g}, outside [0, 1]; {expected}")
    return whole_percents(values)


def _percents(values: np.ndarray) -> np.ndarray:
    """Whole percents, rounded down; -1 where there is no confidence."""
    # 100 * 0.29 is 28.999...
    return np.where(np.isnan(values), -1, np.floor(100 * values + 1e-9)).astype(int)


def _count_from_each_percent(percents: np.ndarray) -> np.ndarray:
    """How many items have at least 0, 1, .. 100 percent, [101]."""
    counts = np.bincount(percents[percents >= 0], minlength=101)
    return counts[::-1].cumsum()[::-1]


def p_values(kept: np.ndarray, errors: np.ndarray, risk: float) -> np.ndarray:
    """p-values of R(t) > risk from how many items each threshold keeps and how many of those are
    wrong; 1 for none.
    """
    from scipy import stats  # here: a stage that chooses no threshold starts without it

    return np.where(kept > 0, stats.binom.cdf(errors, kept, risk), 1.0)


def lowest_rejected(p: np.ndarray, delta: float) -> int | None:
    """The lowest percent whose hypothesis the fallback procedure (Wiens and Dmitrienko, 2005)
    rejects; p [101] by percent. None if it rejects none.

    Strictly below its level: a p-value that underflows to 0 is not below a level of 0.
    """
    lowest = None
    carried = 0.0
    for percent in range(100, -1, -1):
        level = carried + (delta / len(STARTS) if percent in STARTS else 0.0)
        carried = level if p[percent] < level else 0.0
        lowest = percent if carried else lowest
    return lowest


@dataclass(frozen=True)
class Calibration:
    """A monotone map from confidence to probability, fitted on n labelled items; `calibrate` makes
    it.

    selection: the threshold with its guarantee, where a risk was given. It is a threshold on
    confidences as they came in, not on probabilities, which depend on the same labels.
    """

    method: str
    parameters: dict[str, Any]
    n: int
    selection: Selection | None = None

    def __call__(self, confidence):
        """Probabilities in [0, 1]: a float for a number, None for None, else a list of them."""
        if confidence is None or np.ndim(confidence) == 0:
            return self([confidence])[0]
        values = floats(confidence)
        read = ~np.isnan(values)
        probabilities = np.full(len(values), None)
        if read.any():
            apply: Any = methods.load(self.method).apply  # `_known` refuses what is no calibration
            mapped = apply(self.parameters, values[read].tolist())
            probabilities[read] = np.asarray(mapped, dtype=float)
        return probabilities.tolist()

    def keeps(self, confidence: float | None) -> bool:
        """Whether to give an answer of this confidence (not yet calibrated). Raises BadInput where
        no risk was given.
        """
        if self.selection is None:
            raise BadInput(
                "this calibration has no threshold; orce.calibrate(..., risk=0.1) chooses one"
            )
        return self.selection.keeps(confidence)

    def save(self, path: str | Path) -> None:
        files.write_json(path, asdict(self))

    @classmethod
    @typed
    def load(cls, path: str | Path) -> "Calibration":
        saved = files.read_json(path)
        try:
            selection = None if saved["selection"] is None else Selection(**saved["selection"])
            return cls(_known(saved["method"]), saved["parameters"], saved["n"], selection)
        except (KeyError, TypeError):
            raise BadInput(
                f"{path}: not a calibration that orce.calibrate(...).save wrote"
            ) from None


@typed
def calibrate(
    confidence: Confidences,
    correct: ArrayLike,
    method: str = "isotonic",
    risk: float | None = None,
    delta: float = 0.05,
) -> Calibration:
    """A calibration of the confidences [n] in [0, 1] of answers whose correctness [n] is known.

    method: isotonic, platt, temperature, or the path of a calibration of your own. A confidence of
    None, unreadable, is left out of the fit. risk, delta: also choose the threshold of
    `threshold_for_risk`, above which at most that share of answers is wrong, with probability
    1 - delta. Raises BadInput for values outside.
    """
    values, labels = check_inputs(confidence, correct)
    read = ~np.isnan(values)
    if len(np.unique(labels[read])) < 2:
        raise BadInput(
            f"a calibration needs right and wrong answers with a confidence; all {read.sum()} are alike"
        )
    selection = None if risk is None else threshold_for_risk(values, labels, risk, delta)
    fit: Any = methods.load(_known(method)).fit
    return Calibration(method, fit(values[read], labels[read]), int(read.sum()), selection)


def _known(method: str) -> str:
    names = methods.Registry().calibrations()
    if method not in names and not (method.endswith(".py") and methods.load(method).calibrates):
        raise BadInput(f"unknown calibration {method!r}; calibrations are {', '.join(names)}")
    return method
