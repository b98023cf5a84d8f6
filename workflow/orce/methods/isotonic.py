"""Isotonic regression (Zadrozny and Elkan, 2002): the non-decreasing step function with the least squared error.

It never reverses a ranking, but ties what it cannot tell apart. Between two fitted confidences it is linear.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LABEL, KIND = "Isotonic", "calibrated"


def fit(confidence: ArrayLike, correct: ArrayLike) -> dict:
    """Parameters {confidence, probability}: the corners of the function, from confidence [n] and correctness [n]."""
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    model.fit(np.asarray(confidence, float), np.asarray(correct, float))
    return {"confidence": model.X_thresholds_.tolist(), "probability": model.y_thresholds_.tolist()}


def apply(parameters: dict[str, Any], confidence: ArrayLike) -> NDArray[np.float64]:
    """Constant below the first corner and above the last one."""
    return np.interp(np.asarray(confidence, float), parameters["confidence"], parameters["probability"])
