"""Temperature scaling (Guo et al., 2017) of a confidence c: expit(logit(c) / T), with T by maximum likelihood.

A stated 0 or 1 has no finite logit, so c is kept half a percent away from both. T above 1 moves all confidences towards
one half; the ranking stays as it is.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LABEL, KIND = "Temperature", "calibrated"
RANGE = (0.01, 100.0)  # of T
MARGIN = 0.005


def fit(confidence: ArrayLike, correct: ArrayLike) -> dict:
    """Parameters {temperature} from confidence [n] and correctness [n]; at an end of RANGE if the likelihood has no maximum."""
    from scipy.optimize import minimize_scalar

    scores, sign = _logits(confidence), np.where(np.asarray(correct, bool), 1, -1)
    # Convex in 1 / T, the slope of a logistic regression without an intercept.
    bounds = (1 / RANGE[1], 1 / RANGE[0])
    found = minimize_scalar(
        lambda slope: np.logaddexp(0, -slope * sign * scores).mean(), bounds=bounds, options={"xatol": 1e-10}
    )
    return {"temperature": float(1 / found.x)}


def apply(parameters: dict[str, Any], confidence: ArrayLike) -> NDArray[np.float64]:
    from scipy.special import expit

    return expit(_logits(confidence) / parameters["temperature"])


def _logits(confidence: ArrayLike) -> NDArray[np.float64]:
    from scipy.special import logit

    return logit(np.clip(np.asarray(confidence, float), MARGIN, 1 - MARGIN))
