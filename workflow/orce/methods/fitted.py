"""What is fitted on labelled answers, and applied to others: calibrations, combinations of several
methods, and linear probes.

`fit` gives parameters that JSON can hold, `apply` probabilities [n]. A calibration has confidences
[n], a combination [n, m] of m methods, a probe {position: hidden states [n, layers, size]}.
"""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orce.errors import BadInput
from orce.methods.method import Method
from orce.metrics.counts import clear_of_ends

Floats = NDArray[np.float64]
Parameters = dict[str, Any]
EXACT = 1e-10  # tolerance of a fit of a few parameters


def _logits(confidence: ArrayLike) -> Floats:
    from scipy.special import logit

    return logit(clear_of_ends(confidence))


def _expit(scores: ArrayLike) -> Floats:
    """The inverse of `_logits`: the logistic function."""
    from scipy.special import expit

    return expit(scores)


def regression(x: NDArray, share: NDArray, strength: float, tolerance: float = 1e-4):
    """Logistic regression on shares of being right: an item is right with weight share, wrong with
    weight 1 - share.

    strength: C of scikit-learn, the inverse of the L2 penalty.
    """
    from sklearn.linear_model import LogisticRegression

    # Each item once for each label that has a weight: twice, unless its share is 0 or 1.
    wrong = np.flatnonzero(share < 1)
    right = np.flatnonzero(share > 0)
    label = np.repeat([1, 0], [len(right), len(wrong)])
    weight = np.concatenate([share[right], 1 - share[wrong]])
    model = LogisticRegression(C=strength, tol=tolerance, max_iter=10_000)
    return model.fit(x[np.concatenate([right, wrong])], label, sample_weight=weight)


def standardise(values: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """The features with mean 0 and deviation 1, their means and their scales; a constant feature
    has no weight.
    """
    center = values.mean(0)
    spread = values.std(0)
    scale = np.where(spread > 1e-9, spread, 1)
    return (values - center) / scale, center, scale


def fit_linear(
    values: NDArray, share: NDArray, strength: float, tolerance: float = 1e-4
) -> Parameters:
    """{mean, scale, weights, of a number for each feature; intercept} of a regression on
    standardised features [n, features].
    """
    x, center, scale = standardise(values)
    model = regression(x, share, strength, tolerance)
    return {
        "mean": center.tolist(),
        "scale": scale.tolist(),
        "weights": model.coef_[0].tolist(),
        "intercept": float(model.intercept_[0]),
    }


def apply_linear(parameters: Parameters, values: NDArray) -> Floats:
    standardised = (values - parameters["mean"]) / parameters["scale"]
    return _expit(standardised @ parameters["weights"] + parameters["intercept"])


# Calibrations


def fit_platt(confidence: ArrayLike, correct: ArrayLike) -> Parameters:
    """Platt (1999): {slope, intercept} of expit(slope c + intercept), by maximum likelihood on his
    smoothed targets.

    They are finite even where a threshold separates right from wrong. A negative slope is possible:
    it turns a ranking around.
    """
    right = np.asarray(correct, bool)
    n_right = right.sum()
    n_wrong = len(right) - n_right
    target = np.where(right, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
    feature = np.reshape(np.asarray(confidence, float), (-1, 1))
    model = regression(feature, target, np.inf, EXACT)
    return {"slope": float(model.coef_[0, 0]), "intercept": float(model.intercept_[0])}


def apply_platt(parameters: Parameters, confidence: ArrayLike) -> Floats:
    return _expit(parameters["slope"] * np.asarray(confidence, float) + parameters["intercept"])


def fit_temperature(confidence: ArrayLike, correct: ArrayLike) -> Parameters:
    """Guo et al. (2017): the T of expit(logit(c) / T) by maximum likelihood, from 0.01 to 100; the
    ranking stays as it is.
    """
    from scipy.optimize import minimize_scalar

    scores = _logits(confidence)
    sign = np.where(np.asarray(correct, bool), 1, -1)
    if not scores.any():  # at .5 every T is as good
        return {"temperature": 1.0}

    def loss(slope: float) -> float:
        """Convex in slope = 1 / T, as of a logistic regression without an intercept."""
        return np.logaddexp(0, -slope * sign * scores).mean()

    best = minimize_scalar(loss, bounds=(0.01, 100.0), options={"xatol": EXACT})
    return {"temperature": float(1 / best.x)}


def apply_temperature(parameters: Parameters, confidence: ArrayLike) -> Floats:
    return _expit(_logits(confidence) / parameters["temperature"])


def fit_isotonic(confidence: ArrayLike, correct: ArrayLike) -> Parameters:
    """Zadrozny and Elkan (2002): the corners {confidence, probability} of the non-decreasing
    function of least squared error.

    It never reverses a ranking, but ties what it cannot tell apart.
    """
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    model.fit(np.asarray(confidence, float), np.asarray(correct, float))
    return {"confidence": model.X_thresholds_.tolist(), "probability": model.y_thresholds_.tolist()}


def apply_isotonic(parameters: Parameters, confidence: ArrayLike) -> Floats:
    """Linear between two corners; constant below the first and above the last one."""
    return np.interp(
        np.asarray(confidence, float), parameters["confidence"], parameters["probability"]
    )


# Probes: logistic regression on the hidden states of one layer

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
FOLDS = 5


def fit_probe(
    features: Mapping[str, ArrayLike], targets: Mapping[str, Sequence], position: str, target: str
) -> Parameters:
    """{layer, C, target, cross_validated: {log_loss, auroc}} of a probe, and its `fit_linear`.

    features: {position: hidden states [n, layers, size]}. targets: {question, correct, kappa} of
    the n items, `question` being texts. target: `correct`, or `kappa` as the share of being right.
    Layer and penalty are chosen by cross-validation, with equal questions in one fold. Raises
    BadInput for fewer than two questions with a right answer, or with a wrong one.
    """
    from sklearn.metrics import roc_auc_score

    states = np.asarray(features[position], np.float64)  # [n, layers, size]
    right = np.asarray(targets["correct"], bool)
    share = np.asarray(targets[target], float)
    splits = folds(right, targets["question"])
    x, _, _ = standardise(states)

    def cross_validate(layer: int, strength: float) -> dict[str, float]:
        """Scores of the predictions for the items that a fold left out."""
        p = np.full(len(right), 0.5)
        for train, test in splits:
            model = regression(x[train, layer], share[train], strength)
            p[test] = model.predict_proba(x[test, layer])[:, 1]
        auroc = roc_auc_score(right, p)
        p = p.clip(1e-6, 1 - 1e-6)
        loss = -np.mean(share * np.log(p) + (1 - share) * np.log(1 - p))
        return {"log_loss": float(loss), "auroc": float(auroc)}

    scores = {}
    for layer, strength in itertools.product(range(x.shape[1]), STRENGTHS):
        scores[layer, strength] = cross_validate(layer, strength)
    layer, strength = min(scores, key=lambda choice: scores[choice]["log_loss"])
    validated = scores[layer, strength]
    chosen = {"layer": layer, "C": strength, "target": target, "cross_validated": validated}
    return chosen | fit_linear(states[:, layer], share, strength)


def apply_probe(parameters: Parameters, features: Mapping[str, ArrayLike], position: str) -> Floats:
    states = np.asarray(features[position], np.float64)
    return apply_linear(parameters, states[:, parameters["layer"]])


def folds(right: NDArray, questions: Sequence[str]) -> list:
    """(train, test), item numbers, of each fold. Equal questions are in one fold; each training part
    has right and wrong answers.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    texts = np.array(questions, object)
    fewest = min(len({*texts[right]}), len({*texts[~right]}))
    if fewest < 2:
        raise BadInput(
            "a probe needs two questions with a right answer and two with a wrong one; "
            f"of {len(right)} items to fit on, {int(right.sum())} are right: "
            "take more training questions"
        )
    split = StratifiedGroupKFold(min(FOLDS, fewest)).split(right, right, questions)
    kept = []
    for train, test in split:
        has_both = right[train].any() and not right[train].all()
        if has_both and len(test):
            kept.append((train, test))
    return kept


def _probe(label: str, position: str, target: str) -> Method:
    fit = partial(fit_probe, position=position, target=target)
    apply = partial(apply_probe, position=position)
    return Method(label, "fitted", (position,), fit=fit, apply=apply)


# Combinations of the confidences [n, m] of m methods


def fit_logistic(confidences: ArrayLike, correct: ArrayLike) -> Parameters:
    """Logistic regression on logits; scikit-learn's default penalty keeps it finite where a
    threshold separates right from wrong.
    """
    return fit_linear(_logits(confidences), np.asarray(correct, float), 1.0, EXACT)


def apply_logistic(parameters: Parameters, confidences: ArrayLike) -> Floats:
    return apply_linear(parameters, _logits(confidences))


def mean(_: Parameters, confidences: ArrayLike) -> Floats:
    return np.asarray(confidences, float).mean(1)


def product(_: Parameters, confidences: ArrayLike) -> Floats:
    """High only where all are: of a token probability and `agreement` in the manner of CoCoA
    (Vashurin et al., 2025).
    """
    return np.asarray(confidences, float).prod(1)


METHODS = {
    "platt": Method("Platt", "fitted", fit=fit_platt, apply=apply_platt),
    "temperature": Method("Temperature", "fitted", fit=fit_temperature, apply=apply_temperature),
    "isotonic": Method("Isotonic", "fitted", fit=fit_isotonic, apply=apply_isotonic),
    # Azaria and Mitchell (2023), whose map is a network of three hidden layers: whether the answer
    # is right, at its end.
    "probe": _probe("Probe, answer", "answer", "correct"),
    # Kadavath et al. (2022), whose head is trained with the model: whether the answer LLM knows,
    # from the question alone.
    "p_ik": _probe("P(IK)", "question", "kappa"),
    # What the trained confidence LLMs read, with the same labels, and no weight trained: the
    # control for training.
    "probe_judge": _probe("Probe, judge's prompt", "judge", "kappa"),
}
COMBINATIONS = {  # (fit, apply) by the name that `fit` has in the configuration
    "logistic": (fit_logistic, apply_logistic),
    "mean": (None, mean),
    "product": (None, product),
}
