"""Which confidence for which price: how well each row ranks right above wrong answers, beside what it needs."""

import csv
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from orce.errors import BadInput
from orce.reports.figures import palette
from orce.stage_settings import Need

METRICS = {"auroc": "AUROC", "aurc": "AURC", "prr": "PRR", "ece": "ECE"}
WIDE = 33  # characters of names beside each other: two panels have 16 for a name, three 11
COLORS = {
    "text": palette.BLUE,
    "log-probabilities": palette.VERMILLION,
    "weights": palette.GREEN,
    "given": palette.GREY,
}


Interval = tuple[float, float | None, float | None]  # value, low, high
Needs = dict[str, dict[str, Need]]  # {dataset: {row: what it needs}}


class Line(msgspec.Struct):
    """A line of the leaderboard's metrics.csv, as text."""

    dataset: str
    model: str
    method: str
    label: str
    metric: str
    value: str
    low: str
    high: str


@dataclass
class Row:
    """A row of a cell: its label, and the METRICS that are defined."""

    label: str
    metrics: dict[str, Interval] = field(default_factory=dict)

    @property
    def auroc(self) -> Interval:
        return self.metrics["auroc"]


Cells = dict[str, dict[str, Row]]  # {dataset/model: {method: row}}


def read(path) -> Cells:
    """The rows of the leaderboard's metrics.csv."""
    cells: Cells = {}
    with open(path, encoding="utf-8", newline="") as handle:
        for line in (msgspec.convert(one, Line) for one in csv.DictReader(handle)):
            cell = cells.setdefault(f"{line.dataset}/{line.model}", {})
            row = cell.setdefault(line.method, Row(line.label))
            if line.metric in METRICS and line.value:
                low, high = (float(text) if text else None for text in (line.low, line.high))
                row.metrics[line.metric] = (float(line.value), low, high)
    if not cells:
        raise BadInput(f"{path}: no rows; expected the leaderboard's metrics.csv")
    return cells


def table(cells: Cells, needs: Needs) -> str:
    """A Markdown table a cell, best AUROC first."""
    return "\n\n".join(_one(name, cells[name], needs[name.partition("/")[0]]) for name in cells) + "\n"


def _one(name: str, rows: dict[str, Row], needs: dict[str, Need]) -> str:
    lines = [f"### {name}", ""]
    lines += [f"| row | {' | '.join(METRICS.values())} | access | passes | judge | labels |", "| --- " * 9 + "|"]
    for method, row in sorted(rows.items(), key=lambda one: -one[1].metrics.get("auroc", (-1,))[0]):
        need = needs[method]
        values = " | ".join(_shown(row.metrics.get(metric)) for metric in METRICS)
        lines.append(f"| {row.label} | {values} | {need.access} | {need.passes} | {need.judged} | {need.labels} |")
    return "\n".join(lines)


def _shown(value: Interval | None) -> str:
    if value is None:
        return "--"
    number, low, high = value
    return f"{number:.3f}" + (f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else "")


def draw(cells: Cells, needs: Needs):
    """AUROC with its interval against passes, a panel a cell; colour: access, filled: without labels."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(palette.PAGE, 3.3))
    every = figure.subplots(1, len(cells), sharey=True, squeeze=False)[0]
    for axes, (name, rows) in zip(every, cells.items(), strict=True):
        _panel(axes, rows, needs[name.partition("/")[0]], WIDE // max(2, len(cells)))
        axes.set_title(name.replace("/", ", "), fontsize=8)
        axes.set_xlabel("passes over a model, besides the answer's", fontsize=7)
    every[0].set_ylabel("AUROC", fontsize=8)
    every[0].set_ylim(top=1.12)  # room for the names
    every[0].set_yticks([tick / 10 for tick in range(11) if tick / 10 > every[0].get_ylim()[0]])
    used = dict.fromkeys(need.access for one in needs.values() for need in one.values())
    marks = [Line2D([], [], color=COLORS[name], marker="o", linewidth=0, label=name) for name in used]
    open_mark = Line2D([], [], color=palette.BLACK, marker="o", fillstyle="none", linewidth=0, label="needs labels")
    figure.legend(handles=[*marks, open_mark], loc="outside lower center", ncols=len(marks) + 1, fontsize=7)
    return figure


def _panel(axes, rows: dict[str, Row], needs: dict[str, Need], wide: int) -> None:
    """A column for each number of passes; in it the rows from best to worst, the best and the paper's by name."""
    columns: dict[int, list[str]] = {}
    for name in sorted((name for name in rows if "auroc" in rows[name].metrics), key=lambda name: -rows[name].auroc[0]):
        columns.setdefault(needs[name].passes + needs[name].judged, []).append(name)
    for column, cost in enumerate(sorted(columns)):
        for place, name in enumerate(columns[cost]):
            x = column + 0.85 * (place + 0.5) / len(columns[cost])
            _mark(axes, x, rows[name].auroc, needs[name])
            if name == "orce":
                axes.scatter(x, rows[name].auroc[0], s=64, facecolors="none", edgecolors=palette.BLACK, zorder=4)
            if place == 0 or name == "orce":
                _name(axes, x, _folded(rows[name].label, wide), rows[name].auroc, above=place == 0)
    axes.axhline(0.5, color=palette.GREY, linewidth=0.7, linestyle=(0, (4, 2)))
    axes.set_xlim(-0.05, len(columns) + 0.1)
    axes.set_xticks([column + 0.42 for column in range(len(columns))], [str(cost) for cost in sorted(columns)])
    axes.tick_params(labelsize=6)


def _folded(label: str, wide: int) -> str:
    return textwrap.fill(label, wide, break_long_words=False)


def _name(axes, x: float, label: str, auroc: Interval, above: bool) -> None:
    """The row's label beyond the end of its interval, as narrow as a column."""
    value, low, high = auroc
    end = high if above else low
    at, offset = ({"ha": "left", "va": "bottom"}, (-4, 2)) if above else ({"ha": "center", "va": "top"}, (0, -2))
    place = (x, value if end is None else end)
    axes.annotate(label, place, xytext=offset, textcoords="offset points", fontsize=6, **at)


def _mark(axes, x: float, auroc: Interval, need: Need) -> None:
    value, low, high = auroc
    color = COLORS[need.access]
    if low is not None:
        axes.plot([x, x], [low, high], color=color, linewidth=0.7, alpha=0.6)
    axes.plot(x, value, "o", color=color, markersize=4.5, fillstyle="none" if need.labels else "full")


def write(metrics: str, needs: Needs, picture: str, page: str) -> None:
    """Draw the picture and write the table."""
    from matplotlib import style

    from orce.artefacts import files
    from orce.reports import figures

    cells = read(metrics)
    with style.context(figures.STYLE):
        figures.save(draw(cells, needs), Path(picture))
    with files.atomic(page) as handle:
        handle.write(table(cells, needs))
