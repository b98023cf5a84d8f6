"""The paper's tables from metrics.json files: LaTeX, PDF, HTML, and a comparison with the published numbers.

`layout` says what each table holds, `marks` what is bold or underlined, `render` writes LaTeX and HTML, `pdf` the PDF,
`comparison` sets the published numbers beside ours. Nothing heavy is imported until `build` is called, as the
Snakefile imports `orce.config.layout` on machines that have only Snakemake.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orce.artefacts import store
from orce.artefacts.files import atomic
from orce.config.cells import Cell
from orce.config.layout import check_names
from orce.errors import BadInput


def collect(paths: Iterable[str | Path]) -> dict[str, dict]:
    """Read metrics.json files into {path: metrics}. A missing or broken file is an error naming it."""
    return {str(path): measured(path) for path in paths}


def measured(path: str | Path, current: bool = True) -> dict:
    """A metrics.json or extra.json of the cell that its path names; `current` as in `store.verified`."""
    try:
        values = store.read_object(path, current)
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist: a table needs it; make it with `snakemake -- {path}`") from None
    dataset, model, method = (values.get(key) for key in ("dataset", "model", "method"))
    here, own = store.place(path), Cell(str(dataset), str(model)).metrics(str(method))
    if here and method and Path(here).parent != Path(own).parent:
        raise BadInput(f"{path}: holds the numbers of {own}; {store.again(path)}")
    return values


def build_tables(
    specs: dict[str, dict],
    models: dict[str, dict],
    metrics: dict[str, dict],
    out_dir: str | Path,
    provenance: dict,
    root: str = "results",
) -> dict[str, Path]:
    """Write NAME.tex and NAME.html of every table; return {file name: path}.

    `specs` maps a table's name to its spec (orce.config.layout), `models` a model's key to {"label": ...}, and
    `metrics` is what `collect` returns. `provenance` may hold config_digest, git_commit and packages ({name: version});
    what it lacks is printed as unknown.
    """
    from orce.reports.tables import comparison, render

    check_names(specs)
    compared = comparison.compare(metrics, root)
    summary = comparison.summary(comparison.of_run(compared) or compared)
    content = {}
    for name, table in _filled(specs, metrics, models, root).items():
        content[f"{name}.tex"] = render.table_tex(table).encode()
        content[f"{name}.html"] = render.document_html([table], provenance, summary, []).encode()
    return _written(out_dir, content)


def build_document(
    specs: dict[str, dict],
    models: dict[str, dict],
    metrics: dict[str, dict],
    out_dir: str | Path,
    provenance: dict,
    root: str = "results",
) -> dict[str, Path]:
    """Write tables.tex, tables.pdf, tables.html and the comparison; return {file name: path}.

    Arguments as in `build_tables`.
    """
    from orce.reports.tables import comparison, pdf, render

    check_names(specs)
    tables = _filled(specs, metrics, models, root)
    compared = comparison.compare(metrics, root)
    summary, shown = comparison.summary(compared), compared if comparison.of_run(compared) else []
    document = render.document_tex(list(tables), provenance, summary, with_comparison=bool(shown))
    filled = list(tables.values())
    written = {
        "comparison.tex": comparison.to_tex(compared).encode(),
        "comparison.html": comparison.to_html(compared).encode(),
        "comparison.csv": comparison.to_csv(compared).encode(),
        "tables.tex": document.encode(),
        "tables.html": render.document_html(filled, provenance, summary, shown).encode(),
    }
    # The PDF comes last: only it needs a package that `orce` may lack.
    done = _written(out_dir, written)
    pages = pdf.tables_pdf(filled, comparison.in_tables(shown), provenance, summary)
    return done | _written(out_dir, {"tables.pdf": pages})


def _filled(specs: dict[str, dict], metrics: dict[str, dict], models: dict[str, dict], root: str) -> dict:
    from orce.reports.tables import render

    labelled: dict[str, Any] = {name: {"label": f"tab:{name}", **spec} for name, spec in specs.items()}
    return {name: render.fill(spec, metrics, models, root) for name, spec in labelled.items()}


def _written(out_dir: str | Path, content: dict[str, bytes]) -> dict[str, Path]:
    return {name: _write(Path(out_dir) / name, data) for name, data in content.items()}


def _write(path: Path, data: bytes) -> Path:
    with atomic(path, "wb") as handle:
        handle.write(data)
    return path
