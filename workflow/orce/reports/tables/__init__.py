"""The paper's tables from metrics.json files: LaTeX, PDF, HTML, and a comparison with the published numbers.

`layout` says what each table holds, `marks` what is bold or underlined, `render` writes LaTeX and HTML, `pdf` typesets
or draws, `comparison` sets the published numbers beside ours. Nothing heavy is imported until `build` is called, as the
Snakefile imports `orce.config.layout` on machines that have only Snakemake.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from orce.config.layout import check_names
from orce.runtime.files import BadInput, atomic


def collect(paths: Iterable[str | Path]) -> dict[str, dict]:
    """Read metrics.json files into {path: metrics}. A missing or broken file is an error naming it."""
    return {str(path): _read(Path(path)) for path in paths}


def build(
    config_tables: dict[str, dict],
    models: dict[str, dict],
    metrics_by_path: dict[str, dict],
    out_dir: str | Path,
    provenance: dict,
    root: str = "results",
) -> dict[str, Path]:
    """Write every table, tables.tex, tables.pdf, tables.html and the comparison; return {file name: path}.

    Every table and the comparison also come as an HTML page each, for the report.

    `config_tables` maps a table's name to its spec (see `layout`), `models` a model's key to {"label": ...}.
    `metrics_by_path` is what `collect` returns. `provenance` may hold config_digest, git_commit
    and packages ({name: version}); what it lacks is printed as unknown.
    """
    from orce.reports.tables import comparison, pdf, render

    check_names(config_tables)
    specs = {name: {"label": f"tab:{name}", **spec} for name, spec in config_tables.items()}
    tables = {name: render.fill(spec, metrics_by_path, models, root) for name, spec in specs.items()}
    compared = comparison.compare(metrics_by_path, root)
    summary, shown = comparison.summary(compared), compared if comparison.any_run(compared) else []
    tex = {f"{name}.tex": render.table_tex(table) for name, table in tables.items()}
    tex["comparison.tex"] = comparison.to_tex(compared)
    tex["tables.tex"] = render.document_tex(list(tables), provenance, summary, with_comparison=bool(shown))
    filled = list(tables.values())
    content = {
        **{name: text.encode() for name, text in tex.items()},
        **{
            f"{name}.html": render.document_html([table], provenance, summary, []).encode()
            for name, table in tables.items()
        },
        "tables.html": render.document_html(filled, provenance, summary, shown).encode(),
        "comparison.html": comparison.to_html(compared).encode(),
        "comparison.csv": comparison.to_csv(compared).encode(),
        "tables.pdf": pdf.tables_pdf(tex, filled, provenance, summary),
    }
    return {name: _write(Path(out_dir) / name, data) for name, data in content.items()}


def _read(path: Path) -> dict:
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist: a table needs it; make it with `snakemake -- {path}`") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not JSON ({error})") from None
    if not isinstance(metrics, dict):
        raise BadInput(f"{path}: expected a JSON object, found {type(metrics).__name__}")
    return metrics


def _write(path: Path, data: bytes) -> Path:
    with atomic(path, "wb") as handle:
        handle.write(data)
    return path
