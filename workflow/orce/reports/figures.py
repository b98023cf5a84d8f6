"""The pictures of a run, as PDF and PNG: reliability and risk-coverage of each cell. A picture names
what is missing or undefined.
"""

import itertools
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.lines import Line2D
from scipy.stats import binomtest, hypergeom

from orce import metrics
from orce.artefacts.files import atomic
from orce.metrics.summary import Stated, read_stated
from orce.settings.stage import CellPicture, Pictures

# Without dates and versions, so that equal pictures have equal bytes.
METADATA = {"pdf": {"CreationDate": None}, "png": {"Software": None}}
COLUMN, PAGE = 3.3, 6.9  # inches
BLACK = "#000000"
GREY = "#767676"
QUIET = "#4d4d4d"


@cache
def style() -> matplotlib.RcParams:
    """paper.mplstyle, with the fonts that are installed."""
    path = Path(__file__).with_name("paper.mplstyle")
    params = matplotlib.rc_params_from_file(path, use_default_template=False)
    installed = {font.name for font in fontManager.ttflist}
    params["font.family"] = [name for name in params["font.family"] if name in installed]
    return params


@cache
def _characters() -> frozenset[int]:
    """The code points that the fonts of `style` have."""
    codes: set[int] = set()
    for name in style()["font.family"]:
        codes.update(get_font(findfont(FontProperties(family=[name]))).get_charmap())
    return frozenset(codes)


def drawable(text: str) -> str:
    """The text with [U+6A21] for a character that no font here has."""
    known = _characters()
    return "".join(c if c.isspace() or ord(c) in known else f"[U+{ord(c):04X}]" for c in text)


def literal(text: str) -> str:
    """A label that matplotlib draws as it is: without formulas between dollars, and shown in a
    legend even if it begins with an underscore.
    """
    text = drawable(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


class Series(NamedTuple):
    """A method's confidences on the test items; None where their file does not exist."""

    method: str
    label: str
    stated: Stated | None

    @property
    def read(self) -> Stated | None:
        """What is drawn; None also where no confidence could be read, as all would be the default."""
        stated = self.stated
        return None if stated is None or stated.unread == len(stated.ids) else stated


def build(plan: Pictures, results: str | Path, out: str | Path) -> Iterator[Path]:
    """Draw every picture of a plan from a results folder; yields each file written under `out`."""
    pictures = {}
    for cell in plan.cells:
        series = []
        for method, label in cell.methods:
            path = Path(results, cell.dataset, cell.model, method, "confidences.jsonl")
            stated = read_stated(path, plan.unparsed_confidence) if path.exists() else None
            series.append(Series(method, literal(label), stated))
        pictures[cell.picture("reliability")] = partial(draw_reliability, cell, series)
        pictures[cell.picture("risk-coverage")] = partial(draw_risk_coverage, cell, series)
    for name, draw in pictures.items():
        with matplotlib.rc_context(style()):
            figure = draw()
            for kind, metadata in METADATA.items():
                path = Path(out, f"{name}.{kind}")
                with atomic(path, "wb") as handle:
                    figure.savefig(handle, format=kind, metadata=metadata)
                yield path


def _say(axes, text: str) -> None:
    """Write text instead of a picture."""
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=7, color=QUIET
    )


# Reliability: accuracy against confidence in the bins of ECE, four methods in a row, as wide
# as the page

PER_ROW = 4
ROW_HEIGHT, LEGEND_HEIGHT = 1.78, 0.55  # inches
DIAGONAL = {"color": GREY, "linewidth": 0.7, "linestyle": (0, (4, 2)), "marker": ""}
# points squared: the circle of all items, and the smallest visible one
LARGEST = 130.0
SMALLEST = 3.0


def draw_reliability(cell: CellPicture, series: list[Series]) -> Figure:
    """One panel per method: a circle per bin, its area the number of items, with a line to the
    diagonal and a thin one for the 95 % interval of its accuracy (Wilson, 1927).

    Above it the method, its ECE, then its caveats.
    """
    rows = -(-len(series) // PER_ROW)
    figure = Figure(figsize=(PAGE, rows * ROW_HEIGHT + LEGEND_HEIGHT))
    figure.suptitle(f"Reliability: {literal(cell.label)}")
    columns = min(PER_ROW, len(series))
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    panels[0].set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    numbers = itertools.count()  # of the methods that risk-coverage draws, for the same colours
    for panel, curve in zip(panels, series, strict=False):
        panel.set_title("\n".join([curve.label, *_caption(curve.read)]))
        panel.set_xlabel("Confidence")
        panel.tick_params(labelbottom=True)
        if curve.read:
            _draw_bins(panel, curve.read, f"C{next(numbers)}")
        else:
            _say(panel, "no confidence could be read" if curve.stated else "no confidences.jsonl")
    for panel in panels[: len(series) : PER_ROW]:
        panel.set_ylabel("Accuracy")
    for panel in panels[len(series) :]:
        panel.remove()
    n = max((len(curve.stated.ids) for curve in series if curve.stated), default=0)
    figure.legend(handles=_legend_of_bins(n), loc="outside lower center", ncols=6)
    return figure


def _draw_bins(panel, stated: Stated, color: str) -> None:
    panel.plot([0, 1], [0, 1], **DIAGONAL, zorder=1)
    _, count, confidence, accuracy = metrics.reliability_bins(stated.confidence, stated.correct)
    area = SMALLEST + LARGEST * count / count.sum()
    panel.vlines(confidence, confidence, accuracy, color=color, linewidth=1.0, alpha=0.75, zorder=2)
    panel.scatter(
        confidence, accuracy, s=area, color=color, edgecolor="white", linewidth=0.5, zorder=3
    )
    low, high = wilson_intervals(np.rint(accuracy * count).astype(int), count)
    panel.vlines(confidence, low, high, color=GREY, linewidth=0.5, zorder=1.5)


def _legend_of_bins(n: int) -> list[Line2D]:
    """What `_draw_bins` draws, with circles for shares of n items."""
    bar = partial(Line2D, [], [], linewidth=0, marker="|", markersize=8)
    handles = [
        Line2D([], [], label="calibrated", **DIAGONAL),
        bar(color=BLACK, label="gap"),
        bar(color=GREY, label="95 % interval"),
    ]
    # a tenth, a half and all of them, rounded up
    for k in sorted({-(-n // part) for part in (10, 2, 1)}) if n else ():
        handles.append(
            Line2D(
                [],
                [],
                linewidth=0,
                label=f"{k:,} of {n:,} items",
                color="white",
                markerfacecolor=BLACK,
                marker="o",
                markersize=(SMALLEST + LARGEST * k / n) ** 0.5,
            )
        )
    return handles


def wilson_intervals(right: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Lower and upper ends [2, N] of the 95 % intervals of the share of `right` [N] among `count`
    [N] items.
    """
    intervals = []
    for k, n in zip(right.tolist(), count.tolist(), strict=True):
        intervals.append(binomtest(k, n).proportion_ci(method="wilson"))
    return np.reshape(intervals, (-1, 2)).T


def _caption(stated: Stated | None) -> list[str]:
    """The ECE of a method and its caveats, in lines as wide as its panel."""
    if stated is None:
        return []
    n = len(stated.ids)
    both = (stated.confidence, stated.correct)
    caveats = []
    if stated.unread:
        caveats.append(f"{stated.unread} of {n} unread")
    why = metrics.undefined_reason("spearman", *both)
    if why:
        caveats.append(why)
    ece = f"ECE {metrics.expected_calibration_error(*both):.3f}"
    return [ece, *textwrap.wrap("; ".join(caveats), 36)]


# Risk and coverage: all methods of a cell in one pair of axes, with a random and a perfect order

LABEL = 30  # characters of the longest label that leaves room for two columns
# Marks a method that judges other answers: its curve may lie below the grey perfect order.
OTHER = "\u2020"
BAND = "95 % of random orders"


def draw_risk_coverage(cell: CellPicture, series: list[Series]) -> Figure:
    """Error rate among the most confident items; AURC, the area below, is in the legend.

    The dotted line is the expected risk of a random order. 95 % of random orders are within the
    band at each coverage, so a curve inside it is not told apart from chance there.
    """
    figure = Figure()
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="Coverage", ylabel="Risk (error rate)")
    axes.set_title(literal(cell.label))
    read = [(curve, curve.read) for curve in series if curve.read]
    title = "AURC"
    usual = most_judged([stated for _, stated in read]) if read else None
    if usual:
        _draw_orders(axes, usual.correct)
    else:
        _say(axes, "no confidences")
    for number, (curve, stated) in enumerate(read):
        is_other = usual is not None and stated.answers != usual.answers
        _draw_curve(axes, curve, stated, number, is_other)
        if is_other:
            title = f"AURC ({OTHER} other answers; thin line: their perfect order)"
    absent = []
    for curve in series:
        if not curve.read:
            absent.append(f"{curve.label} (none read)" if curve.stated else curve.label)
    if absent:
        axes.plot([], [], linestyle="", marker="", label=f"missing: {', '.join(absent)}")
    labels = axes.get_legend_handles_labels()[1]
    columns = 2 if max(map(len, labels), default=0) <= LABEL else 1
    figure.set_size_inches(COLUMN, 2.75 + 0.23 / columns * len(series))
    figure.legend(loc="outside lower center", ncols=columns, columnspacing=1.0, title=title)
    return figure


def _draw_orders(axes, correct: np.ndarray) -> None:
    """The curves of a random and of a perfect order, and the band of random orders."""
    line = partial(axes.plot, color=GREY, linewidth=0.8, marker="", zorder=1.5)
    coverage, risk = metrics.risk_coverage_curve(0 * correct, correct)
    line(coverage, risk, linestyle=(0, (1, 1)), label=f"Random order {risk.mean():.3f}")
    _, risk = metrics.risk_coverage_curve(correct, correct)
    line(coverage, risk, linestyle="-", label=f"Perfect order {risk.mean():.3f}")
    low, high = random_band(correct)
    axes.fill_between(coverage, low, high, color=GREY, alpha=0.2, linewidth=0, label=BAND)


def _draw_curve(axes, curve: Series, stated: Stated, number: int, is_other: bool) -> None:
    """A method's curve, the `number`-th of the picture. is_other: whether it judges other answers
    than most; its perfect order is then drawn too.
    """
    aurc = metrics.aurc(stated.confidence, stated.correct)
    unread = f" ({stated.unread} unread)" if stated.unread else ""
    label = f"{curve.label}{OTHER * is_other} {aurc:.3f}{unread}"
    (line,) = axes.plot(
        *metrics.risk_coverage_curve(stated.confidence, stated.correct),
        label=label,
        zorder=3 if curve.method.startswith("orce") else 2,
        # at different coverages, so that no curve hides another's
        markevery=(0.02 * number % 0.25, 0.25),
        markersize=3.8,
        markeredgewidth=0,
    )
    if is_other:
        perfect = metrics.risk_coverage_curve(stated.correct, stated.correct)
        thin = {"linestyle": "-", "linewidth": 0.5, "marker": ""}
        axes.plot(*perfect, color=line.get_color(), **thin, zorder=1.5)


def random_band(correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds [n] of the risk among the first i of n items in 95 % of random orders, i = 1..n.

    The errors among i items drawn without replacement are hypergeometric.
    """
    n = len(correct)
    drawn = np.arange(1, n + 1)
    errors = hypergeom(n, n - int(correct.sum()), drawn)
    return errors.ppf(0.025) / drawn, errors.ppf(0.975) / drawn


def most_judged(stated: list[Stated]) -> Stated:
    """The first confidences in the answers that most methods share."""
    counts = Counter(tuple(method.answers) for method in stated)
    return max(stated, key=lambda method: counts[tuple(method.answers)])
