"""The metrics by name, and their bootstrap intervals (paper, section Experiment, "Evaluation metrics").

Arrays in, floats out. A metric that is undefined for a set of items (every confidence the same, every answer right) is
None, never nan and never a silent 0; `undefined_reason` says why. docs/metrics.md has the definitions and the
differences from other code. Each metric is written once, on counts (orce.evaluation.counts).
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from orce.evaluation.bootstrap import draw, draw_items, draw_pairs, gap_interval, interval
from orce.evaluation.calibration import accuracy, brier, ece, expected_calibration_error, reliability_bins
from orce.evaluation.counts import Cells, Metric, Tally, Values
from orce.evaluation.extra import EXTRA, adaptive_ece, auarc, augrc, nll, prr, smooth_ece
from orce.evaluation.ranking import aupr, aupr_error, auroc, log10_p, p_value, rank_correlation, spearman
from orce.evaluation.risk_coverage import aurc, e_aurc, e_aurc_analytic, risk_coverage_curve

LEVEL = 0.95
N_RESAMPLES = 1000

METRICS: dict[str, Metric] = {
    "ece": ece(10),
    "ece_15": ece(15),
    "spearman": rank_correlation,
    "aurc": aurc,
    "e_aurc": e_aurc,
    "e_aurc_analytic": e_aurc_analytic,
    "accuracy": accuracy,
    "auroc": auroc,
    "aupr": aupr,
    "aupr_error": aupr_error,
    "brier": brier,
}

ALL = METRICS | EXTRA  # the extra ones are not in metrics.json

__all__ = [
    "ALL", "EXTRA", "LEVEL", "METRICS", "N_RESAMPLES", "accuracy", "adaptive_ece", "auarc", "augrc", "aupr", "aupr_error",
    "aurc", "auroc", "bootstrap", "brier", "e_aurc", "e_aurc_analytic", "expected_calibration_error", "log10_p", "nll",
    "p_value", "paired_bootstrap", "prr", "reliability_bins", "resample_differences", "risk_coverage_curve",
    "smooth_ece", "spearman", "undefined_reason",
]  # fmt: skip


def undefined_reason(metric: str | Callable, confidence: ArrayLike, target: ArrayLike) -> str | None:
    """Why a metric of these arrays [n] is None, in words for a footnote; None if it is defined."""
    known = ALL[_name_of(metric)]
    return known.why_undefined(known.read(confidence, target))


def _find(metric: str | Callable) -> str | None:
    """The name of a metric given by name or as a function of this module; None for any other function."""
    if callable(metric):
        known = [*ALL.items(), ("ece", expected_calibration_error), ("spearman", spearman)]
        return next((name for name, one in known if one is metric), None)
    if metric not in ALL:
        raise ValueError(f"no metric {metric!r}; there are {', '.join(ALL)}")
    return metric


def _name_of(metric: str | Callable) -> str:
    name = _find(metric)
    if name is None:
        raise ValueError(f"{metric} is not one of the metrics {', '.join(ALL)}")
    return name


def _scalar(value: float | tuple | None) -> float | None:
    return value[0] if isinstance(value, tuple) else value


def intervals(
    metrics: Mapping[str, Metric], cells: Cells, n_resamples: int, seed: int, level: float = LEVEL
) -> dict[str, tuple[float, float] | None]:
    """The interval of each metric, all from the same resamples: of gaps for ECE and its kin, else of percentiles.

    A metric must be defined on the items themselves. None if it is undefined on more than half of the resamples.
    """
    chunks = []
    for counts in draw(cells.count, n_resamples, seed):
        tally = Tally(cells, counts)
        chunks.append({name: one.gaps(tally) if one.gaps else tally.of(one) for name, one in metrics.items()})
    drawn = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in metrics}
    given = Tally(cells)
    return {
        name: gap_interval(float(given.of(one)[0]), one.gaps(given)[0], drawn[name], cells.n, level)
        if one.gaps
        else interval(drawn[name], level)
        for name, one in metrics.items()
    }


def resample_differences(names: Iterable[str], a: Cells, b: Cells, n_resamples: int, seed: int) -> dict[str, Values]:
    """Each metric of a minus the metric of b, on the same resamples of the items: {name: [n_resamples]}, nan if undefined.

    a, b: the Cells (`ALL[name].read`) of two measurements of the same n items, in the same order.
    """
    chunks = []
    for left, right in draw_pairs(a, b, n_resamples, seed):
        one, other = Tally(a, left), Tally(b, right)
        chunks.append({name: one.of(ALL[name]) - other.of(ALL[name]) for name in names})
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}


def bootstrap(
    metric: str | Callable,
    confidence: ArrayLike,
    target: ArrayLike,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> tuple[float, float] | None:
    """Interval (low, high) of a metric over items drawn with replacement: percentiles, or of gaps for ECE and its kin.

    metric: a name in ALL, one of this module's metrics, or any function of two arrays, which is then called once per
    resample (if it returns a tuple, the first entry counts) and gets percentiles. Resamples where it is undefined are left out. None if they
    are more than half, or if the metric is undefined on the items themselves.
    """
    if callable(metric) and _find(metric) is None:
        confidence, target = np.asarray(confidence), np.asarray(target)
        values = draw_items(lambda i: _scalar(metric(confidence[i], target[i])), len(confidence), n_resamples, seed)
        return interval(values, level)
    name = _name_of(metric)
    known = ALL[name]
    cells = known.read(confidence, target)
    if known.why_undefined(cells):
        return None
    return intervals({name: known}, cells, n_resamples, seed, level)[name]


def paired_bootstrap(
    metric: str | Callable,
    confidence_a: ArrayLike,
    correct_a: ArrayLike,
    confidence_b: ArrayLike,
    correct_b: ArrayLike,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> dict[str, float | None]:
    """Metric of method a minus the metric of method b, on the same n items in the same order: {difference, low, high, p}.

    low, high: percentile interval of the difference. p: two-sided, twice the smaller share of resamples with a
    difference <= 0 or >= 0, counting the items themselves as one resample, at most 1. metric: as in bootstrap, but one
    of ALL. All four are None if it is undefined on either side. For ECE and its kin low, high and p are None: noise adds
    more to the better calibrated side, and resampling adds it again (docs/metrics.md, "Intervals").
    """
    name = _name_of(metric)
    known = ALL[name]
    a, b = known.read(confidence_a, correct_a), known.read(confidence_b, correct_b)
    if a.n != b.n:
        raise ValueError(f"a and b must be the same items, not {a.n} and {b.n} of them")
    nothing: dict[str, float | None] = dict.fromkeys(("difference", "low", "high", "p"))
    value_a, value_b = known.value(a), known.value(b)
    if value_a is None or value_b is None:
        return nothing
    if known.gaps:
        return nothing | {"difference": value_a - value_b}
    values = resample_differences([name], a, b, n_resamples, seed)[name]
    bounds = interval(values, level)
    if bounds is None:
        return nothing
    return {"difference": value_a - value_b, "low": bounds[0], "high": bounds[1], "p": _two_sided(values)}


def _two_sided(differences: Values) -> float:
    # Rounding must not turn two equal methods into a "difference" of 1e-17 with p near 0.
    defined = differences[~np.isnan(differences)]
    smaller = min(int((defined <= 1e-12).sum()), int((defined >= -1e-12).sum()))
    return min(1.0, 2 * (smaller + 1) / (len(defined) + 1))
