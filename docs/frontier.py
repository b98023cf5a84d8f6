"""Draw docs/images/frontier.png: AUROC of every method against the passes that it needs (docs/which.md).

From the stored metrics and needs.csv of docs/field: what a method reads of the answer LLM, its passes over it for one question
besides the greedy answer's, its statements by a judge, and the graded questions that it is fitted on.
"""

import textwrap
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

DOCS = Path(__file__).parent
PICTURE = DOCS / "images" / "frontier.png"
COLORS = {"text": "#0072B2", "log-probabilities": "#D55E00", "weights": "#009E73"}
STYLE = {
    "savefig.dpi": 200, "figure.constrained_layout.use": True, "font.family": ["STIXGeneral", "DejaVu Sans"], "font.size": 8,
    "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True,
    "grid.color": "#e3e3e3", "grid.linewidth": 0.5, "legend.frameon": False,
}  # fmt: skip


def stored() -> pd.DataFrame:
    """A line for each method of each cell: label, value, low and high of its AUROC, access, passes, judge, labels."""
    metrics = pd.concat([pd.read_csv(DOCS / "field" / f"{name}.csv") for name in ("metrics", "wikidata")])
    needs = pd.read_csv(DOCS / "field" / "needs.csv")
    areas = metrics[(metrics["metric"] == "auroc") & metrics["value"].notna()]
    return areas.merge(needs, on="method", validate="many_to_one").sort_values("value", ascending=False, kind="stable")


def draw(methods: pd.DataFrame) -> Figure:
    """A panel for each cell; colour: access; open circles: fitted on labels."""
    figure = Figure(figsize=(6.9, 3.3))
    cells = list(dict.fromkeys(methods.sort_index()["dataset"]))
    panels = figure.subplots(1, len(cells), sharey=True)
    for axes, dataset in zip(panels, cells, strict=True):
        panel(axes, methods[methods["dataset"] == dataset])
        axes.set_title(f"{dataset}, smollm2", fontsize=8)
        axes.set_xlabel("passes over a model, besides the answer's", fontsize=7)
    panels[0].set_ylabel("AUROC", fontsize=8)
    panels[0].set_ylim(top=1.12)  # room for the names
    panels[0].set_yticks([tick / 10 for tick in range(11) if tick / 10 > panels[0].get_ylim()[0]])
    circle = {"marker": "o", "linewidth": 0}
    marks = [Line2D([], [], color=color, label=access, **circle) for access, color in COLORS.items()]
    marks.append(Line2D([], [], color="black", fillstyle="none", label="needs labels", **circle))
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), fontsize=7)
    return figure


def panel(axes, methods: pd.DataFrame) -> None:
    """A column for each number of passes, in it the methods from best to worst; the best and ORCE by name."""
    for column, (_, group) in enumerate(methods.groupby(methods["passes"] + methods["judge"])):
        for i, method in enumerate(group.itertuples()):
            x = column + 0.85 * (i + 0.5) / len(group)
            color, fill = COLORS[method.access], "none" if method.labels else "full"
            axes.plot([x, x], [method.low, method.high], color=color, linewidth=0.7, alpha=0.6)
            axes.plot(x, method.value, "o", color=color, markersize=4.5, fillstyle=fill)
            label = {"text": textwrap.fill(method.label, 11, break_long_words=False), "fontsize": 6}
            if method.method == "orce":
                axes.scatter(x, method.value, s=64, facecolors="none", edgecolors="black", zorder=4)
            if i == 0:
                axes.annotate(xy=(x, method.high), xytext=(-4, 2), textcoords="offset points", va="bottom", **label)
            elif method.method == "orce":
                axes.annotate(
                    xy=(x, method.low), xytext=(0, -2), textcoords="offset points", ha="center", va="top", **label
                )
    columns = sorted(set(methods["passes"] + methods["judge"]))
    axes.axhline(0.5, color="#767676", linewidth=0.7, linestyle=(0, (4, 2)))
    axes.set_xlim(-0.05, len(columns) + 0.1)
    axes.set_xticks([column + 0.42 for column in range(len(columns))], [str(passes) for passes in columns])
    axes.tick_params(labelsize=6)


if __name__ == "__main__":
    with mpl.rc_context(STYLE):
        draw(stored()).savefig(PICTURE, metadata={"Software": None})
