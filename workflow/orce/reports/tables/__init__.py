"""The paper's tables from metrics.json files: LaTeX, PDF, HTML, and a comparison with the published numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from orce.artefacts.files import atomic
from orce.config.layout import check_names
from orce.reports.cell_metrics import CellMetrics
from orce.reports.tables import comparison, pdf, render
from orce.stage_settings import Resolved


@dataclass(frozen=True)
class Content:
    """What tables are made of. specs: by name; models: {key: {"label": ...}}; metrics: by path, under `root`."""

    specs: Mapping[str, Resolved]
    models: Mapping[str, Mapping[str, str]]
    metrics: Mapping[str, CellMetrics]
    facts: render.Facts
    root: str = "results"

    def __post_init__(self):
        check_names(self.specs)

    def tables(self) -> dict[str, render.Table]:
        labelled = {name: structs.replace(spec, label=spec.label or f"tab:{name}") for name, spec in self.specs.items()}
        return {name: render.fill(spec, self.metrics, self.models, self.root) for name, spec in labelled.items()}


def build_tables(content: Content, out_dir: str | Path) -> dict[str, Path]:
    """Write NAME.tex and NAME.html of every table; {file name: path}."""
    compared = comparison.compare(content.metrics, content.root)
    summary = comparison.summary(comparison.of_run(compared) or compared)
    texts = {}
    for name, table in content.tables().items():
        texts[f"{name}.tex"] = render.table_tex(table)
        texts[f"{name}.html"] = render.document_html([table], content.facts, summary, [])
    return {name: _write(Path(out_dir) / name, text.encode()) for name, text in texts.items()}


def build_document(content: Content, out_dir: str | Path) -> dict[str, Path]:
    """Write tables.tex, tables.pdf, tables.html and the comparison; {file name: path}."""
    tables, compared = content.tables(), comparison.compare(content.metrics, content.root)
    summary, shown = comparison.summary(compared), compared if comparison.of_run(compared) else []
    filled = list(tables.values())
    texts = {
        "comparison.tex": comparison.to_tex(compared),
        "comparison.html": comparison.to_html(compared),
        "comparison.csv": comparison.to_csv(compared),
        "tables.tex": render.document_tex(list(tables), content.facts, summary, with_comparison=bool(shown)),
        "tables.html": render.document_html(filled, content.facts, summary, shown),
    }
    # The PDF comes last: only it needs a package that `orce` may lack.
    written = {name: _write(Path(out_dir) / name, text.encode()) for name, text in texts.items()}
    pages = pdf.tables_pdf(filled, comparison.in_tables(shown), content.facts, summary)
    return written | {"tables.pdf": _write(Path(out_dir) / "tables.pdf", pages)}


def _write(path: Path, content: bytes) -> Path:
    with atomic(path, "wb") as handle:
        handle.write(content)
    return path
