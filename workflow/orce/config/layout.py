"""The paper's tables: rows, columns, captions, and the metrics.json of every row."""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Self

from msgspec import field, structs

from orce.config.cells import Cell
from orce.settings.schema import Config, Number, Table
from orce.settings.stage import Settings

if TYPE_CHECKING:  # the methods load numpy, which a table that has its rows does not need
    from orce.methods import Registry

KINDS = {  # the rows of the paper's tables
    "main": ("vanilla", "consistency", "topk", "cot", "conftuner", "sft", "orce"),
    "ablation": (
        "vanilla",
        "orce-sayself",
        "orce-sc-surrogate",
        "orce-numeric",
        "orce-nrd",
        "orce",
    ),
    "transfer": ("vanilla", "conftuner", "sft", "orce"),
}
CAPTIONS = {
    "main": "Alignment performance of methods across the foundation models on the {dataset} dataset.",
    "ablation": "Ablation study results of our method on the {dataset} dataset with {models}.",
    "transfer": "Alignment performance of methods trained on {source} and transferred to {models}.",
}
DATASET_LABELS = {"mmlu": "MMLU", "drop": "DROP", "reclor": "ReClor", "logiqa": "LogiQA"}


class Row(NamedTuple):
    """A line of a table: `method` is a folder under results/{dataset}/{model}/, `ours` sets its
    name italic.
    """

    model: str
    method: str
    label: str
    ours: bool


class Column(NamedTuple):
    """A column of numbers. `best` is max, min, or None for a column without marks."""

    key: str
    title: str
    arrow: str
    best: str | None


COLUMNS = (  # in the paper's order; the task's metric is the last
    Column("ece", "ECE", "down", "min"),
    Column("rho", "correlation", "up", "max"),
    # A p-value measures the sample's size as much as the method, so the paper never marks one.
    Column("p", "p_value", "down", None),
    Column("aurc", "AURC", "down", "min"),
    Column("e_aurc", "E-AURC", "down", "min"),
)
METRIC_COLUMNS = {
    "accuracy": Column("accuracy", "Accuracy", "up", "max"),
    "f1": Column("f1", "F1", "up", "max"),
}


class TableWithRows(Table, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A table of the configuration with its rows. metric: accuracy or f1, the last column. notes:
    further footnotes.
    """

    rows: list[Row]
    metric: str = "accuracy"
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> tuple[Column, ...]:
        return *COLUMNS, METRIC_COLUMNS[self.metric]


class Tables(Settings, kw_only=True):
    """tables: the tables to render, in `order`; models, tasks: of the models and data sets that they show."""

    tables: dict[str, TableWithRows]
    order: list[str]
    models: dict[str, dict[str, str]]
    tasks: dict[str, str]
    unparsed_confidence: Number = 0.5
    accept: str = "all"  # which pairs DPO sees: dpo.accept

    @classmethod
    def of(cls, config: Config, table: str = "") -> Self:
        """Of one table, by default of all of `paper_tables`."""
        from orce import methods  # numpy, which a table that has its rows does not need

        registry = methods.of(config)
        chosen = [table] if table else config.paper_tables
        specs = [config.tables[name] for name in chosen]
        shown = set()
        for spec in specs:
            shown.update(spec.models)
            if isinstance(spec.source, str):
                shown.add(spec.source)
        return cls(
            tables={name: resolve(config.tables[name], registry) for name in chosen},
            order=chosen,
            unparsed_confidence=config.evaluation.unparsed_confidence,
            accept=config.dpo.accept,
            models={name: {"label": config.models[name].label} for name in sorted(shown)},
            tasks={spec.dataset: config.datasets[spec.dataset].task for spec in specs},
        )


def row_labels(table: Table, registry: "Registry") -> dict[str, str]:
    """Method to the label of its row. The table's `methods` may be a list, or a mapping to labels
    of your own.
    """
    chosen = table.methods or KINDS[table.kind]
    if isinstance(chosen, dict):
        return chosen
    return {method: registry.label(method) for method in chosen}


def table_rows(table: Table, registry: "Registry") -> list[Row]:
    """The table's rows, model by model. A transferred method carries the model that its confidence
    LLM comes from.
    """
    named = []
    for method, label in row_labels(table, registry).items():
        folder = method
        if table.kind == "transfer" and registry.weights(method):
            base, plus, calibration = method.partition("+")
            folder = f"{base}-from-{table.source}{plus}{calibration}"
        named.append((folder, label, method == "orce"))
    return [Row(model, *row) for model, row in itertools.product(table.models, named)]


def resolve(table: Table, registry: "Registry", **more) -> TableWithRows:
    """The table with its rows, for a stage that does not see the configuration."""
    return TableWithRows(**structs.asdict(table), rows=table_rows(table, registry), **more)


def metrics_path(dataset: str, row: Row) -> str:
    return Cell(dataset, row.model).metrics(row.method)


def metrics_paths(table: Table, registry: "Registry") -> list[str]:
    """The metrics.json of every row of the table."""
    return [metrics_path(table.dataset, row) for row in table_rows(table, registry)]


def model_label(model: str, models: Mapping[str, Mapping[str, str]]) -> str:
    """The name printed for a model: its `label` in the config, else its key."""
    return models.get(model, {}).get("label", model)


def caption(spec: Table, models: Mapping[str, Mapping[str, str]]) -> str:
    """The spec's caption, or the paper's for that kind of table."""
    *others, last = (model_label(model, models) for model in spec.models)
    listed = f"{', '.join(others)} and {last}" if others else last
    source = model_label(spec.source or "", models)
    dataset = DATASET_LABELS.get(spec.dataset, spec.dataset)
    return spec.caption or CAPTIONS[spec.kind].format(dataset=dataset, models=listed, source=source)
