"""Arrays in, numbers out: the metrics, their intervals, and the summary of a method (docs/metrics.md)."""

from orce.metrics.definitions import (
    ALL,
    EXTRA,
    METRICS,
    accuracy,
    augrc,
    aupr,
    aupr_error,
    aurc,
    auroc,
    brier,
    e_aurc,
    e_aurc_analytic,
    expected_calibration_error,
    log10_p,
    nll,
    p_value,
    prr,
    reliability_bins,
    risk_coverage_curve,
    spearman,
    undefined_reason,
)
from orce.metrics.resampling import bootstrap, paired_bootstrap, resample_differences
from orce.metrics.summary import summarise, summarise_extra

__all__ = [
    "ALL", "EXTRA", "METRICS", "accuracy", "augrc", "aupr", "aupr_error", "aurc", "auroc", "bootstrap", "brier", "e_aurc", "e_aurc_analytic",
    "expected_calibration_error", "log10_p", "nll", "p_value", "paired_bootstrap", "prr", "reliability_bins", "resample_differences",
    "risk_coverage_curve", "spearman", "summarise", "summarise_extra", "undefined_reason",
]  # fmt: skip
