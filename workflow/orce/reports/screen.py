"""The rows that a run has so far, as text for its screen and its log."""

import contextlib
import json
from pathlib import Path

from orce.config import layout
from orce.metrics.definitions import SO_FAR
from orce.metrics.signs import COLLAPSED, UNREAD
from orce.reports.metrics_file import CellMetrics

LINE = "  {:<24}" + "{:>10}" * len(SO_FAR) + "{:>8}"
MEANINGS = {
    COLLAPSED: (
        "fewer than three distinct confidences, or a Brier score above that of the best constant"
    ),
    UNREAD: "more than a tenth of the confidences could not be read",
}
ORDER = (*layout.KINDS["main"], *layout.KINDS["ablation"])


def rows_so_far(cell: Path) -> list[str]:
    """The lines of text for a folder results/DATASET/MODEL: one for each method with a
    metrics.json; [] if there is none.

    Methods are in the order of the paper's tables, the configuration's own after them. Damaged
    files are left out: the stages that need them say so.
    """
    rows = []
    for path in cell.glob("*/metrics.json"):
        with contextlib.suppress(OSError, ValueError):
            metrics = CellMetrics.of(str(path), json.loads(path.read_text()))
            rows.append((path.parent.name, metrics))
    if not rows:
        return []
    rows.sort(key=lambda row: _place(row[0]))
    n = max(metrics.n for _, metrics in rows)
    title = f"{cell.parent.name}, {cell.name}, {n} test questions"
    readouts = {metrics.readout for _, metrics in rows if metrics.readout}
    if readouts:
        title += f"; confidence LLMs read by the {' or '.join(sorted(readouts))}"
    lines = [title, LINE.format("", *SO_FAR, "unread")]
    signs = ""
    for method, metrics in rows:
        signs += metrics.sign
        name = " ".join([method, *metrics.sign])
        values = [metrics.values.get(key) for key in SO_FAR]
        numbers = ["-" if value is None else f"{value:z.3f}" for value in values]
        lines.append(LINE.format(name, *numbers, metrics.n_unparsed["confidence"]))
    for sign, meaning in MEANINGS.items():
        if sign in signs:
            lines.append(f"  {sign} {meaning}")
    return lines


def _place(method: str) -> tuple[int, str]:
    stem = method.partition("-from-")[0]
    return (ORDER.index(stem) if stem in ORDER else len(ORDER)), method
