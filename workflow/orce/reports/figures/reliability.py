"""Reliability diagrams: accuracy against stated confidence in the bins of ECE, all methods of a cell side by side."""

from orce import metrics
from orce.reports.figures import palette, panels
from orce.reports.figures.data import Stated
from orce.stage_settings import Pictured

N_BINS = 10  # as in the tables
DIAGONAL = {"color": palette.GREY, "linewidth": 0.7, "linestyle": (0, (4, 2))}
LARGEST, SMALLEST = 130.0, 3.0  # points squared: the circle of all items, and the smallest visible one


def draw(cell: Pictured, stated: list[Stated]):
    """One panel per method: a circle per bin, its area the number of items, with a line to the diagonal."""
    figure, axes = panels.grid(f"Reliability: {cell.label}", stated)
    panels.heads(axes, stated, [_panel(panel, one) for panel, one in zip(axes, stated, strict=True)])
    panels.label(axes, "Stated confidence", "Accuracy")
    largest = max((len(one.confidence) for one in stated), default=0)
    figure.legend(handles=_legend(largest), loc="outside lower center", ncols=5)
    return figure


def points(one: Stated):
    """Mean confidence, accuracy and number of items of every bin that has any: three arrays [N]."""
    _, count, confidence, accuracy = metrics.reliability_bins(one.confidence, one.correct, N_BINS)
    return confidence, accuracy, count


def area(count, n: int):
    """Area of the circle of a bin that holds `count` of n items, in points squared."""
    return SMALLEST + LARGEST * count / n


def _panel(axes, one: Stated) -> str:
    axes.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    if not len(one.correct):
        panels.say(axes, one.missing or "no items")
        return ""
    axes.plot([0, 1], [0, 1], **DIAGONAL, zorder=1)
    confidence, accuracy, count = points(one)
    color = palette.look(one.method).color
    axes.vlines(confidence, confidence, accuracy, color=color, linewidth=1.0, alpha=0.75, zorder=2)
    axes.scatter(
        confidence, accuracy, s=area(count, count.sum()), color=color, edgecolor="white", linewidth=0.5, zorder=3
    )
    return f"ECE {metrics.expected_calibration_error(one.confidence, one.correct, N_BINS):.3f}"


def _legend(n: int) -> list:
    from matplotlib.lines import Line2D

    diagonal = Line2D([], [], label="calibrated", **DIAGONAL)
    gap = Line2D([], [], color=palette.BLACK, linewidth=0, marker="|", markersize=8, label="gap of the bin")
    shares = [share for share in (0.1, 0.5, 1.0) if n]
    circles = [
        Line2D(
            [], [], color="white", markerfacecolor=palette.BLACK, marker="o", linewidth=0,
            markersize=area(share * n, n) ** 0.5, label=f"{share * n:,.0f} of {n:,} items",
        )
        for share in shares
    ]  # fmt: skip
    return [diagonal, gap, *circles]
