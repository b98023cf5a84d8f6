"""The paper's printed numbers next to ours: inside our 95 % interval, outside it, undefined, or not run.

A published cell is recognised by its metrics.json, results/{dataset}/{model}/{method}/, whatever the config calls its
tables: a demo with an ablation of its own on another dataset is not compared with the paper's ablation.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET

from orce.config import layout
from orce.config.schema import Table
from orce.errors import BadInput
from orce.methods import Registry
from orce.reports.cell_metrics import CellMetrics
from orce.reports.tables import render
from orce.stage_settings import Resolved, Row

PUBLISHED_FOLDER = Path(__file__).with_name("published")
MODELS = {"llama3-8b": "LLAMA-3 8B", "qwen3-8b": "Qwen3 8B", "mistral-7b": "Mistral 7B"}


def _paper(kind: Literal["main", "ablation", "transfer"], dataset: str, models: list[str], **more: Any) -> Resolved:
    table = Table(kind=kind, dataset=dataset, models=models, source=more.pop("source", UNSET))
    return layout.resolved(table, Registry(), **more)


SPECS = {
    "mmlu": _paper("main", "mmlu", list(MODELS)),
    "drop": _paper("main", "drop", list(MODELS), metric="f1"),
    "reclor": _paper("main", "reclor", list(MODELS)),
    "logiqa": _paper("main", "logiqa", list(MODELS)),
    "ablation": _paper("ablation", "mmlu", ["llama3-8b"]),
    "transfer": _paper("transfer", "mmlu", ["qwen3-8b", "mistral-7b"], source="llama3-8b"),
}
# The paper does not print the sizes; its correlations and p-values imply them (tests/test_published.py).
SIZES = {"mmlu": 14042, "drop": 9536, "reclor": 500, "logiqa": 1572}
# Our key for a published column, if it differs: the paper's E-AURC subtracts the analytic optimum.
OUR_KEYS = {"e_aurc": "e_aurc_analytic"}
# The paper rounds to three decimals, so its value may lie this far from what it prints.
ROUNDING = 0.0005

INSIDE, OUTSIDE, NO_INTERVAL = "inside the interval", "outside by", "no interval"
UNDEFINED, NOT_RUN = "undefined", "not run"


@dataclass(frozen=True)
class Compared:
    """One printed number of the paper, compared with this run."""

    table: str
    model: str
    method: str
    metric: str
    published: str
    reproduced: float | None
    low: float | None
    high: float | None
    difference: float | None
    verdict: str
    n: int | None
    n_published: int


Printed = dict[str, str]  # {column: text} of a row


def published(name: str) -> dict[tuple[str, str], Printed]:
    """One of the paper's tables as printed: (model, method) to {column: text}, with its bold and underlined columns."""
    path = PUBLISHED_FOLDER / f"{name}.csv"
    if not path.exists():
        raise BadInput(f"{path} does not exist; the published tables belong to the repository")
    with open(path, encoding="utf-8", newline="") as handle:
        return {(row.pop("model"), row.pop("method")): row for row in csv.DictReader(handle)}


def compare(metrics_by_path: render.Metrics, root: str = "results") -> list[Compared]:
    """Every published number but the p-values, which depend on the sample's size, in the order of the paper."""
    return [
        _compare_cell(name, spec.dataset, row, column.key, printed[row.model, row.method], metrics)
        for name, spec in SPECS.items()
        for printed in [published(name)]
        for row in spec.rows
        for metrics in [metrics_by_path.get(layout.cell_path(spec.dataset, row, root))]
        for column in layout.columns(spec)
        if column.key != "p"
    ]


def summary(compared: list[Compared]) -> str:
    """One sentence: how many published values are inside, outside, not run."""
    counts = Counter(_kind(one.verdict) for one in compared)
    if counts[NOT_RUN] == len(compared):
        return f"None of the paper's {len(compared)} values was run with this configuration."
    rest = "".join(f", {counts[kind]} {kind}" for kind in (UNDEFINED, NO_INTERVAL) if counts[kind])
    return (
        f"Of the paper's {len(compared)} values, {counts[INSIDE]} are inside the reproduced interval, "
        f"{counts[OUTSIDE]} outside, {counts[NOT_RUN]} not run{rest}.{_size_warning(compared)}"
    )


def of_run(compared: list[Compared]) -> list[Compared]:
    """The published values whose cells this run has."""
    return [one for one in compared if one.verdict != NOT_RUN]


def to_csv(compared: list[Compared]) -> str:
    """comparison.csv: one line per published value; our numbers are not rounded."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Compared)])
    writer.writerows(astuple(one) for one in compared)
    return text.getvalue()


def to_tex(compared: list[Compared]) -> str:
    """comparison.tex: the paper's tables again, each value next to ours and its interval."""
    environment = render.tex_environment()
    environment.filters["pair"] = _tex_pair
    return environment.get_template("comparison.tex.j2").render(tables=in_tables(compared), summary=summary(compared))


def to_html(compared: list[Compared]) -> str:
    """comparison.html: one section per table of the paper, one line per value."""
    tables = [(name, list(group)) for name, group in groupby(compared, key=lambda one: one.table)]
    template = render.html_environment().get_template("comparison.html.j2")
    return template.render(tables=tables, summary=summary(compared))


def _compare_cell(
    table: str, dataset: str, row: Row, key: str, printed: Printed, metrics: CellMetrics | None
) -> Compared:
    value = low = high = difference = n = None
    verdict = NOT_RUN
    if metrics is not None:
        ours = OUR_KEYS.get(key, key)
        value, n = metrics.value(ours), metrics.n
        low, high = metrics.interval(ours) or (None, None)
        difference = None if value is None else value - float(printed[key])
        verdict = _verdict(float(printed[key]), value, low, high)
    return Compared(
        table, row.model, row.method, key, printed[key], value, low, high, difference, verdict, n, SIZES[dataset]
    )


def _verdict(printed: float, value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return UNDEFINED
    if low is None or high is None:
        return NO_INTERVAL
    distance = max(low - printed, printed - high)
    # The slack covers binary fractions: 0.1705 - 0.17 exceeds 0.0005 by 1e-17.
    return INSIDE if distance <= ROUNDING + 1e-9 else f"{OUTSIDE} {distance:.3f}"


def _kind(verdict: str) -> str:
    return OUTSIDE if verdict.startswith(OUTSIDE) else verdict


def _size_warning(compared: Iterable[Compared]) -> str:
    """A run on another number of items answers another question than the paper's."""
    other = sorted({one.table for one in compared if one.n not in (None, one.n_published)})
    return f" The number of test items differs from the paper's in: {', '.join(other)}." if other else ""


@dataclass(frozen=True)
class Pair:
    """A published value, ours, and our interval; `outside` if the published value is not in it."""

    published: str
    reproduced: str
    interval: str
    outside: bool

    @classmethod
    def of(cls, one: Compared) -> "Pair":
        known = one.low is not None and one.reproduced is not None
        return cls(
            one.published,
            NOT_RUN if one.verdict == NOT_RUN else render.decimals(one.reproduced),
            f"[{render.decimals(one.low)}, {render.decimals(one.high)}]" if known else "",
            _kind(one.verdict) == OUTSIDE,
        )


@dataclass(frozen=True)
class Line:
    label: str
    cells: list[Pair]


@dataclass(frozen=True)
class Block:
    """A model's lines; height: in lines of print, as a value stands over its interval."""

    label: str
    lines: list[Line]
    height: int


@dataclass(frozen=True)
class Published:
    """A table of the paper with each value next to ours."""

    name: str
    titles: list[str]
    blocks: list[Block]


def in_tables(compared: list[Compared]) -> list[Published]:
    """The published values as tables to print."""
    return [_table(name, list(group)) for name, group in groupby(compared, key=lambda one: one.table)]


def _table(name: str, compared: list[Compared]) -> Published:
    blocks = [_block(name, model, list(group)) for model, group in groupby(compared, key=lambda one: one.model)]
    titles = [render.SHORT_TITLES.get(column.key, column.title) for column in layout.columns(SPECS[name])]
    titles.remove(render.SHORT_TITLES["p"])
    return Published(layout.DATASET_LABELS.get(name, name), titles, blocks)


def _block(name: str, model: str, compared: list[Compared]) -> Block:
    labels = {row.method: row.label for row in SPECS[name].rows if row.model == model}
    lines = [
        Line(labels[method], [Pair.of(one) for one in group])
        for method, group in groupby(compared, key=lambda one: one.method)
    ]
    return Block(MODELS[model], lines, sum(2 if any(cell.interval for cell in line.cells) else 1 for line in lines))


def _tex_pair(cell: Pair) -> str:
    pair = rf"{cell.published} $\to$ {cell.reproduced}"
    if not cell.interval:
        return pair
    interval = rf"\textbf{{{cell.interval}}}" if cell.outside else cell.interval
    return rf"\makecell{{{pair}\\{{}}{interval}}}"  # {} keeps [ from being read as an argument of \\
