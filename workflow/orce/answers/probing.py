"""Linear probes: logistic regression of correctness on one layer's hidden states, with scikit-learn.

Layer and penalty are chosen by cross-validation on the questions to fit on, those with the same text in one fold.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orce.errors import BadInput

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # C of scikit-learn, the inverse of the penalty
FOLDS = 5


def fit(states: ArrayLike, targets: Mapping[str, Sequence], target: str) -> dict:
    """Parameters of a probe: layer, C, cross-validated log loss and AUROC; mean, scale and weights of the states; intercept.

    states: [n, layers, size]. targets: {question: texts, correct, kappa} of the n items. target: `correct`, or `kappa`, with
    which each item counts as right with weight kappa and as wrong with weight 1 - kappa. Raises BadInput for fewer than two
    questions of which the answer is right, or wrong.
    """
    x, right = np.asarray(states, np.float64), np.asarray(targets["correct"], bool)
    share = np.asarray(targets[target], float)
    folds = _folds(right, targets["question"])
    mean, spread = x.mean(0), x.std(0)
    scale = np.where(spread > 1e-9, spread, 1)
    x = (x - mean) / scale
    tried = [
        (_held_out(x[:, layer], share, right, folds, strength), layer, strength)
        for layer in range(x.shape[1])
        for strength in STRENGTHS
    ]
    score, layer, strength = min(tried, key=lambda one: one[0]["log_loss"])
    model = regression(x[:, layer], share, strength)
    return {
        "layer": layer,
        "C": strength,
        "target": target,
        "cross_validated": score,
        "mean": mean[layer].tolist(),
        "scale": scale[layer].tolist(),
        "weights": np.ravel(model.coef_).tolist(),
        "intercept": float(np.ravel(model.intercept_)[0]),
    }


def of(place: str, target: str) -> tuple[Callable, Callable]:
    """`fit` and `apply` of a probed method that reads one place, with the target of its labels: correct or kappa."""

    def fit_place(features: Mapping[str, ArrayLike], targets: Mapping[str, Sequence]) -> dict:
        return fit(features[place], targets, target)

    def apply_place(parameters: dict[str, Any], features: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
        return apply(parameters, features[place])

    return fit_place, apply_place


def apply(parameters: dict[str, Any], states: ArrayLike) -> NDArray[np.float64]:
    """Probabilities [n] of being right, of states [n, layers, size]."""
    from scipy.special import expit

    mean, scale, weights = (np.array(parameters[name]) for name in ("mean", "scale", "weights"))
    x = np.asarray(states, np.float64)[:, parameters["layer"]]
    return expit((x - mean) / scale @ weights + parameters["intercept"])


def _folds(right: NDArray, questions: Sequence[str]) -> list:
    from sklearn.model_selection import StratifiedGroupKFold

    fewest = min(
        len({text for text, one in zip(questions, right, strict=True) if one == side}) for side in (True, False)
    )
    if fewest < 2:
        raise BadInput(
            f"a probe needs two questions with a right answer and two with a wrong one; of {len(right)} items to fit on, "
            f"{int(right.sum())} are right: take more training questions"
        )
    split = StratifiedGroupKFold(min(FOLDS, fewest)).split(right, right, questions)
    return [(train, test) for train, test in split if len(set(right[train])) == 2 and len(test)]


def _held_out(x: NDArray, share: NDArray, right: NDArray, folds: list, strength: float) -> dict:
    """Scores of the predictions for the items that a fold left out."""
    from sklearn.metrics import roc_auc_score

    found = np.full(len(right), 0.5)
    for train, test in folds:
        found[test] = regression(x[train], share[train], strength).predict_proba(x[test])[:, 1]
    p = found.clip(1e-6, 1 - 1e-6)
    loss = -np.mean(share * np.log(p) + (1 - share) * np.log(1 - p))
    return {"log_loss": float(loss), "auroc": float(roc_auc_score(right, found))}


def regression(x: NDArray, share: NDArray, strength: float):
    """Logistic regression on shares of being right: an item is right with weight share, wrong with weight 1 - share."""
    from sklearn.linear_model import LogisticRegression

    wrong, right = np.flatnonzero(share < 1), np.flatnonzero(share > 0)
    both = np.concatenate([right, wrong])
    label = np.repeat([1, 0], [len(right), len(wrong)])
    weight = np.concatenate([share[right], 1 - share[wrong]])
    return LogisticRegression(C=strength, max_iter=1000).fit(x[both], label, sample_weight=weight)
