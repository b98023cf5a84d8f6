"""The paper's printed numbers next to ours: inside our 95 % interval, outside it, undefined, or not
run.

A published cell is recognised by its metrics.json, results/{dataset}/{model}/{method}/, whatever
the config calls its tables: a demo with an ablation of its own on another dataset is not compared
with the paper's ablation.
"""

import csv
import io
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET

from orce.artefacts.tables import write_csv
from orce.config import layout
from orce.methods import Registry
from orce.reports.metrics_file import CellMetrics
from orce.settings.schema import Table

PUBLISHED = Path(__file__).with_name("published")
MODELS = {"llama3-8b": "LLAMA-3 8B", "qwen3-8b": "Qwen3 8B", "mistral-7b": "Mistral 7B"}


def _paper(
    kind: Any, dataset: str, models=tuple(MODELS), source: Any = UNSET, metric: str = "accuracy"
):
    table = Table(kind=kind, dataset=dataset, models=[*models], source=source)
    return layout.resolve(table, Registry(), metric=metric)


SPECS = {
    "mmlu": _paper("main", "mmlu"),
    "drop": _paper("main", "drop", metric="f1"),
    "reclor": _paper("main", "reclor"),
    "logiqa": _paper("main", "logiqa"),
    "ablation": _paper("ablation", "mmlu", ["llama3-8b"]),
    "transfer": _paper("transfer", "mmlu", ["qwen3-8b", "mistral-7b"], source="llama3-8b"),
}
# Of the paper's test sets. It does not print them; its correlations and p-values imply them
# (tests/test_published.py).
SIZES = {"mmlu": 14042, "drop": 9536, "reclor": 500, "logiqa": 1572}
# Our key for a published column, if it differs: the paper's E-AURC subtracts the analytic optimum.
OUR_KEYS = {"e_aurc": "e_aurc_analytic"}
ROUNDING = 0.0005  # how far the paper's value may lie from its three printed decimals
SHORT_TITLES = {"rho": "Spearman", "p": "p-value"}
INSIDE = "inside the interval"
OUTSIDE = "outside by"
NO_INTERVAL = "no interval"
UNDEFINED = "undefined"
NOT_RUN = "not run"


class Compared(NamedTuple):
    """One printed number of the paper, compared with this run."""

    table: str
    model: str
    method: str
    metric: str
    published: str
    reproduced: float | None = None
    low: float | None = None
    high: float | None = None
    difference: float | None = None
    verdict: str = NOT_RUN
    n: int | None = None
    n_published: int = 0

    def with_ours(self, metrics: CellMetrics) -> "Compared":
        """The comparison with the number of this run."""
        key = OUR_KEYS.get(self.metric, self.metric)
        value = metrics.value(key)
        low, high = metrics.interval(key) or (None, None)
        ours = self._replace(reproduced=value, low=low, high=high, n=metrics.n)
        if value is None:
            return ours._replace(verdict=UNDEFINED)
        published = float(self.published)
        verdict = NO_INTERVAL
        if low is not None and high is not None:
            distance = max(low - published, published - high)
            # The slack covers binary fractions: 0.1705 - 0.17 exceeds 0.0005 by 1e-17.
            verdict = INSIDE if distance <= ROUNDING + 1e-9 else f"{OUTSIDE} {distance:.3f}"
        return ours._replace(difference=value - published, verdict=verdict)

    def printed(self) -> dict[str, Any]:
        """{published, reproduced, interval, outside}, as the tables print them."""
        known = self.low is not None and self.reproduced is not None
        return {
            "published": self.published,
            "reproduced": NOT_RUN if self.verdict == NOT_RUN else decimals(self.reproduced),
            "interval": f"[{decimals(self.low)}, {decimals(self.high)}]" if known else "",
            "outside": self.verdict.startswith(OUTSIDE),
        }


def decimals(value: float | None, sign: str = "") -> str:
    """Three decimals as in the paper, and never a negative zero; -- for None. sign: "+" for
    differences.
    """
    return "--" if value is None else f"{round(value, 3) + 0.0:{sign}.3f}"


def published(name: str) -> dict[tuple[str, str], dict[str, str]]:
    """One of the paper's tables as printed: (model, method) to {column: text}, with its bold and
    underlined columns.
    """
    table = {}
    with open(PUBLISHED / f"{name}.csv", encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            table[row.pop("model"), row.pop("method")] = row
    return table


def columns(name: str) -> list[layout.Column]:
    """The columns of a table that are compared: all but the p-values, which depend on the sample's
    size.
    """
    return [column for column in SPECS[name].columns if column.key != "p"]


def compare(metrics: Mapping[str, CellMetrics]) -> list[Compared]:
    """Every published number, in the order of the paper, with ours; metrics: by path."""
    compared = []
    for name, spec in SPECS.items():
        printed = published(name)
        size = SIZES[spec.dataset]
        for row in spec.rows:
            key = (row.model, row.method)
            ours = metrics.get(layout.metrics_path(spec.dataset, row))
            for column in columns(name):
                text = printed[key][column.key]
                value = Compared(name, *key, column.key, text, n_published=size)
                # the paper's confidences are stated, whatever this run's readout is
                compared.append(value.with_ours(ours.stated or ours) if ours else value)
    return compared


def in_this_run(compared: list[Compared]) -> list[Compared]:
    """The published values whose cells this run has."""
    return [value for value in compared if value.verdict != NOT_RUN]


def summary(compared: list[Compared]) -> str:
    """One sentence: how many published values are inside, outside, not run; one more where the test
    sets differ in size.
    """
    counts = Counter(
        OUTSIDE if value.verdict.startswith(OUTSIDE) else value.verdict for value in compared
    )
    n = len(compared)
    if counts[NOT_RUN] == n:
        return f"None of the paper's {n} values was run with this configuration."
    text = (
        f"Of {n} values of the paper, {counts[INSIDE]} are inside the reproduced interval, "
        f"{counts[OUTSIDE]} outside, {counts[NOT_RUN]} not run"
    )
    for verdict in (UNDEFINED, NO_INTERVAL):
        if counts[verdict]:
            text += f", {counts[verdict]} {verdict}"
    text += "."
    tables = sorted({value.table for value in compared if value.n not in (None, value.n_published)})
    if tables:
        text += f" The number of test items differs from the paper's in: {', '.join(tables)}."
    return text


def to_csv(compared: list[Compared]) -> str:
    """comparison.csv: one line per published value; our numbers are not rounded."""
    text = io.StringIO()
    write_csv(text, [Compared._fields, *compared])
    return text.getvalue()


def in_tables(compared: list[Compared]) -> list[dict[str, Any]]:
    """The published values as tables to print: {name, titles, blocks: [{label, lines: [{label,
    cells}], height}]}.

    height: in lines of print, as a value stands over its interval.
    """
    tables = []
    for name, in_table in groupby(compared, key=attrgetter("table")):
        labels = {row[:2]: row.label for row in SPECS[name].rows}
        blocks = []
        for model, in_block in groupby(in_table, key=attrgetter("model")):
            lines = []
            height = 0
            for method, in_line in groupby(in_block, key=attrgetter("method")):
                cells = [value.printed() for value in in_line]
                lines.append({"label": labels[model, method], "cells": cells})
                height += 2 if any(cell["interval"] for cell in cells) else 1
            blocks.append({"label": MODELS[model], "lines": lines, "height": height})
        titles = [SHORT_TITLES.get(column.key, column.title) for column in columns(name)]
        label = layout.DATASET_LABELS.get(name, name)
        tables.append({"name": label, "titles": titles, "blocks": blocks})
    return tables
