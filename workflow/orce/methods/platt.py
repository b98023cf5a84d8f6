"""Platt scaling (Platt, 1999): a logistic curve from another method's confidence to the probability of being right.

Two parameters, by maximum likelihood on Platt's smoothed targets, so that they are finite even where a threshold
separates right from wrong. A negative slope is possible: it turns a ranking that is worse than chance around.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LABEL, KIND = "Platt", "calibrated"


def fit(confidence: ArrayLike, correct: ArrayLike) -> dict:
    """Parameters {slope, intercept} of expit(slope c + intercept) from confidence [n] and correctness [n]."""
    from sklearn.linear_model import LogisticRegression

    stated, right = np.reshape(np.asarray(confidence, float), (-1, 1)), np.asarray(correct, bool)
    target = np.where(right, (right.sum() + 1) / (right.sum() + 2), 1 / ((~right).sum() + 2))
    both, of = np.vstack([stated, stated]), np.repeat([1, 0], len(right))  # an item counts as right and as wrong
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
    model.fit(both, of, sample_weight=np.concatenate([target, 1 - target]))
    return {"slope": float(np.ravel(model.coef_)[0]), "intercept": float(np.ravel(model.intercept_)[0])}


def apply(parameters: dict[str, Any], confidence: ArrayLike) -> NDArray[np.float64]:
    from scipy.special import expit

    return expit(parameters["slope"] * np.asarray(confidence, float) + parameters["intercept"])
