"""The tables and the picture of the decisive experiment, from the released items alone: ``python -m evidence.decisive report``."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.figure import Figure

from evidence.collect import fill
from evidence.decisive.contrasts import CHANGES, ITEMS, MARGIN, MEANS, contrasts, read
from evidence.runs import ROOT
from orce.artefacts import files
from orce.evaluation.metrics import METRICS
from orce.reports import figures
from orce.reports.figures import palette

DOCS = ROOT / "docs"
PAGE, PICTURE = Path("evidence", "decisive.md"), Path("images", "decisive-contrasts.png")
CURVE = Path("images", "decisive-labels.png")
SUMS = "SHA256SUMS"
PRIMARY = {
    "best - probe_judge": "best trained judge\n- probe on the same prompt",
    "stack-best - free": "free signal + best trained judge\n- free signal alone",
    "orce - sft_all": "ORCE\n- SFT on all labels",
    "ordered - soft": "soft labels + order\n- soft labels",
}
COLOURS = {
    "wikidata": palette.BLUE, "wikidata-few": palette.SKY, "wikidata-shift": palette.GREEN, "exams": palette.VERMILLION, "cruxeval": palette.PURPLE,
}  # fmt: skip
MARKERS = "PDos^v"  # by seed; hollow within exam
BY_LABELS = {"mean of 320 labels": "320 labels", "mean of 960 labels": "960", "wikidata-5": "2,000"}
ANSWERS = {  # contrasts: what they say in words
    "sft_all - probe_judge": "SFT on all labels - probe",
    "soft - probe_judge": "soft labels - probe",
    "ordered - probe_judge": "soft labels + order - probe",
    "orce - probe_judge": "ORCE - probe",
    "best - probe_judge": "judge that validation chose - probe",
    "orce - sft_all": "ORCE - SFT on all labels",
    "orce - sft": "ORCE - its own warm start: what the reward adds",
    "sft - sft_all": "SFT on half of the labels - on all",
    "ordered - soft": "what the order term adds to soft labels",
    "stack-best - free": "free signal + best judge - free signal",
}
LABELS = {  # questions with labels that a cell's judges and probes were trained on
    "wikidata-2": 320, "wikidata-3": 320, "wikidata-4": 960, "wikidata-5": 2000, "wikidata-6": 960, "wikidata-few-4": 320, "wikidata-shift-3": 320,
    "exams-2": 160, "exams-3": 160, "cruxeval-3": 160,
}  # fmt: skip
JUDGES = {  # arm: its name and colour in the picture over labels
    "sft_all": ("SFT on all labels", palette.ORANGE),
    "orce": ("ORCE", palette.BLUE),
    "soft": ("soft labels", palette.GREEN),
    "ordered": ("soft labels + order", palette.PURPLE),
}


def write(docs: Path = DOCS, items: Path = ITEMS) -> None:
    """Fill the page's tables and draw its picture."""
    differences = contrasts(items)
    page = docs / PAGE
    parts = {
        "labels": labels_table(differences),
        "arms": arms_table(items),
        "contrasts": contrasts_table(differences),
    }
    text = fill(page.read_text(encoding="utf-8"), parts, page)
    with files.atomic(page) as handle:
        handle.write(text)
    with style.context(figures.STYLE):
        figures.save(forest(differences), docs / PICTURE)
        figures.save(over_labels(differences), docs / CURVE)


def arms(folder: Path = ITEMS) -> Iterator[list]:
    """[cell, arm, n, AUROC, AURC, E-AURC, ECE, Brier, AUROC within group] of every arm; ranks have no calibration."""
    for cell, (items, said) in read(folder).items():
        mixed = [group for _, group in items.groupby("group") if group.correct.nunique() > 1]
        names = ("auroc", "aurc", "e_aurc") if "within" in cell else ("auroc", "aurc", "e_aurc", "ece", "brier")
        for arm in said.drop(columns="free"):
            values = [METRICS[name](said[arm], items.correct) for name in names] + [None] * (5 - len(names))
            inside = np.array([METRICS["auroc"](said[arm][group.index], group.correct) for group in mixed], float)
            yield [cell, arm, len(items), *values, np.average(inside, weights=[*map(len, mixed)])]


def arms_table(folder: Path = ITEMS) -> str:
    head = ["cell", "arm", "n", "AUROC", "AURC", "E-AURC", "ECE", "Brier", "AUROC within group"]
    number = lambda value: "--" if value is None else f"{value:.3f}"
    return table(head, ([cell, arm, str(n), *map(number, rest)] for cell, arm, n, *rest in arms(folder)))


def contrasts_table(differences: pd.DataFrame) -> str:
    head = ["cell", "contrast", "difference of AURC", "p", "Holm's p", "verdict"]
    rows = (
        [cell, name, interval(value, low, high), f"{p:.4f}", f"{holm:.4f}", verdict]
        for cell, name, value, low, high, p, holm, verdict in differences.reset_index().itertuples(index=False)
    )
    return table(head, rows)


def labels_table(differences: pd.DataFrame) -> str:
    """The contrasts on Wikidata by the number of labels."""
    found = {
        (cell, name): f"{interval(value, low, high)} {verdict}"
        for cell, name, value, low, high, _, _, verdict in differences.reset_index().itertuples(index=False)
    }
    rows = ([words, *(found.get((cell, name), "not run") for cell in BY_LABELS)] for name, words in ANSWERS.items())
    return table(["difference of AURC", *BY_LABELS.values()], rows)


def interval(value: float, low: float, high: float) -> str:
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def table(head: list[str], rows) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def forest(differences: pd.DataFrame) -> Figure:
    """The primary contrasts on one scale: a mark with its interval for each cell; grey for the margin."""
    shown = differences[differences.index.isin([*PRIMARY], level=1)].drop([*MEANS, *CHANGES], level=0, errors="ignore")
    cells = sorted({*shown.index.get_level_values(0)}, key=lambda cell: (list(COLOURS).index(kind(cell)[0]), cell))
    figure = Figure(figsize=(palette.PAGE, 1 + 0.13 * len(PRIMARY) * (len(cells) + 1)))
    axes = figure.subplots()
    axes.axvspan(-MARGIN, MARGIN, color=palette.GREY, alpha=0.25, linewidth=0)
    axes.axvline(0, color=palette.GREY, linewidth=0.8)
    for number, cell in enumerate(cells):
        dataset, seed = kind(cell)
        look: dict[str, Any] = {
            "color": COLOURS[dataset],
            "marker": MARKERS[seed % len(MARKERS)],
            "markersize": 4,
            "linestyle": "",
        }
        look |= {"markerfacecolor": "white"} if "within" in cell else {}
        axes.plot([], [], label=f"{cell} ({LABELS[cell.partition(' ')[0]]} labels)", **look)
        of = shown.loc[cell]
        y = [list(PRIMARY).index(name) + (number - (len(cells) - 1) / 2) / (len(cells) + 1) for name in of.index]
        axes.hlines(y, of.low, of.high, color=COLOURS[dataset], linewidth=1)
        axes.plot(of.difference, y, **look)
    axes.set_yticks(range(len(PRIMARY)), [*PRIMARY.values()])
    axes.set(ylim=(len(PRIMARY) - 0.5, -0.5))
    axes.set_xlabel("Difference of AURC with its 95 % interval; left of 0 the first is better; grey: the margin")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def over_labels(differences: pd.DataFrame) -> Figure:
    """Each trained judge less the probe in the cells of Wikidata, from few labels to many: a mark with its interval."""
    cells = [cell for cell in LABELS if kind(cell)[0] in ("wikidata", "wikidata-few")]
    cells = sorted({*cells} & {*differences.index.get_level_values(0)}, key=lambda cell: (LABELS[cell], kind(cell)[1]))
    figure = Figure(figsize=(palette.PAGE, 2.6))
    axes = figure.subplots()
    axes.axhline(0, color=palette.GREY, linewidth=0.8)
    for number, (arm, (name, colour)) in enumerate(JUDGES.items()):
        of = differences.xs(f"{arm} - probe_judge", level=1).reindex(cells)
        x = np.arange(len(cells)) + (number - 1.5) / 8
        axes.vlines(x, of.low, of.high, color=colour, linewidth=1)
        axes.plot(x, of.difference, "o", color=colour, markersize=4, label=name)
    axes.set_xticks(range(len(cells)), [f"{LABELS[cell]:,} labels\n{cell}" for cell in cells])
    axes.set(ylabel="AURC less the probe's;\nbelow 0 the judge is better")
    axes.legend()
    return figure


def kind(cell: str) -> tuple[str, int]:
    """The dataset and the seed of a cell's name."""
    dataset, _, seed = cell.partition(" ")[0].rpartition("-")
    return dataset, int(seed)


def sums(folder: Path = ITEMS) -> str:
    """The lines of SHA256SUMS, which `sha256sum -c` reads."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.glob("*.gz"))
    )
