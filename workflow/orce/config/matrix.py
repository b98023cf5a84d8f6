"""The matrix of a run: every stage that its tables depend on, each once.

The rules chain the same stages file by file; this list gives them before any file exists. It has two users: the target
paper_tables, so that any deleted file is made again, and `orce plan`.
"""

from collections.abc import Iterable

from orce import methods
from orce.config import graph, layout, settings
from orce.config.cells import Cell, manifest, overlap, prompts
from orce.config.graph import Stage
from orce.config.schema import Config
from orce.errors import BadInput


def stages(config: Config, tables: Iterable[str]) -> list[Stage]:
    """The stages of some of the config's tables, in the order of the method, then by cell."""
    registry, order = methods.of(config), list(graph.RULES)
    specs = [config.tables[name] for name in tables]
    todo = [
        Stage("evaluate", Cell(spec.dataset, row.model), row.method)
        for spec in specs
        for row in layout.rows(spec, registry)
    ]
    found: set[Stage] = set()
    while todo:
        if (stage := todo.pop()) not in found:
            found.add(stage)
            todo += [one for read in graph.reads(config, stage).values() for one in read]
    return sorted(found, key=lambda stage: (order.index(stage.rule), stage))


def files(config: Config, tables: Iterable[str]) -> list[str]:
    """Every intermediate file of some tables, prompts included.

    A method that is only below another one, or on the set that this is fitted on, is not evaluated.
    """
    found = stages(config, tables)
    frozen = [
        prompts(stage.cell.dataset, split)
        for stage in found
        if stage.rule in ("sample", "import_answers")
        for split in settings.splits(config, *stage.cell)
    ]
    return sorted({*frozen, *map(manifest, frozen), *(path for stage in found for path in stage.files)})


def overlaps(config: Config, tables: Iterable[str]) -> list[str]:
    """Overlap reports of the datasets that some tables evaluate on; a reader of the tables should have them."""
    return sorted({overlap(config.tables[name].dataset) for name in tables})


def tuned(config: Config, tables: Iterable[str]) -> list[Cell]:
    """The cells of some tables in which the alignment is trained; BadInput for one without a grid or validation split."""
    aligned = sorted({stage.cell for stage in stages(config, tables) if stage.rule == "dpo"})
    if not config.tune:
        raise BadInput(
            "config: no `tune`; give the grid: tune: {beta: [..], learning_rate: [..], epochs: [..], metric: e_aurc}"
        )
    for cell in aligned:
        if "validation" not in config.datasets[cell.dataset].splits:
            raise BadInput(
                f"config: datasets.{cell.dataset}.splits: no validation; tune chooses on it: validation: {{from: SPLIT, size: N}}"
            )
    return aligned
