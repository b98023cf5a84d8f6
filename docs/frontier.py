"""Draw docs/images/frontier.png: AUROC of every method, grouped by what it needs (docs/which.md).

From the stored metrics and needs.csv of docs/field: what a method reads of the answer LLM, its passes over it for one question
besides the greedy answer's, its statements by a judge, and the graded questions that it is fitted on. Calibrations are left out:
they hardly change a ranking.
"""

import math
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from orce.metrics.signs import mostly_unread

DOCS = Path(__file__).parent
PICTURE = DOCS / "images" / "frontier.png"
SETS = {"arithmetic": ("sums", "#0072B2", "o"), "worldfacts": ("countries", "#D55E00", "s"),
        "qa-wikidata": ("Wikidata", "#009E73", "D")}  # fmt: skip
STYLE = {
    "savefig.dpi": 200, "figure.constrained_layout.use": True, "font.family": ["STIXGeneral", "DejaVu Sans"], "font.size": 8,
    "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True,
    "axes.grid.axis": "x", "grid.color": "#e3e3e3", "grid.linewidth": 0.5, "legend.frameon": False,
}  # fmt: skip


def stored() -> pd.DataFrame:
    """A line for each method of each data set: value, low and high of its AUROC, whether more than a tenth of its confidences
    could not be read, and the group of the method. Of a row in which none could be read there is no AUROC, and no line."""
    metrics = pd.concat([pd.read_csv(DOCS / "field" / f"{name}.csv") for name in ("metrics", "wikidata")])
    needs = pd.read_csv(DOCS / "field" / "needs.csv")
    needs["group"] = [group(method) for method in needs.itertuples()]
    areas = metrics[(metrics["metric"] == "auroc") & ~metrics["method"].str.contains("+", regex=False)]
    areas = areas.dropna(subset=["value"])
    counts = metrics[metrics["metric"] == "unparsed_confidences"].set_index(["dataset", "method"])["value"]
    areas["unread"] = [mostly_unread(counts[row.dataset, row.method], row.n) for row in areas.itertuples()]
    return areas.merge(needs, on="method", validate="many_to_one")


def group(method) -> str:
    if method.access == "weights":
        return "Hidden states, graded questions"
    if method.access == "log-probabilities":
        return "Token probabilities and samples" if method.passes else "Token probabilities"
    if method.passes > 1:
        return "Samples"
    return "A trained statement, graded questions" if method.labels else "A prompted statement"


def draw(methods: pd.DataFrame) -> Figure:
    """A line for each method, in each group from best to worst by the demo's two sets; a dot and its interval for each data set."""
    means = methods[methods["dataset"] != "qa-wikidata"].groupby(["group", "method"])["value"].mean()
    best = means.groupby("group").max().sort_values(ascending=False)
    figure = Figure(figsize=(6.9, 6.8))
    axes = figure.subplots()
    left = math.floor(20 * methods["low"].min()) / 20  # no interval is cut
    heights, height = {}, 0.0
    for title in best.index:
        axes.text(left, height, title, fontweight="bold", va="center", bbox={"color": "white", "pad": 1})
        for method in means[title].sort_values(ascending=False).index:
            height -= 1
            heights[method] = height
        height -= 1.4
    for i, (dataset, (label, color, marker)) in enumerate(SETS.items()):
        rows = methods[methods["dataset"] == dataset]
        places = rows["method"].map(heights) + 0.22 * (1 - i)
        axes.hlines(places, rows["low"], rows["high"], color=color, linewidth=0.7, alpha=0.6)
        axes.plot(rows["value"], places, marker, color=color, markersize=3.6, label=label)
        unread = rows["unread"]
        axes.plot(rows["value"][unread], places[unread], marker, color=color, markersize=3.6, markerfacecolor="white")
    axes.axvline(0.5, color="#767676", linewidth=0.7, linestyle=(0, (4, 2)))
    axes.set_yticks([*heights.values()], [*heights], fontfamily="monospace", fontsize=7)  # as one types them
    axes.set_xlim(left, 1)
    axes.set_ylim(height + 0.8, 0.8)
    axes.set_xlabel("AUROC with its 95 % interval; 0.5 is chance")
    figure.legend(loc="outside upper right", ncols=len(SETS))
    return figure


if __name__ == "__main__":
    with mpl.rc_context(STYLE):
        draw(stored()).savefig(PICTURE, metadata={"Software": None})
