"""The rows that a run has so far, as text: one block for each dataset and model."""

import json
from pathlib import Path

from orce.config import layout
from orce.reports.cell_metrics import CellMetrics

COLUMNS = ("accuracy", "ece", "aurc", "auroc", "spearman")
LINE = "  {:<24}" + "{:>10}" * len(COLUMNS) + "{:>8}"
ORDER = (*layout.KINDS["main"], *layout.KINDS["ablation"])


def rows(cell: Path) -> list[str]:
    """The block of a folder results/DATASET/MODEL: a line for each method with a metrics.json; [] if there is none."""
    metrics = {path.parent.name: one for path in cell.glob("*/metrics.json") if (one := _read(path))}
    if not metrics:
        return []
    head = f"{cell.parent.name}, {cell.name}, {max(one.n for one in metrics.values())} test questions"
    title = LINE.format("", *COLUMNS, "unread")
    return [head, title, *(_line(name, metrics[name]) for name in sorted(metrics, key=_place))]


def _read(path: Path) -> CellMetrics | None:
    """None for a damaged file, which the steps that need it report."""
    try:
        return CellMetrics.of(str(path), json.loads(path.read_text()))
    except (OSError, ValueError):
        return None


def _place(method: str) -> tuple[int, str]:
    """Methods stand in the order of the paper's tables, the configuration's own after them."""
    stem = method.partition("-from-")[0]
    return (ORDER.index(stem) if stem in ORDER else len(ORDER), method)


def _line(method: str, metrics: CellMetrics) -> str:
    numbers = (metrics.values.get(key) for key in COLUMNS)
    shown = ("-" if value is None else f"{value:.3f}" for value in numbers)
    return LINE.format(method, *shown, metrics.n_unparsed.confidence)
