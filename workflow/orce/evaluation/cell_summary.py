"""The contents of metrics.json and extra.json, for one cell of the tables."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from orce.evaluation.counts import Cells, Metric, Tally, Values, metric, probabilities, tabulate
from orce.evaluation.metrics import EXTRA, METRICS, N_RESAMPLES, intervals
from orce.evaluation.ranking import log10_p, p_value, rank_correlation

Bounds = dict[str, tuple[float, float] | None]  # of each metric
_MOSTLY_UNDEFINED = "it is undefined on more than half of the resamples"


def summarise(
    confidence: ArrayLike,
    correct: ArrayLike,
    kappa: ArrayLike | None = None,
    f1: ArrayLike | None = None,
    n_unparsed: dict[str, int] | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Every metric of one cell of the tables, ready for JSON.

    confidence [n] in [0, 1], correct [n] of 0/1; kappa [n] and f1 [n], where they exist; n_unparsed
    {"answer", "confidence"}: how many were unreadable. Keys: each name in METRICS, f1, n and n_unparsed; spearman and
    (with kappa) spearman_surrogate as {rho, p, log10_p}; intervals {metric: [low, high] or None}, of rho for the
    correlations; reasons {metric: text} for each metric that is None.
    """
    cells = probabilities(confidence, correct)
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    bounds: Bounds = {}
    for metrics, of in [(METRICS, cells), *_other_targets(confidence, kappa, f1, cells.n)]:
        values |= {name: one.value(of) for name, one in metrics.items()}
        reasons |= {name: why for name, one in metrics.items() if (why := one.why_undefined(of))}
        if defined := {name: one for name, one in metrics.items() if name not in reasons}:
            bounds |= intervals(defined, of, n_resamples, seed)
    for name in {"spearman", "spearman_surrogate"} & values.keys():
        values[name] = _correlation(values[name], cells.n)
        if values[name]["rho"] is not None and values[name]["log10_p"] is None:
            reasons[f"{name} log10_p"] = "p is exactly 0"
    if f1 is None:
        values["f1"], reasons["f1"] = None, "this task has no F1"
    reasons |= {f"{name} interval": _MOSTLY_UNDEFINED for name in bounds if bounds[name] is None}
    return values | {
        "n": cells.n,
        "n_unparsed": {"answer": 0, "confidence": 0} | {key: int(count) for key, count in (n_unparsed or {}).items()},
        "intervals": _listed(bounds, values),
        "reasons": reasons,
    }


def summarise_extra(
    confidence: ArrayLike, correct: ArrayLike, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> dict[str, Any]:
    """The metrics in EXTRA of one cell, ready for JSON: each name, n, intervals and reasons, as in `summarise`."""
    cells = probabilities(confidence, correct)
    reasons = {name: why for name, one in EXTRA.items() if (why := one.why_undefined(cells))}
    defined = {name: one for name, one in EXTRA.items() if name not in reasons}
    bounds = intervals(defined, cells, n_resamples, seed) if defined else {}
    reasons |= {f"{name} interval": _MOSTLY_UNDEFINED for name in bounds if bounds[name] is None}
    return {name: one.value(cells) for name, one in EXTRA.items()} | {
        "n": cells.n,
        "intervals": _listed(bounds, EXTRA),
        "reasons": reasons,
    }


def _listed(bounds: Bounds, names: Iterable[str]) -> dict[str, list[float] | None]:
    return {name: list(found) if (found := bounds.get(name)) else None for name in names}


@metric(read=tabulate)
def _mean(tally: Tally) -> Values:
    """Mean of the first array's values."""
    return tally.mean(tally.cells.confidence[tally.cells.row])


def _other_targets(
    confidence: ArrayLike, kappa: ArrayLike | None, f1: ArrayLike | None, n: int
) -> Iterator[tuple[dict[str, Metric], Cells]]:
    """Metrics that do not compare confidence with correctness, and the cells they are computed from."""
    if kappa is not None:
        yield {"spearman_surrogate": rank_correlation}, tabulate(confidence, kappa)
    if f1 is not None:
        if np.shape(f1) != (n,):
            raise ValueError(f"f1 must have one value an item, {n}, not {np.size(f1)}")
        yield {"f1": _mean}, tabulate(f1, np.zeros(n))


def _correlation(rho: float | None, n: int) -> dict[str, float | None]:
    if rho is None:
        return {"rho": None, "p": None, "log10_p": None}
    return {"rho": rho, "p": p_value(rho, n), "log10_p": log10_p(rho, n)}
