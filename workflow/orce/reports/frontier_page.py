"""Which confidence for which price: how well each row ranks right above wrong answers, beside what it needs."""

import csv
import textwrap
from pathlib import Path

from orce.errors import BadInput
from orce.reports.figures import palette

METRICS = {"auroc": "AUROC", "aurc": "AURC", "prr": "PRR", "ece": "ECE"}
NARROW = 16  # characters
COLORS = {
    "text": palette.BLUE,
    "log-probabilities": palette.VERMILLION,
    "weights": palette.GREEN,
    "given": palette.GREY,
}


def read(path) -> dict[str, dict[str, dict]]:
    """{dataset/model: {method: {metric: (value, low, high), "label": text}}} of the leaderboard's metrics.csv."""
    found: dict[str, dict[str, dict]] = {}
    with open(path, encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            cell = found.setdefault(f"{row['dataset']}/{row['model']}", {})
            method = cell.setdefault(row["method"], {"label": row["label"]})
            if row["metric"] in METRICS and row["value"]:
                numbers = (row[key] for key in ("value", "low", "high"))
                method[row["metric"]] = tuple(float(number) if number else None for number in numbers)
    if not found:
        raise BadInput(f"{path}: no rows; expected the leaderboard's metrics.csv")
    return found


def table(cells: dict[str, dict[str, dict]], needs: dict[str, dict]) -> str:
    """A Markdown table a cell, best AUROC first; needs: {dataset: {method: what it needs}}."""
    return "\n\n".join(_one(name, cells[name], needs[name.partition("/")[0]]) for name in cells) + "\n"


def _one(name: str, rows: dict[str, dict], needs: dict) -> str:
    lines = [f"### {name}", ""]
    lines += [f"| row | {' | '.join(METRICS.values())} | access | passes | judge | labels |", "| --- " * 9 + "|"]
    for method in sorted(rows, key=lambda method: -(rows[method].get("auroc") or (-1,))[0]):
        row, need = rows[method], needs[method]
        values = " | ".join(_shown(row.get(metric)) for metric in METRICS)
        lines.append(
            f"| {row['label']} | {values} | {need['access']} | {need['passes']} | {need['judged']} | {need['labels']} |"
        )
    return "\n".join(lines)


def _shown(value: tuple | None) -> str:
    if value is None:
        return "--"
    number, low, high = value
    return f"{number:.3f}" + (f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else "")


def draw(cells: dict[str, dict[str, dict]], needs: dict[str, dict]):
    """AUROC with its interval against passes, a panel a cell; colour: access, filled: without labels."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(palette.PAGE, 3.3))
    every = figure.subplots(1, len(cells), sharey=True, squeeze=False)[0]
    for axes, (name, rows) in zip(every, cells.items(), strict=True):
        _panel(axes, rows, needs[name.partition("/")[0]])
        axes.set_title(name.replace("/", ", "), fontsize=8)
        axes.set_xlabel("passes over a model, besides the answer's", fontsize=7)
    every[0].set_ylabel("AUROC", fontsize=8)
    every[0].set_ylim(top=1.12)  # room for the names
    every[0].set_yticks([tick / 10 for tick in range(11) if tick / 10 > every[0].get_ylim()[0]])
    used = dict.fromkeys(need["access"] for one in needs.values() for need in one.values())
    marks = [Line2D([], [], color=COLORS[name], marker="o", linewidth=0, label=name) for name in used]
    open_mark = Line2D([], [], color=palette.BLACK, marker="o", fillstyle="none", linewidth=0, label="needs labels")
    figure.legend(handles=[*marks, open_mark], loc="outside lower center", ncols=len(marks) + 1, fontsize=7)
    return figure


def _panel(axes, rows: dict[str, dict], needs: dict) -> None:
    """A column for each number of passes; in it the rows from best to worst, the best and the paper's by name."""
    columns: dict[int, list[str]] = {}
    for name in sorted((name for name in rows if "auroc" in rows[name]), key=lambda name: -rows[name]["auroc"][0]):
        columns.setdefault(needs[name]["passes"] + needs[name]["judged"], []).append(name)
    for column, cost in enumerate(sorted(columns)):
        for place, name in enumerate(columns[cost]):
            x = column + 0.85 * (place + 0.5) / len(columns[cost])
            _mark(axes, x, rows[name]["auroc"], needs[name])
            if place == 0 or name == "orce":
                _name(axes, x, rows[name]["label"], rows[name]["auroc"], above=place == 0)
    axes.axhline(0.5, color=palette.GREY, linewidth=0.7, linestyle=(0, (4, 2)))
    axes.set_xlim(-0.05, len(columns) + 0.1)
    axes.set_xticks([column + 0.42 for column in range(len(columns))], [str(cost) for cost in sorted(columns)])
    axes.tick_params(labelsize=6)


def _name(axes, x: float, label: str, auroc: tuple, above: bool) -> None:
    """The row's label beyond the end of its interval, as narrow as a column."""
    value, low, high = auroc
    end = high if above else low
    at, offset = ({"ha": "left", "va": "bottom"}, (-4, 2)) if above else ({"ha": "center", "va": "top"}, (0, -2))
    place = (x, value if end is None else end)
    axes.annotate(textwrap.fill(label, NARROW), place, xytext=offset, textcoords="offset points", fontsize=6, **at)


def _mark(axes, x: float, auroc: tuple, need: dict) -> None:
    value, low, high = auroc
    color = COLORS[need["access"]]
    if low is not None:
        axes.plot([x, x], [low, high], color=color, linewidth=0.7, alpha=0.6)
    axes.plot(x, value, "o", color=color, markersize=4.5, fillstyle="none" if need["labels"] else "full")


def write(metrics: str, needs: dict[str, dict], picture: str, page: str) -> None:
    """Draw the picture and write the table."""
    from matplotlib import style

    from orce.artefacts import files
    from orce.reports import figures

    cells = read(metrics)
    with style.context(figures.STYLE):
        figures.save(draw(cells, needs), Path(picture))
    with files.atomic(page) as handle:
        handle.write(table(cells, needs))
