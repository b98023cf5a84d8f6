"""The paper's tables: rows, columns, captions, and the metrics.json of every row.

A table is described by an entry of the config's ``tables`` section, called a spec here:

    kind     main, ablation or transfer (which rows)
    dataset  key of the dataset the rows were evaluated on
    models   keys of the foundation models, one block of rows each
    source   transfer only: key of the model whose confidence LLMs are reused
    metric   accuracy (default) or f1: the last column
    methods  its rows, if they differ from the paper's: a list of methods, or a mapping of methods to labels
    caption, label, dataset_label   optional, replacing the paper's

The Snakefile asks this module which cells a table needs.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NotRequired

from orce.config.cells import RESULTS, Cell
from orce.config.schema import Table
from orce.errors import BadInput
from orce.methods import Registry

KINDS = {  # the rows of the paper's tables
    "main": ("vanilla", "consistency", "topk", "cot", "conftuner", "sft", "orce"),
    "ablation": ("vanilla", "orce-sayself", "orce-sc-surrogate", "orce-numeric", "orce-nrd", "orce"),
    "transfer": ("vanilla", "conftuner", "sft", "orce"),
}

DATASET_LABELS = {"mmlu": "MMLU", "drop": "DROP", "reclor": "ReClor", "logiqa": "LogiQA"}
LAST_COLUMN = {"accuracy": "Accuracy", "f1": "F1"}
RESERVED = ("tables", "comparison")
LABEL = re.compile(r"[A-Za-z0-9.:_/+-]+")  # anything else could end \label{...} and begin a command


class Resolved(Table):
    """A table with its rows, as the steps see it: [model, method, label, ours] of each."""

    rows: NotRequired[list[list[Any]]]
    metric: NotRequired[str]
    dataset_label: NotRequired[str]
    notes: NotRequired[list[str]]


@dataclass(frozen=True)
class Row:
    """One line of a table: `method` is a folder name under results/{dataset}/{model}/, `ours` sets its name bold."""

    model: str
    method: str
    label: str
    ours: bool


@dataclass(frozen=True)
class Column:
    """One column of numbers. `best` is max, min, or None for a column that carries no marks."""

    key: str
    title: str
    arrow: str
    best: str | None


def columns(spec: Table | Resolved) -> list[Column]:
    """The six columns of numbers, in the paper's order."""
    metric = spec.get("metric", "accuracy")
    if metric not in LAST_COLUMN:
        raise BadInput(f"tables: metric {metric!r} is not one of {', '.join(LAST_COLUMN)}")
    return [
        Column("ece", "ECE", "down", "min"),
        Column("rho", "correlation", "up", "max"),
        # A p-value measures the sample's size as much as the method, so the paper never marks one.
        Column("p", "p_value", "down", None),
        Column("aurc", "AURC", "down", "min"),
        Column("e_aurc", "E-AURC", "down", "min"),
        Column(metric, LAST_COLUMN[metric], "up", "max"),
    ]


def rows(spec: Table | Resolved, registry: Registry | None = None) -> list[Row]:
    """The table's rows, model by model. A transferred method carries the model that its confidence LLM comes from.

    `registry` is needed only where the rows are not `resolved` and the config has methods or rewards of its own.
    """
    if "rows" in spec:
        return [Row(*row) for row in spec["rows"]]
    registry, source = registry or Registry(), _source(spec)
    return [
        Row(model, _transferred(method, source, registry), label, method == "orce")
        for model in _models(spec)
        for method, label in labels(spec, registry).items()
    ]


def resolved(spec: Table | Resolved, registry: Registry) -> Resolved:
    """The spec with explicit rows, for a step that does not see the config."""
    explicit: Any = {"rows": [[row.model, row.method, row.label, row.ours] for row in rows(spec, registry)]}
    return spec | explicit


def _transferred(method: str, source: str | None, registry: Registry) -> str:
    if source is None or registry.weights(method) is None:
        return method
    below, plus, calibration = method.partition("+")
    return f"{below}-from-{source}{plus}{calibration}"


def cells(spec: Table | Resolved, registry: Registry | None = None, root: str = RESULTS) -> list[tuple[str, str]]:
    """(model, path of its metrics.json) for every row of the table."""
    return [(row.model, cell_path(spec["dataset"], row, root)) for row in rows(spec, registry)]


def cell_path(dataset: str, row: Row, root: str = RESULTS) -> str:
    return root + Cell(dataset, row.model).metrics(row.method).removeprefix(RESULTS)


def model_label(model: str, models: Mapping[str, Mapping[str, str]]) -> str:
    """The name printed for a model: its `label` in the config, else its key."""
    return (models.get(model) or {}).get("label", model)


def caption(spec: Table | Resolved, models: Mapping[str, Mapping[str, str]]) -> str:
    """The spec's caption, or the paper's for that kind of table."""
    if given := spec.get("caption"):
        return given
    dataset = spec.get("dataset_label") or DATASET_LABELS.get(spec["dataset"], spec["dataset"])
    names = _listed([model_label(model, models) for model in spec["models"]])
    if spec["kind"] == "ablation":
        return f"Ablation study results of our method on the {dataset} dataset with {names}."
    if spec["kind"] == "transfer":
        source = model_label(_source(spec) or "", models)
        return f"Alignment performance of methods trained on {source} and transferred to {names}."
    return f"Alignment performance of methods across the foundation models on the {dataset} dataset."


def label(spec: Table | Resolved) -> str:
    """The LaTeX label, tab:mmlu, tab:ablation and so on unless the spec says otherwise."""
    text = spec.get("label") or f"tab:{spec['dataset'] if spec['kind'] == 'main' else spec['kind']}"
    if not LABEL.fullmatch(text):
        raise BadInput(f"{text!r} is no LaTeX label; use letters, digits and . : _ / + -")
    return text


def labels(spec: Table | Resolved, registry: Registry) -> dict[str, str]:
    """Method to the label of its row. The spec's `methods` may be a list, or a mapping to labels of your own."""
    kind = spec.get("kind")
    if kind not in KINDS:
        raise BadInput(f"tables: kind {kind!r} is not one of {', '.join(KINDS)}")
    chosen = spec.get("methods") or KINDS[kind]
    if isinstance(chosen, dict):
        return dict(chosen)
    return {method: registry.label(method) for method in chosen}


def _source(spec: Table | Resolved) -> str | None:
    if spec["kind"] != "transfer":
        return None
    if not (source := spec.get("source")):
        raise BadInput("tables: a transfer table needs `source`, the model whose confidence LLMs are reused")
    return source


def _models(spec: Table | Resolved) -> list[str]:
    missing = [key for key in ("dataset", "models") if not spec.get(key)]
    if missing:
        raise BadInput(f"tables: a {spec['kind']} table needs `{missing[0]}`")
    return spec["models"]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def check_names(tables: Iterable[str]) -> None:
    """A table's name becomes a file name and a LaTeX \\input."""
    if not tables:
        raise BadInput("tables: the config names no table")
    for name in tables:
        if name in RESERVED or not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise BadInput(
                f"tables: {name!r} cannot name a table; use letters, digits, - and _, and not {' or '.join(RESERVED)}"
            )
