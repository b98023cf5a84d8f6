"""The pictures of a run, as PDF and PNG: reliability and risk-coverage of each cell, and what the rewards prefer.

A missing or undefined result is named in its picture and does not stop the others.
"""

import textwrap
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.lines import Line2D
from msgspec import structs

from orce import metrics, rewards
from orce.artefacts import store
from orce.artefacts.files import atomic
from orce.metrics.summary import read_stated
from orce.records import Candidate
from orce.stage_settings import Pictured, Pictures

STYLE = Path(__file__).with_name("paper.mplstyle")
METADATA = {"pdf": {"CreationDate": None}, "png": {"Software": None}}  # without dates and versions: equal bytes
COLUMN, PAGE = 3.3, 6.9  # inches
QUIET = "#4d4d4d"

# Okabe and Ito's colours, distinct for any colour vision (Wong, Nature Methods 8, 441, 2011); marker and line style
# distinguish them in black and white too.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#767676"


class Look(NamedTuple):
    color: str
    marker: str
    dash: str | tuple


LOOKS = {
    "vanilla": Look(BLACK, "s", ":"), "consistency": Look(ORANGE, "^", "--"), "topk": Look(SKY, "v", "-."),
    "cot": Look(GREEN, "D", (0, (5, 1, 1, 1, 1, 1))), "sft": Look(BLUE, "X", (0, (6, 2))),
    "orce": Look(VERMILLION, "o", "-"), "orce-nrd": Look(ORANGE, "^", "--"), "orce-numeric": Look(GREEN, "D", "-."),
    "orce-sayself": Look(PURPLE, "P", (0, (3, 1))), "orce-sc-surrogate": Look(SKY, "v", (0, (5, 1, 1, 1, 1, 1))),
    "orce-rlcr": Look(VERMILLION, "d", (0, (3, 1))), "orce-logscore": Look(VERMILLION, "<", "-."),
    "likelihood": Look(GREY, "H", "-"), "min_likelihood": Look(GREY, ">", "--"), "p_true": Look(BLACK, "P", "-."),
    "semantic_entropy": Look(PURPLE, "D", "-"), "linguistic": Look(BLUE, "v", ":"),
    "sequence_probability": Look(GREY, "<", "-."), "agreement": Look(ORANGE, "v", "-."),
    "lexical_similarity": Look(GREEN, "s", ":"), "num_sets": Look(PURPLE, "X", "--"), "eigv": Look(SKY, "o", "-"),
    "degree": Look(SKY, "D", "--"), "eccentricity": Look(SKY, "P", ":"), "kle": Look(PURPLE, "*", "-."),
    "probe": Look(GREEN, "^", "-"), "p_ik": Look(GREEN, ">", "--"), "probe_judge": Look(GREEN, "P", "-."),
    "token_agreement": Look(BLACK, "*", "-"), "mix": Look(BLACK, "h", "--"),
}  # fmt: skip
CALIBRATED = {"platt": (0, (1, 1)), "isotonic": (0, (2, 2)), "temperature": (0, (1, 3))}
# Of methods that are not listed: chosen by name, so that a method looks the same in every picture.
SPARE = (
    Look(GREY, "*", (0, (4, 2, 1, 2))), Look(GREEN, "h", (0, (2, 1))), Look(PURPLE, "P", (0, (3, 1))), Look(SKY, "p", (0, (7, 1))),
)  # fmt: skip


def look(method: str) -> Look:
    """Look of a method: a transferred judge (-from-MODEL) has that of the model's own, a calibration colour and marker."""
    below, _, calibration = method.partition("+")
    name = below.partition("-from-")[0]
    own = LOOKS.get(name) or SPARE[zlib.crc32(name.encode()) % len(SPARE)]
    return own._replace(dash=CALIBRATED.get(calibration, (0, (4, 3)))) if calibration else own


# Fonts for text in any script: matplotlib's, then what the machine has (fonts-noto-*, fonts-wqy-*, fonts-droid-fallback)
FONTS = ("STIXGeneral", "DejaVu Sans")
OTHER_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback",
    "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Thai",
)  # fmt: skip


@cache
def font_families() -> list[str]:
    """Families in the order in which a character is looked up."""
    installed = {font.name for font in fontManager.ttflist}
    return [*FONTS, *(name for name in OTHER_FONTS if name in installed)]


@cache
def _characters() -> frozenset[int]:
    maps = (get_font(findfont(FontProperties(family=[name]))).get_charmap() for name in font_families())
    return frozenset().union(*maps)


def drawable(text: str) -> str:
    """The text with [U+6A21] for a character that no font here has."""
    return "".join(c if c.isspace() or ord(c) in _characters() else f"[U+{ord(c):04X}]" for c in text)


def _literal(text: str) -> str:
    """A label as matplotlib draws it literally: without formulas between dollars, and never hidden from a legend."""
    text = drawable(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def build(plan: Pictures, results: str | Path, out: str | Path) -> Iterator[Path]:
    """Draw every picture of a plan from a results folder; yields each file written under `out`."""
    pictures = {"reward": partial(draw_reward, plan.reward and _labelled(plan.reward), Path(results))}
    for cell in map(_labelled, plan.cells):
        folder = Path(results, cell.dataset, cell.model)
        stated = [read(folder / method, method, label, plan.unparsed_confidence) for method, label in cell.methods]
        pictures[cell.picture("reliability")] = partial(draw_reliability, cell, stated)
        pictures[cell.picture("risk-coverage")] = partial(draw_risk_coverage, cell, stated)
    for name, draw in pictures.items():
        with style.context([STYLE, {"font.family": font_families()}]):
            figure = draw()
            for kind, metadata in METADATA.items():
                with atomic(Path(out, f"{name}.{kind}"), "wb") as handle:
                    figure.savefig(handle, format=kind, metadata=metadata)
        yield from (Path(out, f"{name}.{kind}") for kind in METADATA)


def _labelled(cell: Pictured) -> Pictured:
    methods = [(name, _literal(text)) for name, text in cell.methods]
    return structs.replace(cell, label=_literal(cell.label), methods=methods)


def _say(axes, text: str) -> None:
    """Write text instead of a picture."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=7, color=QUIET)


class Stated(NamedTuple):
    """One method's confidence [n] in [0, 1] and correct [n] of 0/1 on the test items; `missing` says why there is none.

    answers: to see which methods judge the same. unread: how many confidences could not be read and have the default.
    """

    method: str
    label: str
    confidence: np.ndarray = np.zeros(0)
    correct: np.ndarray = np.zeros(0)
    answers: tuple = ()
    unread: int = 0
    missing: str = ""

    @property
    def remarks(self) -> str:
        """Caveats for the reader of the picture, in a few words."""
        n = len(self.confidence)
        unread = f"{self.unread} of {n} unread" if self.unread else ""
        why = metrics.undefined_reason("spearman", self.confidence, self.correct) if self.unread != n else ""
        return "; ".join(filter(None, [unread, why]))


def read(folder: Path, method: str, label: str, unparsed: float) -> Stated:
    """One method's statements, unreadable ones replaced by `unparsed`; a file that does not exist is reported as missing."""
    path = folder / "confidences.jsonl"
    if not path.exists():
        return Stated(method, label, missing=f"no {path.name}")
    stated = read_stated(path, unparsed)
    return Stated(method, label, stated.confidence, stated.correct, tuple(stated.answers), stated.unread)


# Reliability: accuracy against stated confidence in the bins of ECE, four methods in a row, as wide as the page

PER_ROW = 4
ROW_HEIGHT, LEGEND_HEIGHT = 1.78, 0.55  # inches
DIAGONAL = {"color": GREY, "linewidth": 0.7, "linestyle": (0, (4, 2))}
LARGEST, SMALLEST = 130.0, 3.0  # points squared: the circle of all items, and the smallest visible one


def draw_reliability(cell: Pictured, stated: list[Stated]) -> Figure:
    """One panel per method: a circle per bin, its area the number of items, with a line to the diagonal.

    Above it the method in bold, its ECE, then its caveats; all titles are as high as the highest.
    """
    rows = -(-len(stated) // PER_ROW)
    figure = Figure(figsize=(PAGE, rows * ROW_HEIGHT + LEGEND_HEIGHT))
    panels = figure.subplots(rows, min(PER_ROW, len(stated)), sharex=True, sharey=True, squeeze=False).flatten()
    figure.suptitle(f"Reliability: {cell.label}", fontsize=9)
    for panel in panels[len(stated) :]:
        panel.remove()
    panels = panels[: len(stated)]
    titles = [
        [_reliability(panel, series), *textwrap.wrap(series.remarks, 36)]
        for panel, series in zip(panels, stated, strict=True)
    ]
    height = max(map(len, titles))
    for number, (panel, series, lines) in enumerate(zip(panels, stated, titles, strict=True)):
        lines += [""] * (height - len(lines))
        panel.set_title("\n".join(lines), fontsize=7, color=QUIET, pad=2, linespacing=1.1)
        panel.annotate(
            series.label, (0.5, 1), xytext=(0, 3 + 7.7 * height), xycoords="axes fraction", textcoords="offset points",
            ha="center", va="bottom", fontsize=8, fontweight="bold",
        )  # fmt: skip
        panel.set_xlabel("Stated confidence")
        panel.tick_params(labelbottom=True)
        if number % PER_ROW == 0:
            panel.set_ylabel("Accuracy")
    n = max(len(series.confidence) for series in stated)
    circle = {"color": "white", "markerfacecolor": BLACK, "marker": "o", "linewidth": 0}
    shares = [(share * n, f"{share * n:,.0f} of {n:,} items") for share in (0.1, 0.5, 1.0) if n]
    handles = [
        Line2D([], [], label="calibrated", **DIAGONAL),
        Line2D([], [], color=BLACK, linewidth=0, marker="|", markersize=8, label="gap of the bin"),
        *(Line2D([], [], markersize=_area(count, n) ** 0.5, label=text, **circle) for count, text in shares),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def _area(count, n: int):
    """Area of the circle of a bin that holds `count` of n items, in points squared."""
    return SMALLEST + LARGEST * count / n


def _reliability(axes, series: Stated) -> str:
    axes.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    if not len(series.correct):
        _say(axes, series.missing or "no items")
        return ""
    axes.plot([0, 1], [0, 1], **DIAGONAL, zorder=1)
    _, count, confidence, accuracy = metrics.reliability_bins(series.confidence, series.correct)
    color, sizes = look(series.method).color, _area(count, count.sum())
    axes.vlines(confidence, confidence, accuracy, color=color, linewidth=1.0, alpha=0.75, zorder=2)
    axes.scatter(confidence, accuracy, s=sizes, color=color, edgecolor="white", linewidth=0.5, zorder=3)
    return f"ECE {metrics.expected_calibration_error(series.confidence, series.correct):.3f}"


# Risk and coverage: all methods of a cell in one pair of axes, with a random and a perfect order

LABEL = 30  # characters of a label for which two columns are wide enough
OTHER = "\u2020"  # marks a method that judges other answers: its curve may lie below the grey perfect order


def draw_risk_coverage(cell: Pictured, stated: list[Stated]) -> Figure:
    """Error rate among the most confident items; AURC, the area below, is in the legend."""
    there = [series for series in stated if len(series.correct)]
    absent = [series.label for series in stated if not len(series.correct)]
    figure = Figure(figsize=(COLUMN, COLUMN))
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="Coverage", ylabel="Risk (error rate)", title=cell.label)
    title = "AURC"
    if there:
        usual = most_judged(there)
        for name, order, dash in (("Random", 0 * usual.correct, (0, (1, 1))), ("Perfect", usual.correct, "-")):
            coverage, risk = metrics.risk_coverage_curve(order, usual.correct)
            label = f"{name} order {risk.mean():.3f}"
            axes.plot(coverage, risk, linestyle=dash, label=label, color=GREY, linewidth=0.8, zorder=1.5)
        axes.fill_between(coverage, risk, color=GREY, alpha=0.12, linewidth=0)
        for number, series in enumerate(there):
            coverage, risk = metrics.risk_coverage_curve(series.confidence, series.correct)
            own, n, mark = look(series.method), len(coverage), OTHER if series.answers != usual.answers else ""
            # Marks of different methods are at different coverages, so that one curve does not hide another's.
            at = np.unique((n * (np.arange(4) + 0.35 + 0.08 * number) / 4).astype(int).clip(0, n - 1)).tolist()
            unread = f" ({series.unread} unread)" if series.unread else ""
            axes.plot(
                coverage, risk, color=own.color, linestyle=own.dash, marker=own.marker, markevery=at, markersize=3.8,
                markeredgewidth=0, zorder=3 if series.method.startswith("orce") else 2,
                label=f"{series.label}{mark} {metrics.aurc(series.confidence, series.correct):.3f}{unread}",
            )  # fmt: skip
            if mark:
                perfect = metrics.risk_coverage_curve(series.correct, series.correct)
                axes.plot(*perfect, color=own.color, linewidth=0.5, zorder=1.5)
                title = f"AURC ({OTHER} other answers; thin line: their perfect order)"
    else:
        _say(axes, "no confidences")
    if absent:
        axes.plot([], [], " ", label=f"missing: {', '.join(absent)}")
    columns = 2 if max(map(len, axes.get_legend_handles_labels()[1]), default=0) <= LABEL else 1
    figure.set_size_inches(COLUMN, 2.75 + 0.23 / columns * len(stated))
    figure.legend(loc="outside lower center", ncols=columns, columnspacing=1.0, title=title, title_fontsize=7)
    return figure


def most_judged(stated: list[Stated]) -> Stated:
    """A method with the answers that most methods share: the random and the perfect order are drawn for it."""
    counts = Counter(series.answers for series in stated)
    return max(stated, key=lambda series: counts[series.answers])


# What the rewards prefer (the paper's Figure 2). Two candidates may be equally far from their rank, so that the numeric ranking
# difference (NRD) cannot distinguish them, although only one improves the order of the whole set. (a), (b): a synthetic
# reference set, ten steps of kappa with confidences that follow it roughly; a new pair has kappa 0.45. (c): a run's.

KAPPA = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
CONFIDENCE = np.array([0.15, 0.05, 0.2, 0.5, 0.7, 0.45, 0.6, 0.85, 0.8])
NEW_KAPPA = 0.45
CANDIDATES = {"a": (0.25, VERMILLION, "o"), "b": (0.55, BLUE, "s")}
PERCENTS = np.arange(101) / 100
KAPPA_LOOKS = ((ORANGE, ":", "v"), (GREEN, "--", "D"), (PURPLE, "-", "^"))


def draw_reward(cell: Pictured | None, results: Path) -> Figure:
    """cell: whose candidates.jsonl gives panel (c); None leaves it out."""
    figure = Figure(figsize=(PAGE, 2.75))
    grid = figure.add_gridspec(2, 3)
    _reference(figure.add_subplot(grid[:, 0]))
    for column, draw in ((1, _curves_of_example), (2, partial(_curves_of_run, cell, results))):
        both = [figure.add_subplot(grid[row, column]) for row in range(2)]
        draw(both)
        _finish(both)
    figure.align_labels()
    return figure


def both_rewards(reference_confidence, reference_kappa, confidence, kappa):
    """SC and NRD rewards of candidates, each in the shape of `confidence`."""
    given = reference_confidence, reference_kappa, confidence, kappa
    return rewards.spearman_marginal(*given), rewards.numeric_ranking_difference(*given)


def _reference(axes) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel=r"Surrogate $\kappa$", ylabel="Stated confidence $c$")
    axes.set_title("(a) Two candidates for one answer")
    axes.scatter(KAPPA, CONFIDENCE, s=16, color=GREY, label="reference set $(C, K)$")
    axes.axvline(NEW_KAPPA, color=BLACK, linewidth=0.6, linestyle=(0, (1, 1)))
    for name, (value, color, marker) in CANDIDATES.items():
        sc, nrd = both_rewards(CONFIDENCE, KAPPA, np.array([value]), NEW_KAPPA)
        label = f"$c^{{({name})}}={value}$: NRD {nrd[0]:+.0f}, SC {sc[0]:+.4f}".replace("-", "−")
        axes.scatter([NEW_KAPPA], [value], s=34, color=color, marker=marker, zorder=3, label=label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.24), handletextpad=0.3, borderaxespad=0)


def _curves_of_example(axes: list) -> None:
    sc, nrd = both_rewards(CONFIDENCE, KAPPA, PERCENTS, NEW_KAPPA)
    axes[0].set_title(rf"(b) Every candidate at $\kappa={NEW_KAPPA}$")
    for panel, values in zip(axes, (1000 * sc, nrd), strict=True):
        panel.plot(PERCENTS, values, color=BLACK, drawstyle="steps-mid", linewidth=1)
        for value, color, marker in CANDIDATES.values():
            panel.plot(value, values[round(100 * value)], marker=marker, color=color, markersize=5)


def _curves_of_run(cell: Pictured | None, results: Path, axes: list) -> None:
    path = results / cell.dataset / cell.model / "candidates.jsonl" if cell else None
    axes[0].set_title(f"(c) {cell.label}" if cell else "(c) Candidates of a run")
    if path is None or not path.exists():
        for panel in axes:
            _say(panel, "no candidates" if path is None else f"no {path.name}")
        return
    records = store.records(path, Candidate)
    stated, kappa = (np.array([getattr(row, name) for row in records], dtype=float) for name in ("stated", "kappa"))
    distinct = np.unique(kappa)
    chosen = np.unique(distinct[[0, len(distinct) // 2, -1]]).tolist()  # the lowest, one in the middle, the highest
    for value, (color, dash, marker) in zip(chosen, KAPPA_LOOKS, strict=False):
        drawn = np.unique(next(record.confidences for record in records if record.kappa == value))
        curves, marks = both_rewards(stated, kappa, PERCENTS, value), both_rewards(stated, kappa, drawn, value)
        of_marks = {"color": color, "marker": marker, "markersize": 3.5}
        for panel, curve, at, scale in zip(axes, curves, marks, (1000, 1), strict=True):
            panel.plot(PERCENTS, scale * curve, color=color, linestyle=dash, linewidth=1, drawstyle="steps-mid")
            panel.plot(drawn, scale * at, linestyle="", clip_on=False, zorder=3, **of_marks)
            panel.plot([], [], linestyle=dash, label=rf"$\kappa={value:g}$", **of_marks)
    axes[1].legend(loc="upper center", bbox_to_anchor=(0.45, -0.52), ncols=3, columnspacing=0.8, borderaxespad=0)


def _finish(axes: list) -> None:
    axes[0].set_ylabel(r"SC $\times\,10^{3}$")
    axes[1].set(ylabel="NRD", xlabel="Candidate confidence $c$")
    axes[0].tick_params(labelbottom=False)
    axes[0].axhline(0, color=GREY, linewidth=0.6)
    for panel in axes:
        panel.set(xlim=(-0.02, 1.02), xticks=[0, 0.25, 0.5, 0.75, 1])
        panel.yaxis.get_major_locator().set_params(nbins=4)
