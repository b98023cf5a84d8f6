"""The paper's tables: rows, columns, captions, and the metrics.json of every row."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from msgspec import field, structs

from orce.config.cells import Cell
from orce.config.schema import Config, Table
from orce.errors import BadInput
from orce.stage_settings import Number, Settings

if TYPE_CHECKING:  # the methods load numpy, which a table that has its rows does not need
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


class Row(NamedTuple):
    """One line of a table: `method` is a folder under results/{dataset}/{model}/, `ours` sets its name bold."""

    model: str
    method: str
    label: str
    ours: bool


class Resolved(Table, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A table of the configuration with its rows; metric: of the last column; notes: further footnotes."""

    rows: list[Row]
    metric: str = "accuracy"
    notes: list[str] = field(default_factory=list)


class Tables(Settings, kw_only=True):
    """tables: the tables to render, in `order`; tasks: the task of each data set."""

    tables: dict[str, Resolved]
    order: list[str]
    models: dict[str, dict[str, str]]
    tasks: dict[str, str]
    unparsed_confidence: Number = 0.5

    @classmethod
    def of(cls, config: Config, *names: str) -> Self:
        """Of some tables, by default of all."""
        from orce import methods  # numpy, which a table that has its rows does not need

        registry, names = methods.of(config), names or tuple(config.paper_tables)
        return cls(
            tables={name: resolved(config.tables[name], registry) for name in names},
            order=list(names),
            unparsed_confidence=config.evaluation.unparsed_confidence,
            models={name: {"label": spec.label} for name, spec in config.models.items()},
            tasks={name: spec.task for name, spec in config.datasets.items()},
        )


@dataclass(frozen=True)
class Column:
    """One column of numbers. `best` is max, min, or None for a column that carries no marks."""

    key: str
    title: str
    arrow: str
    best: str | None


def columns(spec: Resolved) -> list[Column]:
    """The six columns of numbers, in the paper's order."""
    return [
        Column("ece", "ECE", "down", "min"),
        Column("rho", "correlation", "up", "max"),
        # A p-value measures the sample's size as much as the method, so the paper never marks one.
        Column("p", "p_value", "down", None),
        Column("aurc", "AURC", "down", "min"),
        Column("e_aurc", "E-AURC", "down", "min"),
        Column(spec.metric, LAST_COLUMN[spec.metric], "up", "max"),
    ]


def rows(table: Table, registry: "Registry") -> list[Row]:
    """The table's rows, model by model. A transferred method carries the model that its confidence LLM comes from."""
    return [
        Row(model, _transferred(method, table, registry), label, method == "orce")
        for model in table.models
        for method, label in labels(table, registry).items()
    ]


def resolved(table: Table, registry: "Registry", **more) -> Resolved:
    """The table with its rows, for a step that does not see the configuration."""
    return Resolved(**structs.asdict(table), rows=rows(table, registry), **more)


def _transferred(method: str, table: Table, registry: "Registry") -> str:
    if table.kind != "transfer" or registry.weights(method) is None:
        return method
    below, plus, calibration = method.partition("+")
    return f"{below}-from-{table.source}{plus}{calibration}"


def cells(table: Table, registry: "Registry") -> list[tuple[str, str]]:
    """(model, path of its metrics.json) for every row of the table."""
    return [(row.model, cell_path(table.dataset, row)) for row in rows(table, registry)]


def cell_path(dataset: str, row: Row) -> str:
    return Cell(dataset, row.model).metrics(row.method)


def model_label(model: str, models: Mapping[str, Mapping[str, str]]) -> str:
    """The name printed for a model: its `label` in the config, else its key."""
    return (models.get(model) or {}).get("label", model)


def caption(spec: Resolved, models: Mapping[str, Mapping[str, str]]) -> str:
    """The spec's caption, or the paper's for that kind of table."""
    if spec.caption:
        return spec.caption
    dataset = DATASET_LABELS.get(spec.dataset, spec.dataset)
    names = _listed([model_label(model, models) for model in spec.models])
    if spec.kind == "ablation":
        return f"Ablation study results of our method on the {dataset} dataset with {names}."
    if spec.kind == "transfer":
        source = model_label(spec.source or "", models)
        return f"Alignment performance of methods trained on {source} and transferred to {names}."
    return f"Alignment performance of methods across the foundation models on the {dataset} dataset."


def label(spec: Table | Resolved) -> str:
    """The LaTeX label, tab:mmlu, tab:ablation and so on unless the spec says otherwise."""
    text = spec.label or f"tab:{spec.dataset if spec.kind == 'main' else spec.kind}"
    if not LABEL.fullmatch(text):
        raise BadInput(f"{text!r} is not a LaTeX label; use letters, digits and . : _ / + -")
    return text


def labels(table: Table, registry: "Registry") -> dict[str, str]:
    """Method to the label of its row. The table's `methods` may be a list, or a mapping to labels of your own."""
    chosen = table.methods or KINDS[table.kind]
    if isinstance(chosen, dict):
        return dict(chosen)
    return {method: registry.label(method) for method in chosen}


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
