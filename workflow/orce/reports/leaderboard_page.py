"""Every metric of every cell: a tidy table, one value a line, and a page that sorts and filters it without a network."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import NamedTuple

import pandas as pd

from orce.evaluation.metrics import EXTRA, METRICS
from orce.reports.cell_metrics import CellMetrics
from orce.reports.tables import render

CELL = ["dataset", "model", "method", "label"]
# Columns of the page, each with whether a high value is good; None where neither is.
BETTER: dict[str, bool | None] = {
    "accuracy": True, "f1": True, "ece": False, "ece_15": False, "adaptive_ece": False, "smooth_ece": False,
    "brier": False, "nll": False, "spearman": True, "spearman_surrogate": True, "auroc": True, "aupr": True,
    "aupr_error": True, "aurc": False, "e_aurc": False, "e_aurc_analytic": False, "augrc": False, "auarc": True,
    "prr": True, "unparsed_answers": None, "unparsed_confidences": None,
}  # fmt: skip
TITLES = {"ece": "ECE", "ece_15": "ECE, 15 bins", "brier": "Brier", "nll": "NLL", "aupr": "AUPR", "auroc": "AUROC",
          "aurc": "AURC", "e_aurc": "E-AURC", "augrc": "AUGRC", "auarc": "AUARC", "prr": "PRR", "f1": "F1"}  # fmt: skip
PICTURES = {"reliability": "reliability", "risk-coverage": "risk and coverage", "histogram": "histogram"}


class Value(NamedTuple):
    """A line of the table; reason: why the value or its interval is undefined."""

    dataset: str
    model: str
    method: str
    label: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    reason: str | None


def rows(metrics: CellMetrics, extra: CellMetrics, label: str) -> Iterator[Value]:
    """The lines of one cell, from its metrics.json and its extra.json."""
    cell = (metrics.dataset, metrics.model, metrics.method, label)
    for source, names in ((metrics, [*METRICS, "spearman_surrogate", "f1"]), (extra, [*EXTRA])):
        for name in names:
            if name in source.values:
                low, high = source.interval(name) or (None, None)
                why = source.reasons.get(name) or (source.reasons.get(f"{name} interval") if low is None else None)
                yield Value(*cell, name, source.values[name], low, high, metrics.n, why)
    for what, count in asdict(metrics.n_unparsed).items():
        yield Value(*cell, f"unparsed_{what}s", float(count), None, None, metrics.n, None)


def table(rows: list[Value]) -> pd.DataFrame:
    """The tidy table, one line for each metric of each cell; an undefined value is missing, with its reason."""
    return pd.DataFrame(rows, columns=pd.Index(Value._fields)).astype({"value": float, "low": float, "high": float})


def to_csv(table: pd.DataFrame) -> str:
    """The table with every digit of its numbers."""
    return table.to_csv(index=False, lineterminator="\n")


def page(table: pd.DataFrame, models: dict[str, str]) -> str:
    """The HTML of the page: a line for each cell, a column for each metric; models: {name: label}."""
    shown = [name for name in BETTER if table.loc[table["metric"] == name, "value"].notna().any()]
    lines = [
        {"cell": part.iloc[0][CELL].to_dict(), "values": {one["metric"]: one for one in part.to_dict("records")}}
        for _, part in table.groupby(CELL, sort=False)
    ]
    columns = [(name, TITLES.get(name, name.replace("_", " ")), BETTER[name]) for name in shown]
    choices = {key: sorted(table[key].unique()) for key in ("dataset", "model")}
    found = {"columns": columns, "lines": lines, "choices": choices, "models": models, "pictures": PICTURES}
    return render.html_environment().get_template("leaderboard.html.j2").render(**found)
