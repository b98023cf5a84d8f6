"""Logistic regression of correctness on the rows' confidences, as scikit-learn fits it with its default penalty (L2, C = 1).

The inputs are logits, a confidence kept MARGIN away from 0 and 1, each with mean 0 and standard deviation 1 on the items to
fit on. The penalty keeps the fit finite where a threshold separates right from wrong.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MARGIN = 0.005


def fit(confidences: ArrayLike, correct: ArrayLike) -> dict:
    """Parameters {mean, scale, weights: m numbers each; intercept} from confidences [n, m] and correctness [n]."""
    from sklearn.linear_model import LogisticRegression

    scores = _logits(confidences)
    mean, spread = scores.mean(0), scores.std(0)
    scale = np.where(spread > 1e-9, spread, 1)  # a row that always says the same has no weight
    model = LogisticRegression(tol=1e-10, max_iter=10_000).fit((scores - mean) / scale, np.asarray(correct, bool))
    found = {"mean": mean, "scale": scale, "weights": np.ravel(model.coef_)}
    return {name: values.tolist() for name, values in found.items()} | {
        "intercept": float(np.ravel(model.intercept_)[0])
    }


def apply(parameters: dict[str, Any], confidences: ArrayLike) -> NDArray[np.float64]:
    from scipy.special import expit

    mean, scale, weights = (np.array(parameters[name]) for name in ("mean", "scale", "weights"))
    return expit((_logits(confidences) - mean) / scale @ weights + parameters["intercept"])


def _logits(confidences: ArrayLike) -> NDArray[np.float64]:
    from scipy.special import logit

    return logit(np.clip(np.asarray(confidences, float), MARGIN, 1 - MARGIN))
