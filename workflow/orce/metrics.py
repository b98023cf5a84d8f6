"""Public name of orce.evaluation: arrays in, numbers out."""

from orce.evaluation.metrics import (
    accuracy,
    aupr,
    aupr_error,
    aurc,
    auroc,
    bootstrap,
    brier,
    e_aurc,
    e_aurc_analytic,
    expected_calibration_error,
    log10_p,
    paired_bootstrap,
    reliability_bins,
    risk_coverage_curve,
    spearman,
    undefined_reason,
)
from orce.evaluation.summary import summarise

__all__ = [
    "accuracy",
    "aupr",
    "aupr_error",
    "aurc",
    "auroc",
    "bootstrap",
    "brier",
    "e_aurc",
    "e_aurc_analytic",
    "expected_calibration_error",
    "log10_p",
    "paired_bootstrap",
    "reliability_bins",
    "risk_coverage_curve",
    "spearman",
    "summarise",
    "undefined_reason",
]
