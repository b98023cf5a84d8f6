"""Training curves of a cell: the losses of the warm start and of the baselines; loss, margin and accuracy of alignment.

They come from training_log.json in the model's folder (one entry a step; transformers' and TRL's names).
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from orce.artefacts.store import verified
from orce.reports.figures import palette, panels
from orce.stage_settings import Pictured

ROW_HEIGHT = 1.75  # inches
ALIGNED = (("loss", "DPO loss"), ("rewards/margins", "DPO margin"), ("rewards/accuracies", "DPO accuracy"))
WINDOW_SHARE = 25  # neighbours of the running mean on either side: this part of the steps
# Values before any learning: log 2, no margin, as often right as wrong.
START = {"loss": float(np.log(2)), "rewards/margins": 0.0, "rewards/accuracies": 0.5}


def draw(cell: Pictured, results: Path):
    """Faint: every step; strong: the running mean. Rewards share the three panels of alignment."""
    from matplotlib.figure import Figure

    folder = Path(results) / cell.dataset / cell.model
    labels = dict(cell.stages)
    logs = {stage: read(folder / stage / "training_log.json") for stage in labels}
    single = [stage for stage in logs if not stage.startswith("dpo")]
    aligned = {stage: log for stage, log in logs.items() if stage.startswith("dpo")}
    rows = bool(single) + bool(aligned)
    height = rows * ROW_HEIGHT + 0.3 + 0.16 * (-(-len(aligned) // 3))
    figure = Figure(figsize=(palette.PAGE, height))
    figure.suptitle(f"Training: {cell.label}", fontsize=9)
    grid = figure.add_gridspec(rows, 6)
    for axes, stage in zip(_row(figure, grid, 0, len(single)), single, strict=True):
        _panel(axes, f"{labels[stage]} loss", "loss", {stage: logs[stage]}, labels)
    if aligned:
        for axes, (key, title) in zip(_row(figure, grid, rows - 1, 3), ALIGNED, strict=True):
            _panel(axes, title, key, aligned, labels)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


Log = list[dict[str, float]]  # entries {step, loss, ...}


def read(path: Path) -> Log | None:
    """The log of a training, None if there is no such file."""
    return json.loads(verified(path).read_text()) if path.exists() else None


def series(log: Log, key: str):
    """Steps and values of the entries that have the key, with the running mean: three arrays [N]."""
    entries = [entry for entry in log if key in entry]
    values = np.array([float(entry[key]) for entry in entries])
    return np.array([entry["step"] for entry in entries]), values, running_mean(values, 1 + len(values) // WINDOW_SHARE)


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of each value with its neighbours, `window` on either side as far as there are any."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    i = np.arange(len(values))
    low, high = np.maximum(i - window, 0), np.minimum(i + window + 1, len(values))
    return (total[high] - total[low]) / (high - low)


def _row(figure, grid, row: int, n: int) -> list:
    return [figure.add_subplot(grid[row, 6 * i // n : 6 * (i + 1) // n]) for i in range(n)]


def _panel(axes, title: str, key: str, logs: Mapping[str, Log | None], labels: dict[str, str]) -> None:
    axes.set_title(title)
    axes.set_xlabel("Step")
    if next(iter(logs)).startswith("dpo"):
        axes.axhline(START[key], color=palette.GREY, linewidth=0.6, linestyle=(0, (1, 1)))
    for stage, log in logs.items():
        look = palette.stage_look(stage)
        steps, values, smooth = series(log or [], key)
        # A run of a step or two has no curve: its values are shown as marks.
        marks = {"marker": look.marker, "markersize": 3} if len(steps) < 3 else {}
        axes.plot(steps, values, color=look.color, linewidth=0.5, alpha=0.3)
        label = labels[stage] + ("" if len(steps) else " (no log)")
        axes.plot(steps, smooth, **look.line(**marks), label=label)
    if not any(any(key in entry for entry in log or []) for log in logs.values()):
        there = any(log is not None for log in logs.values())  # an empty log means 0 epochs
        panels.say(axes, "no step was trained" if there else "no training_log.json")
