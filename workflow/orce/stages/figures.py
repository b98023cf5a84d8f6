"""Draw the pictures of a run: reliability and risk-coverage of each cell."""

from pathlib import Path
from typing import Annotated, Self

from orce import methods
from orce.artefacts import store
from orce.config import layout
from orce.config.cells import Cell
from orce.errors import BadInput
from orce.runtime.process import Progress
from orce.settings.schema import Config
from orce.settings.stage import CellPicture, Pictures

KINDS = ("reliability", "risk-coverage")
# Snakemake's report takes no `</script>` in its JSON, and no {wildcard}
REPORTED = str.maketrans("<>{}", "‹›()")


class FiguresSettings(Pictures, kw_only=True):
    @classmethod
    def of(cls, config: Config) -> Self:
        """The cells of the tables that `paper_tables` names."""
        # The main table shows every method of a cell; the ablation and the transfer table only fill
        # in cells that it has not.
        tables = [config.tables[name] for name in config.paper_tables]
        cells: dict[Cell, list[tuple[str, str]]] = {}
        for table in sorted(tables, key=lambda table: table.kind != "main"):
            rows = layout.table_rows(table, methods.of(config))
            for model in table.models:
                curves = [(row.method, row.label) for row in rows if row.model == model]
                cells.setdefault(Cell(table.dataset, model), curves)
        return cls(
            cells=[cell_picture(config, cell, curves) for cell, curves in cells.items()],
            unparsed_confidence=config.evaluation.unparsed_confidence,
        )

    def names(self) -> dict[str, dict[str, str]]:
        """Name of every picture to {kind, and label of its cell}, as Snakemake's report shows them."""
        names = {}
        for cell in self.cells:
            label = cell.label.translate(REPORTED)
            names |= {cell.picture(kind): {"kind": kind, "label": label} for kind in KINDS}
        return names

    def inputs(self) -> list[str]:
        """The files under results/ that have to be made before the pictures can be drawn."""
        paths = set()
        for picture in self.cells:
            cell = Cell(picture.dataset, picture.model)
            paths |= {cell.confidences(method) for method, _ in picture.methods}
        return sorted(paths)


def cell_picture(config: Config, cell: Cell, curves: list[tuple[str, str]]) -> CellPicture:
    dataset = layout.DATASET_LABELS.get(cell.dataset, cell.dataset)
    label = f"{dataset}, {config.models[cell.model].label}"
    return CellPicture(dataset=cell.dataset, model=cell.model, label=label, methods=curves)


def run(
    settings: FiguresSettings,
    out: Annotated[str, "folder of the pictures"],
    results: str = "results",
):
    """Reads confidences.jsonl of the tables' rows; writes their pictures as PDF and PNG."""
    from orce.reports import figures  # numpy, which a dry run does not need

    if not Path(results).is_dir():
        raise BadInput(f"{results} is not a folder; --results names the folder of a finished run")
    progress = Progress("figures", len(settings.names()) * len(figures.METADATA))
    drawn = []
    for path in figures.build(settings, results, out):
        drawn.append(path)
        progress.update(len(drawn))
    store.seal_together(drawn, Path(out, store.FOLDER_MANIFEST), settings)
