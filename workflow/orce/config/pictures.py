"""The pictures of a configuration, and the files they are made from. Imports nothing heavy."""

from orce import methods
from orce.alignment.registry import PAPER
from orce.config import layout
from orce.config import settings as settings_of
from orce.config.cells import Cell, manifest
from orce.config.schema import Config, Table
from orce.stage_settings import Pictured, Pictures

KINDS = ("reliability", "risk-coverage")


def settings(config: Config) -> Pictures:
    """The plan of a checked configuration: the cells of the tables that `paper_tables` names."""
    # The main table shows every method of a cell; the ablation and the transfer table only fill in cells it has not.
    names = sorted(config.paper_tables, key=lambda name: config.tables[name].kind != "main")
    specs = [config.tables[name] for name in names]
    return Pictures(
        cells=_cells(config, specs),
        reward=_aligned(config, specs),
        unparsed_confidence=config.evaluation.unparsed_confidence,
    )


def _cells(config: Config, specs: list[Table]) -> list[Pictured]:
    labels_of: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for spec in specs:
        by_model: dict[str, list[tuple[str, str]]] = {}
        for row in layout.rows(spec, methods.of(config)):
            by_model.setdefault(row.model, []).append((row.method, row.label))
        for model, labels in by_model.items():
            labels_of.setdefault((spec.dataset, model), labels)
    return [_cell(config, *cell, labels) for cell, labels in labels_of.items()]


def _aligned(config: Config, specs: list[Table]) -> Pictured | None:
    """The first trained cell that is aligned by the paper's reward."""
    folders: dict[Cell, set[str]] = {}
    for spec in specs:
        for row in layout.rows(spec, methods.of(config)):
            if trained := settings_of.weights(config, spec.dataset, row.model, row.method):
                folders.setdefault(trained[0], set()).add(trained[1])
    return next((_cell(config, *cell, []) for cell, made in folders.items() if "dpo" in made), None)


def _cell(config: Config, dataset: str, model: str, labels: list[tuple[str, str]]) -> Pictured:
    label = f"{layout.DATASET_LABELS.get(dataset, dataset)}, {config.models[model].label}"
    return Pictured(dataset=dataset, model=model, label=label, methods=labels)


def cell_name(kind: str, cell: Pictured) -> str:
    return f"{kind}-{cell.dataset}-{cell.model}"


def names(plan: Pictures) -> dict[str, dict[str, str]]:
    """Name of every picture to {kind, and label of its cell where it has one}."""
    of_cells = {cell_name(kind, cell): {"kind": kind, "label": cell.label} for cell in plan.cells for kind in KINDS}
    return {"reward": {"kind": "reward"}} | of_cells


def in_report(label: str) -> str:
    """A label as Snakemake's report can take it: no `</script>` in its JSON, and no {wildcard}."""
    return label.translate({ord(sign): other for sign, other in zip("<>{}", "‹›()", strict=True)})


def inputs(plan: Pictures) -> list[str]:
    """The files under results/ that a rule has to make before the pictures can be drawn."""
    paths = [Cell(cell.dataset, cell.model).confidences(method) for cell in plan.cells for method, _ in cell.methods]
    if plan.reward:
        paths.append(manifest(Cell(plan.reward.dataset, plan.reward.model).candidates(PAPER, 1)))
    return sorted(set(paths))
