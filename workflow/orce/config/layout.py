"""What stands in each of the paper's tables: rows, columns, captions, and the metrics.json behind every row.

A table is described by an entry of the config's ``tables`` section, called a spec here:

    kind     main, ablation or transfer (which rows)
    dataset  key of the dataset the rows were evaluated on
    models   keys of the foundation models, one block of rows each
    source   transfer only: key of the model whose confidence LLMs are reused
    metric   accuracy (default) or f1: the last column
    methods, caption, label, dataset_label   optional, replacing the paper's

Standard library only, since the Snakefile asks this module which cells a table needs.
"""

from dataclasses import dataclass

from orce.runtime.files import BadInput

MAIN = {
    "vanilla": "Vanilla",
    "consistency": "Consistency",
    "topk": "Top-k",
    "cot": "CoT",
    "conftuner": "ConfTuner",
    "sft": "SFT",
    "orce": "Ours-ORCE",
}
ABLATION = {
    "vanilla": "Vanilla",
    "orce-sayself": "SaySelf-inspired RL objective",
    "orce-sc-surrogate": "W/o gen (SC)",
    "orce-numeric": "Numeric dist",
    "orce-nrd": "NRD",
    "orce": "Ours-ORCE",
}
TRANSFER = {"vanilla": "Vanilla", "conftuner": "ConfTuner", "sft": "SFT", "orce": "Ours-ORCE"}
KINDS = {"main": MAIN, "ablation": ABLATION, "transfer": TRANSFER}

DATASET_LABELS = {"mmlu": "MMLU", "drop": "DROP", "reclor": "ReClor", "logiqa": "LogiQA"}
LAST_COLUMN = {"accuracy": "Accuracy", "f1": "F1"}
RESERVED = ("tables", "comparison")


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


def columns(spec: dict) -> list[Column]:
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


def rows(spec: dict) -> list[Row]:
    """The table's rows, model by model."""
    labels = _methods(spec)
    source = _source(spec)
    return [
        Row(model, method if source is None or method == "vanilla" else f"{method}-from-{source}", label, ours)
        for model in _models(spec)
        for method, label in labels.items()
        for ours in [method == "orce"]
    ]


def cells(spec: dict, root: str = "results") -> list[tuple[str, str]]:
    """(model, path of its metrics.json) for every row of the table."""
    return [(row.model, cell_path(spec["dataset"], row, root)) for row in rows(spec)]


def cell_path(dataset: str, row: Row, root: str = "results") -> str:
    return f"{root}/{dataset}/{row.model}/{row.method}/metrics.json"


def model_label(model: str, models: dict) -> str:
    """The name printed for a model: its `label` in the config, else its key."""
    return (models.get(model) or {}).get("label", model)


def caption(spec: dict, models: dict) -> str:
    """The spec's caption, or the paper's for that kind of table."""
    if spec.get("caption"):
        return spec["caption"]
    dataset = spec.get("dataset_label") or DATASET_LABELS.get(spec["dataset"], spec["dataset"])
    names = _listed([model_label(model, models) for model in spec["models"]])
    if spec["kind"] == "ablation":
        return f"Ablation study results of our method on the {dataset} dataset with {names}."
    if spec["kind"] == "transfer":
        source = model_label(spec["source"], models)
        return f"Alignment performance of methods trained on {source} and transferred to {names}."
    return f"Alignment performance of methods across the foundation models on the {dataset} dataset."


def label(spec: dict) -> str:
    """The LaTeX label, tab:mmlu, tab:ablation and so on unless the spec says otherwise."""
    return spec.get("label") or f"tab:{spec['dataset'] if spec['kind'] == 'main' else spec['kind']}"


def _methods(spec: dict) -> dict[str, str]:
    """Method key to row label. The spec may give a list of keys, or a mapping when a new method needs a name."""
    kind = spec.get("kind")
    if kind not in KINDS:
        raise BadInput(f"tables: kind {kind!r} is not one of {', '.join(KINDS)}")
    chosen = spec.get("methods")
    if not chosen:
        return KINDS[kind]
    return dict(chosen) if isinstance(chosen, dict) else {key: _known_label(key, kind) for key in chosen}


def _known_label(method: str, kind: str) -> str:
    return KINDS[kind].get(method) or MAIN.get(method) or ABLATION.get(method) or method


def _source(spec: dict) -> str | None:
    if spec["kind"] != "transfer":
        return None
    if not spec.get("source"):
        raise BadInput("tables: a transfer table needs `source`, the model whose confidence LLMs are reused")
    return spec["source"]


def _models(spec: dict) -> list[str]:
    missing = [key for key in ("dataset", "models") if not spec.get(key)]
    if missing:
        raise BadInput(f"tables: a {spec['kind']} table needs `{missing[0]}`")
    return spec["models"]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def check_names(config_tables: dict[str, dict]) -> None:
    """A table's name becomes a file name and a LaTeX \\input."""
    if not config_tables:
        raise BadInput("tables: the config names no table")
    for name in config_tables:
        if name in RESERVED or not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise BadInput(
                f"tables: {name!r} cannot name a table; use letters, digits, - and _, and not {' or '.join(RESERVED)}"
            )
