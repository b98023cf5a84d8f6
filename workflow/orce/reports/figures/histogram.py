"""Histograms of stated confidence, right answers upwards and wrong ones downwards, all methods of a cell."""

from typing import Any

import numpy as np

from orce.evaluation import metrics
from orce.reports.figures import palette, panels
from orce.reports.figures.data import Stated
from orce.stage_settings import Pictured

N_BINS = 20  # right-closed, 0 in the first, like ECE's


def draw(cell: Pictured, stated: list[Stated]):
    """One panel per method, all with the same axes."""
    figure, axes = panels.grid(f"Stated confidence: {cell.label}", stated)
    panels.heads(axes, stated, [_panel(panel, one) for panel, one in zip(axes, stated, strict=True)])
    panels.label(axes, "Stated confidence", "Items")
    bound = 1.05 * max((max(*map(max, counts(one))) for one in stated if len(one.correct)), default=1)
    axes[0].set_ylim(-bound, bound)
    axes[0].yaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
    axes[0].yaxis.get_major_locator().set_params(nbins=5, integer=True)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=2)
    return figure


def counts(one: Stated):
    """Right and wrong answers in each bin: two arrays [N_BINS]."""
    number, total, _, accuracy = metrics.reliability_bins(one.confidence, one.correct, N_BINS)
    right, wrong = np.zeros(N_BINS, dtype=int), np.zeros(N_BINS, dtype=int)
    right[number] = np.rint(accuracy * total)
    wrong[number] = total - right[number]
    return right, wrong


def _panel(axes, one: Stated) -> str:
    axes.set(xlim=(-0.02, 1.02), xticks=[0, 0.5, 1])
    axes.grid(visible=False, axis="x")
    if not len(one.correct):
        panels.say(axes, one.missing or "no items")
        return ""
    axes.axhline(0, color=palette.BLACK, linewidth=0.5, zorder=3)
    right, wrong = counts(one)
    left = np.arange(N_BINS) / N_BINS
    for height, style in ((right, _style("right")), (-wrong, _style("wrong"))):
        some = height != 0
        axes.bar(left[some], height[some], width=1 / N_BINS, align="edge", **style)
    return f"{right.sum():,} right, {wrong.sum():,} wrong"


def _style(kind: str) -> dict[str, Any]:
    if kind == "right":
        return {"facecolor": palette.RIGHT, "edgecolor": "white", "linewidth": 0.4}
    return {"facecolor": "white", "edgecolor": palette.WRONG, "hatch": "//////", "linewidth": 0.6}


def _legend() -> list:
    from matplotlib.patches import Patch

    labels = {"right": "right answers (upwards)", "wrong": "wrong answers (downwards)"}
    return [Patch(label=label, **_style(kind)) for kind, label in labels.items()]
