"""Arrays in, numbers out: the metrics, their intervals, and the summary of a method
(docs/metrics.md).
"""

from orce.metrics import definitions
from orce.metrics.definitions import *
from orce.metrics.resampling import bootstrap, paired_bootstrap, resample_differences
from orce.metrics.signs import collapse
from orce.metrics.summary import summarise, summarise_extra

__all__ = [
    "bootstrap",
    "collapse",
    "paired_bootstrap",
    "resample_differences",
    "summarise",
    "summarise_extra",
]
__all__ += definitions.__all__
