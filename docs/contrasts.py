"""Draw docs/images/{decisive,lab,smollm2}-contrasts.png from the tables in docs/evidence/tables: differences with their intervals."""

import re
import runpy
from pathlib import Path

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
    "orce - sft_all": "ORCE\nless SFT on all labels", "best - probe_judge": "the best trained judge\nless the probe",
    "stack-best - free": "what is free with the judge\nless what is free",
}  # fmt: skip
NAMES = {"SC": "ORCE", "SFT-all": "SFT on all labels", "SFT": "its warm start", "-smollm2": "", "-digits": ", in digits",
         "-values": ", as tokens"}  # fmt: skip
Drawn = list[tuple[str, str, str, str]]  # (panel, row, reading, "value [low, high]")


def real() -> Drawn:
    table = pd.read_csv(TABLES / "decisive-contrasts.csv").set_index(["contrast", "cell"])["difference of AURC"]
    return [(title, row, "mean", table[key, cell]) for key, title in CONTRASTS.items() for row, cells in ROWS.items() for cell in cells]  # fmt: skip


def grouped(overall: str, groups: str) -> Drawn:
    """The contrasts over all cells, and for each group of them."""
    table, every = pd.read_csv(TABLES / f"{groups}.csv"), pd.read_csv(TABLES / f"{overall}.csv")
    every = every.set_index(["contrast", "reading"])["difference of E-AURC"]
    drawn = []
    for contrast in table.columns[2:]:
        title = "\nless ".join(NAMES.get(name, name) for name in contrast.split(" - "))
        drawn += [(title, "all", reading, every[contrast, reading]) for reading in LOOKS]
        drawn += [(title, worded(row), reading, text) for row, reading, text in table[[*table.columns[:2], contrast]].itertuples(index=False)]  # fmt: skip
    return drawn


def worded(row: str) -> str:
    name = re.sub(r"-\w+$", lambda end: NAMES[end[0]], row)
    return {"arithmetic": "sums", "worldfacts": "countries"}.get(name, name)


def draw(rows: Drawn, metric: str) -> Figure:
    """A panel for each contrast, a line for each row; grey are differences too small to matter."""
    titles, names = (list(dict.fromkeys(row[i] for row in rows)) for i in (0, 1))
    readings = [reading for reading in LOOKS if any(row[2] == reading for row in rows)]
    figure = Figure(figsize=(6.9, 1.3 + 0.33 * len(names)))
    for axes, title in zip(figure.subplots(1, len(titles), sharex=True, sharey=True), titles, strict=True):
        axes.axvspan(-MARGIN, MARGIN, color="#dcdcdc", linewidth=0)
        axes.axvline(0, color="#767676", linewidth=0.7)
        mine = [row for row in rows if row[0] == title]
        for i, (_, name, reading, text) in enumerate(mine):
            value, low, high = map(float, re.findall(r"[+-]?\d*\.\d+", text))
            color, marker = LOOKS[reading]
            twins = [j for j, row in enumerate(mine) if row[1] == name]
            place = names.index(name) + 0.24 * (twins.index(i) - (len(twins) - 1) / 2)
            axes.hlines(place, low, high, color=color, linewidth=0.9)
            axes.plot(value, place, marker, color=color, markersize=3.6)
        axes.set_title(title, fontsize=8)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel(f"Difference of {metric} with its 95 % interval; left of 0 the first is better; grey: too small to matter", fontsize=8)  # fmt: skip
    if len(readings) > 1:
        marks = [mpl.lines.Line2D([], [], color=LOOKS[name][0], marker=LOOKS[name][1], markersize=3.6, label=name) for name in readings]  # fmt: skip
        figure.legend(handles=marks, loc="outside upper right", ncols=2)
    return figure


if __name__ == "__main__":
    pictures = {
        "decisive": (real(), "AURC"), "lab": (grouped("laboratory-contrasts", "laboratory-groups"), "E-AURC"),
        "smollm2": (grouped("smollm2-arms-contrasts", "smollm2-arms-groups"), "E-AURC"),
    }  # fmt: skip
    with mpl.rc_context(runpy.run_path(str(DOCS / "frontier.py"))["STYLE"]):
        for stem, content in pictures.items():
            draw(*content).savefig(DOCS / "images" / f"{stem}-contrasts.png", metadata={"Software": None})
