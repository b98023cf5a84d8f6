"""A metrics.json, or the extra.json beside it, as tables and summaries read it; the rows that a run has so far, as text."""

import contextlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from orce.artefacts import store
from orce.config import layout
from orce.config.cells import Cell
from orce.errors import BadInput
from orce.reports.provenance import Provenance

OF_CORRELATION = ("rho", "p")  # columns of a table that are parts of the metric `spearman`
CORRELATIONS = ("spearman", "spearman_surrogate")
NO_METRICS = ("n", "n_retried", "mean")
SHOWN = ("accuracy", "ece", "aurc", "auroc", "spearman")  # in the rows so far
LINE = "  {:<24}" + "{:>10}" * len(SHOWN) + "{:>8}"
ORDER = (*layout.KINDS["main"], *layout.KINDS["ablation"])


@dataclass(frozen=True)
class Unread:
    """Items whose answer or confidence could not be read."""

    answer: int = 0
    confidence: int = 0


@dataclass(frozen=True)
class CellMetrics:
    """values: of each metric, of a correlation its rho; None where it is undefined. mean: the same items read by the mean of
    each distribution, where a model has one. The rest as in metrics.json (docs/metrics.md)."""

    path: str
    dataset: str
    model: str
    method: str
    n: int
    values: dict[str, float | None]
    intervals: dict[str, tuple[float, float]]
    reasons: dict[str, str]
    n_unparsed: Unread
    retried: int
    p: float | None
    log10_p: float | None
    of_mode: bool
    mean: "CellMetrics | None"
    provenance: Provenance | None

    @classmethod
    def of(cls, path: str, written: dict[str, Any]) -> "CellMetrics":
        """The metrics in a JSON object as `orce.metrics.summary` makes it. Raises BadInput naming `path` for another."""
        try:
            return cls._of(path, written)
        except (AttributeError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise BadInput(f"{path}: not as the step evaluate writes it ({error}); {store.again(path)}") from None

    @classmethod
    def _of(cls, path: str, written: dict[str, Any]) -> "CellMetrics":
        correlation = written.get("spearman") or {}
        numbers = {name: one["rho"] for name in CORRELATIONS if (one := written.get(name))}
        numbers |= {name: one for name, one in written.items() if isinstance(one, int | float | None)}
        bounds = {name: tuple(one) for name, one in (written.get("intervals") or {}).items() if one}
        record = written.get("provenance")
        metrics = cls(
            path=path,
            dataset=written.get("dataset", ""),
            model=written.get("model", ""),
            method=written.get("method", ""),
            n=written.get("n", 0),
            values={name: _known(value) for name, value in numbers.items() if name not in NO_METRICS},
            intervals={name: one for name, one in bounds.items() if None not in map(_known, one)},
            reasons=written.get("reasons") or {},
            n_unparsed=Unread(**written.get("n_unparsed") or {}),
            retried=written.get("n_retried") or 0,
            p=_known(correlation.get("p")),
            log10_p=_known(correlation.get("log10_p")),
            of_mode=written.get("readout") == "mode",
            mean=None,
            provenance=record and msgspec.convert(record, Provenance),
        )
        if not (mean := written.get("mean")):
            return metrics
        return replace(metrics, mean=cls._of(path, written | mean | {"mean": None, "n_unparsed": {}, "n_retried": 0}))

    def value(self, key: str) -> float | None:
        """The number of a table's column. Raises BadInput for a missing one."""
        name = "spearman" if key in OF_CORRELATION else key
        if name not in self.values:
            raise BadInput(f"{self.path}: no metric {f'spearman.{key}' if key in OF_CORRELATION else key!r}")
        return self.p if key == "p" else self.values[name]

    def interval(self, key: str) -> tuple[float, float] | None:
        """The bootstrap interval of a column's number, if there is one."""
        return self.intervals.get("spearman" if key == "rho" else key)

    def reason(self, key: str) -> str:
        """Why a column's number is undefined."""
        return self.reasons.get("spearman" if key in OF_CORRELATION else key) or "undefined"


def _known(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def read(path: str | Path, current: bool = True) -> CellMetrics:
    """A metrics.json or extra.json of the cell that its path names; `current` as in `store.verified`."""
    try:
        metrics = CellMetrics.of(str(path), store.read_object(path, current))
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist: a table needs it; make it with `snakemake -- {path}`") from None
    here, own = store.place(path), Cell(metrics.dataset, metrics.model).metrics(metrics.method)
    if here and metrics.method and Path(here).parent != Path(own).parent:
        raise BadInput(f"{path}: holds the numbers of {own}; {store.again(path)}")
    return metrics


def collect(paths: Iterable[str | Path]) -> dict[str, CellMetrics]:
    """The metrics in files, by path. Raises BadInput naming a missing or broken one."""
    return {str(path): read(path) for path in paths}


def rows_so_far(cell: Path) -> list[str]:
    """The text of a folder results/DATASET/MODEL: a line for each method with a metrics.json; [] if there is none.

    Methods stand in the order of the paper's tables, the configuration's own after them. Damaged files are left out: the
    stages that need them say so.
    """

    def place(method: str) -> tuple[int, str]:
        stem = method.partition("-from-")[0]
        return (ORDER.index(stem) if stem in ORDER else len(ORDER), method)

    metrics = {}
    for path in cell.glob("*/metrics.json"):
        with contextlib.suppress(OSError, ValueError, BadInput):
            metrics[path.parent.name] = CellMetrics.of(str(path), json.loads(path.read_text()))
    if not metrics:
        return []
    lines = [f"{cell.parent.name}, {cell.name}, {max(one.n for one in metrics.values())} test questions"]
    lines.append(LINE.format("", *SHOWN, "unread"))
    for method in sorted(metrics, key=place):
        numbers = (metrics[method].values.get(key) for key in SHOWN)
        shown = ("-" if value is None else f"{value:.3f}" for value in numbers)
        lines.append(LINE.format(method, *shown, metrics[method].n_unparsed.confidence))
    return lines
