"""Draw docs/images/{decisive,lab,smollm2,order}-contrasts.png and decisive-labels.png from the tables in docs/evidence/tables."""

import re
import runpy
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

DOCS = Path(__file__).parent
TABLES = DOCS / "evidence" / "tables"
MARGIN = 0.01
LOOKS = {"stated": ("#0072B2", "o"), "mean": ("#D55E00", "s")}
# Of the real questions: the rows with their cells, and the panels.
ROWS = {
    "Wikidata, 320 labels": ["mean of 320 labels"], "Wikidata, 960 labels": ["mean of 960 labels"],
    "Wikidata, 2,000 labels": ["wikidata-5"], "other relations, 320 labels": ["wikidata-shift-3"],
    "exams, 160 labels, two draws": ["exams-2", "exams-3"], "CodeLlama, 160 labels": ["cruxeval-3"],
}  # fmt: skip
CONTRASTS = {
    "orce - sft": "ORCE minus\nits warm start", "orce - sft_all": "ORCE minus\nSFT on all labels",
    "best - probe_judge": "best trained judge\nminus the probe", "stack-best - free": "free signal with judge\nminus free signal",
}  # fmt: skip
NAMES = {"SC": "ORCE", "SFT-all": "SFT on all labels", "SFT": "its warm start", "-smollm2": "", "-digits": ", in digits",
         "-values": ", as tokens"}  # fmt: skip
# Of the picture by labels: its cells, and the judges with their colours and markers.
LABELS = {320: "mean of 320 labels", 960: "mean of 960 labels", 2000: "wikidata-5"}
JUDGES = {
    "sft_all": ("SFT on all labels", "#E69F00", "s"), "orce": ("ORCE", "#D55E00", "o"),
    "soft": ("soft labels", "#009E73", "^"), "ordered": ("soft labels + order", "#CC79A7", "D"),
}  # fmt: skip
ORDER = {
    "orce, C stated - sft": "greedy C\nminus warm start", "orce, C mean - sft": "averaged C\nminus warm start",
    "orce, C mean - orce, C stated": "averaged C\nminus greedy C", "orce, C mean - W/o gen": "averaged C\nminus W/o gen",
}  # fmt: skip
PANELS = {"stated": "by the value stated", "mean": "by the mean of the distribution"}


class Drawn(NamedTuple):
    """One difference: where it stands, how the judges are read, "value [low, high]", and whether both rows are collapsed."""

    panel: str
    row: str
    reading: str
    text: str
    collapsed: bool = False


def decisive() -> pd.DataFrame:
    """The contrasts of the real questions, by (contrast, cell, reading)."""
    table = pd.read_csv(TABLES / "decisive-contrasts.csv", keep_default_na=False)
    return table.set_index(["contrast", "cell", "reading"]).sort_index()


def real() -> list[Drawn]:
    table = decisive()
    drawn = []
    for key, title in CONTRASTS.items():
        for row, cells in ROWS.items():
            for cell in cells:
                lines = table.loc[key, cell]
                for reading in filter(lines.index.__contains__, LOOKS):
                    text, collapsed = lines.loc[reading, ["difference of AURC", "collapsed"]]
                    drawn.append(Drawn(title, row, reading, text, collapsed == "both"))
    return drawn


def grouped(overall: str, groups: str) -> list[Drawn]:
    """The contrasts over all cells, and for each group of them."""
    table, every = pd.read_csv(TABLES / f"{groups}.csv"), pd.read_csv(TABLES / f"{overall}.csv")
    every = every.set_index(["contrast", "reading"])
    drawn = []
    for contrast in filter(every.index.get_level_values("contrast").__contains__, table.columns):
        title = " minus\n".join(NAMES.get(name, name) for name in contrast.split(" - "))
        for reading in LOOKS:
            text, marks = every.loc[(contrast, reading), ["difference of E-AURC", "both collapsed"]]
            drawn.append(Drawn(title, "all", reading, text, mostly(marks)))
        own = table[["questions, numbers", "reading", contrast, f"both collapsed, {contrast}"]]
        for row, reading, text, marks in own.itertuples(index=False):
            drawn.append(Drawn(title, worded(row), reading, text, mostly(marks)))
    return drawn


def order() -> list[Drawn]:
    """The contrasts of the experiment on order, over both sets and for each."""
    table = pd.read_csv(TABLES / "order-contrasts.csv").set_index(["contrast", "set", "reading"]).sort_index()
    drawn = []
    for contrast, title in ORDER.items():
        for name in ("both", "arithmetic", "worldfacts"):
            for reading in LOOKS:
                text, marks = table.loc[(contrast, name, reading), ["difference of AURC", "both collapsed"]]
                drawn.append(Drawn(title, worded(name), reading, text, mostly(marks)))
    return drawn


def mostly(marks: str) -> bool:
    """Whether 4 of 5, or `one 4 of 5; another 2 of 5`, is more than half."""
    counted = [(int(k), int(n)) for k, n in re.findall(r"(\d+) of (\d+)", marks)]
    return 2 * sum(k for k, _ in counted) > sum(n for _, n in counted)


def worded(row: str) -> str:
    name = re.sub(r"-\w+$", lambda end: NAMES[end[0]], row)
    return {"arithmetic": "sums", "worldfacts": "countries"}.get(name, name)


def numbers(text: str) -> list[float]:
    """Value, low and high."""
    return [float(number) for number in re.findall(r"[+-]?\d*\.\d+", text)]


def draw(rows: list[Drawn], metric: str) -> Figure:
    """A panel for each contrast, a line for each row; grey are differences too small to matter."""
    titles = list(dict.fromkeys(row.panel for row in rows))
    names = list(dict.fromkeys(row.row for row in rows))
    figure = Figure(figsize=(6.9, 1.3 + 0.33 * len(names)))
    for axes, title in zip(figure.subplots(1, len(titles), sharex=True, sharey=True), titles, strict=True):
        axes.axvspan(-MARGIN, MARGIN, color="#dcdcdc", linewidth=0)
        axes.axvline(0, color="#767676", linewidth=0.7)
        mine = [row for row in rows if row.panel == title]
        for i, (_, name, reading, text, collapsed) in enumerate(mine):
            value, low, high = numbers(text)
            color, marker = LOOKS[reading]
            twins = [j for j, row in enumerate(mine) if row.row == name]
            place = names.index(name) + 0.2 * (twins.index(i) - (len(twins) - 1) / 2)
            axes.hlines(place, low, high, color=color, linewidth=0.9)
            inside = "white" if collapsed else color
            axes.plot(value, place, marker, color=color, markersize=3.6, markerfacecolor=inside)
        axes.set_title(title, fontsize=8)
        axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(4, steps=[1, 5, 10]))
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel(f"Difference of {metric} with its 95 % interval; left of 0 the first is better; grey: too small to matter", fontsize=8)  # fmt: skip
    marks = [mpl.lines.Line2D([], [], color=color, marker=marker, markersize=3.6, label=reading) for reading, (color, marker) in LOOKS.items()]  # fmt: skip
    if any(row.collapsed for row in rows):
        marks.append(hollow("both rows collapsed"))
    figure.legend(handles=marks, loc="outside upper right", ncols=len(marks))
    return figure


def hollow(label: str) -> mpl.lines.Line2D:
    """The mark of what is collapsed, for a legend."""
    return mpl.lines.Line2D(
        [], [], color="#767676", linewidth=0, marker="o", markerfacecolor="white", markersize=4, label=label
    )


def by_labels() -> Figure:
    """A panel for each reading, a line for each judge: its AURC minus the probe's, by the number of labels. A mark is hollow
    where the judge is collapsed in one of the cells or more."""
    table = decisive()
    figure = Figure(figsize=(6.9, 2.9))
    for axes, (reading, title) in zip(figure.subplots(1, 2, sharey=True), PANELS.items(), strict=True):
        axes.axhspan(-MARGIN, MARGIN, color="#dcdcdc", linewidth=0)
        axes.axhline(0, color="#767676", linewidth=0.7)
        for judge, (label, color, marker) in JUDGES.items():
            lines = [table.loc[f"{judge} - probe_judge", cell, reading] for cell in LABELS.values()]
            values, lows, highs = zip(*(numbers(line["difference of AURC"]) for line in lines), strict=True)
            axes.fill_between([*LABELS], lows, highs, color=color, alpha=0.18, linewidth=0)
            axes.plot([*LABELS], values, marker=marker, color=color, markersize=4, linewidth=1.1, label=label)
            for labels, value, line in zip(LABELS, values, lines, strict=True):
                if line["collapsed"]:
                    axes.plot(labels, value, marker, color=color, markersize=4, markerfacecolor="white")
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks([*LABELS], [f"{labels:,}" for labels in LABELS])
        axes.set_xlabel("labels (log scale)")
        axes.set_title(title, fontsize=8)
        axes.grid(axis="y")
    first = figure.axes[0]
    first.set_ylabel("AURC minus the probe's;\nbelow 0 the judge is better")
    handles = [*first.get_legend_handles_labels()[0], hollow("collapsed")]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    return figure


if __name__ == "__main__":
    pictures = {
        "decisive-contrasts": (draw, real(), "AURC"),
        "lab-contrasts": (draw, grouped("laboratory-contrasts", "laboratory-groups"), "E-AURC"),
        "smollm2-contrasts": (draw, grouped("smollm2-arms-contrasts", "smollm2-arms-groups"), "E-AURC"),
        "order-contrasts": (draw, order(), "AURC"),
        "decisive-labels": (by_labels,),
    }
    with mpl.rc_context(runpy.run_path(str(DOCS / "frontier.py"))["STYLE"]):
        for stem, (function, *content) in pictures.items():
            function(*content).savefig(DOCS / "images" / f"{stem}.png", metadata={"Software": None})
