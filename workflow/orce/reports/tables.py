"""The paper's tables from metrics.json files: LaTeX, PDF and HTML, with the published numbers
beside them.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median, mode
from typing import Any, NamedTuple

import jinja2
from msgspec import structs

from orce import tasks
from orce.artefacts import store
from orce.artefacts.files import atomic, digest
from orce.config import layout
from orce.config.cells import Cell
from orce.config.layout import Column, Row, Tables, TableWithRows
from orce.errors import BadInput
from orce.llm.chat import little_mass
from orce.metrics import paired_bootstrap
from orce.metrics.signs import COLLAPSED, UNREAD, mostly_unread
from orce.metrics.summary import read_stated
from orce.reports import comparison, metrics_file, provenance
from orce.reports.comparison import SHORT_TITLES, decimals
from orce.reports.metrics_file import READINGS, CellMetrics
from orce.settings.stage import to_mapping

Labels = Mapping[str, Mapping[str, str]]  # of models: {key: {"label": ...}}
Rows = Mapping[Row, CellMetrics]

TEMPLATES = Path(__file__).with_name("templates")
UNDEFINED = "--"
# The paper prints 0.000 where the p-value underflows; SciPy's own limit is near 1e-308.
SMALLEST_P = 1e-300
NORMAL = 1.96  # standard errors on either side of a 95 % interval
RESAMPLES = 2000  # of the paired differences
TABCOLSEP = {"main": "7pt", "ablation": "4pt", "transfer": "8pt"}
# methods with the same answers may differ in accuracy by rounding of their sums: that is a tie
TIE = 1e-12
TEX_SIGNS = {  # of a template's blocks, values and comments: braces are LaTeX's own
    "block_start_string": "<%", "block_end_string": "%>", "variable_start_string": "<<", "variable_end_string": ">>",
    "comment_start_string": "<#", "comment_end_string": "#>",
}  # fmt: skip
TEX_SPECIAL = {
    UNREAD: r"\textdagger{}", COLLAPSED: r"\textdaggerdbl{}", "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    **{character: "\\" + character for character in "&%$#_"},
}  # fmt: skip
HOW_READ = {
    "stated": "what they state",
    "mean": "the mean of their distribution over 0 to 100 percent",
    "mode": "the most probable of the values 0 to 100 percent",
}
CONFIDENCES = "of the rows of ablations, for differences on the same items"


class Number(NamedTuple):
    """One printed number: its text (0.170, 4.682e-05 or --), its mark, and what a tooltip adds."""

    text: str
    mark: str
    interval: str = ""
    hint: str = ""


class Line(NamedTuple):
    """One row with its numbers. `sign`: of a row that is not ranked, as too many of its confidences
    were replaced, or as they have collapsed.
    """

    row: Row
    source: str  # its metrics.json
    cells: list[Number]
    sign: str


class Block(NamedTuple):
    """The lines of a foundation model."""

    label: str
    lines: list[Line]


class Table(NamedTuple):
    """A table with every number formatted and marked; LaTeX, HTML and the PDF are written from it."""

    caption: str
    label: str
    tabcolsep: str
    columns: Sequence[Column]
    blocks: list[Block]
    notes: list[str]


class Content(NamedTuple):
    """Tables by name, the metrics of their rows by path, and the provenance that is printed on the
    pages, (name, value).
    """

    tables: dict[str, Table]
    metrics: Mapping[str, CellMetrics]
    facts: list[tuple[str, str]]


ACCEPTED = "DPO sees the SC reward's pairs that raise the correlation of the generated list, and all pairs of every other reward."


def read_content(settings: Tables, metrics: list[str], confidences: list[str]) -> Content:
    """What the stages table and tables print, from files. Raises BadInput for an incomplete metrics
    file.
    """
    by_path = metrics_file.read_all(metrics)
    filled = {}
    digests = []
    for path, cell in by_path.items():
        if "config_digest" not in cell.provenance:
            remedy = f"make it again with `snakemake -f -- {path}`"
            raise BadInput(f"{path}: not all of a metrics file; {remedy}")
        digests.append(cell.provenance["config_digest"])
    for name in settings.order:
        spec = settings.tables[name]
        task = tasks.get(settings.tasks[settings.tables[name].dataset])
        differences = _differences(spec, set(confidences), settings.unparsed_confidence)
        notes = selection_notes(spec, settings.accept) + differences
        label = spec.label or f"tab:{name}"
        filled[name] = fill(
            structs.replace(spec, metric=task.METRIC, notes=notes, label=label),
            by_path,
            settings.models,
        )
    packages = ", ".join(
        f"{name} {version}" for name, version in sorted(provenance.versions().items())
    )
    facts = [
        ("configuration digest", digest(to_mapping(settings), digests)),
        ("git commit", provenance.commit() or "unknown"),
    ]
    return Content(filled, by_path, [*facts, ("packages", packages)])


def build_tables(content: Content, out_dir: str | Path) -> dict[str, Path]:
    """Write NAME.tex and NAME.html of every table; {file name: path}."""
    compared = comparison.compare(content.metrics)
    page = {
        "facts": content.facts,
        "summary": comparison.summary(comparison.in_this_run(compared) or compared),
    }
    texts = {}
    for name, table in content.tables.items():
        texts[f"{name}.tex"] = render_template("table.tex.j2", table=table)
        texts[f"{name}.html"] = render_template(
            "tables.html.j2", tables=[table], compared=[], **page
        )
    return _write_texts(out_dir, texts)


def build_document(content: Content, out_dir: str | Path) -> dict[str, Path]:
    """Write tables.tex, tables.pdf, tables.html and the comparison; {file name: path}."""
    compared = comparison.compare(content.metrics)
    summary = comparison.summary(compared)
    # Of a run with none of the paper's cells the summary says all: not 490 lines "not run".
    shown = compared if comparison.in_this_run(compared) else []
    document = {"tables": [*content.tables.values()], "facts": content.facts, "summary": summary}
    by_table = [
        (name, list(group)) for name, group in groupby(shown, key=lambda value: value.table)
    ]
    texts = {
        "comparison.tex": render_template(
            "comparison.tex.j2", tables=comparison.in_tables(shown), summary=summary
        ),
        "comparison.html": render_template("comparison.html.j2", tables=by_table, summary=summary),
        "comparison.csv": comparison.to_csv(compared),
        "tables.tex": render_template(
            "tables.tex.j2", names=[*content.tables], compared=shown, **document
        ),
        "tables.html": render_template("tables.html.j2", compared=shown, **document),
    }
    # The PDF comes last: only it needs a package that `orce` may lack.
    written = _write_texts(out_dir, texts)
    return written | _write_texts(
        out_dir, {"tables.pdf": _pdf(compared=comparison.in_tables(shown), **document)}
    )


def _write_texts(folder: str | Path, contents: Mapping[str, str | bytes]) -> dict[str, Path]:
    for name, text in contents.items():
        with atomic(Path(folder, name), "wb") as handle:
            handle.write(text.encode() if isinstance(text, str) else text)
    return {name: Path(folder, name) for name in contents}


def seal_by_name(written: Mapping[str, Path], settings: Tables) -> None:
    """A seal beside each table or document of build_tables and build_document, for its files of all
    formats.
    """
    by_name: dict[Path, list[Path]] = {}
    for path in written.values():
        by_name.setdefault(store.manifest_path(path), []).append(path)
    for manifest, paths in by_name.items():
        store.seal_together(paths, manifest, settings)


def fill(spec: TableWithRows, metrics: Mapping[str, CellMetrics], models: Labels) -> Table:
    """Format and mark every number of a table; raises BadInput for a row without metrics."""
    by_row = {}
    blocks = []
    for row in spec.rows:
        path = layout.metrics_path(spec.dataset, row)
        if path not in metrics:
            raise BadInput(
                f"{path} is missing: a table needs it; make it with `snakemake -- {path}`"
            )
        by_row[row] = metrics[path]
    for model, rows in groupby(spec.rows, key=lambda row: row.model):
        label = layout.model_label(model, models)
        block = {row: by_row[row] for row in rows}
        blocks.append(_block(label, block, spec))
        for reading in READINGS:
            read = {row: other for row, cell in block.items() if (other := second(cell, reading))}
            if read:
                blocks.append(_block(f"{label}, {reading}", read, spec))
    notes = _notes(by_row, spec.columns, models) + spec.notes
    return Table(
        layout.caption(spec, models),
        spec.label or "",
        TABCOLSEP[spec.kind],
        spec.columns,
        blocks,
        notes,
    )


def replaced(metrics: CellMetrics) -> bool:
    """Whether too many of a row's confidences took the default for the row to be ranked."""
    return mostly_unread(metrics.n_unparsed["confidence"], metrics.n)


def second(metrics: CellMetrics, reading: str) -> CellMetrics | None:
    """Another reading of a confidence LLM, where it says something else than the configured one."""
    other = getattr(metrics, reading)
    same = other is None or other.values.get("aurc") == metrics.values.get("aurc")
    return None if same else other


def _block(label: str, by_row: Rows, spec: TableWithRows) -> Block:
    lines = {}
    for row, cell in by_row.items():
        sign = UNREAD * replaced(cell) + COLLAPSED * bool(cell.collapse)
        lines[row] = Line(row, layout.metrics_path(spec.dataset, row), [], sign)
    for column in spec.columns:
        ranked = [
            None if lines[row].sign else cell.value(column.key) for row, cell in by_row.items()
        ]
        for (row, cell), mark in zip(by_row.items(), marks(ranked, column.best), strict=True):
            lines[row].cells.append(_number(column.key, mark, cell))
    return Block(label, [*lines.values()])


def _number(key: str, mark: str, metrics: CellMetrics) -> Number:
    value = metrics.value(key)
    bounds = metrics.interval(key)
    if value is None:
        return Number(UNDEFINED, mark, hint=metrics.reason(key))
    if key == "p":
        exponent = metrics.log10_p
        return Number(
            p_text(value), mark, hint="" if exponent is None else f"log10 p = {exponent:.1f}"
        )
    return Number(
        decimals(value), mark, interval=" to ".join(map(decimals, bounds)) if bounds else ""
    )


def marks(values: Sequence[float | None], best: str | None) -> list[str]:
    """'best', 'second' or '' for each value, from unrounded values.

    Equal values share a mark, and the next distinct value is second. None and NaN are never marked,
    nor is a column in which every value is the same. `best` is 'max', 'min', or None for a column
    without marks.
    """
    sign = -1.0 if best == "max" else 1.0
    ranked = [
        math.inf if value is None or not math.isfinite(value) else sign * value for value in values
    ]
    levels: list[float] = []
    for value in sorted(set(ranked) - {math.inf}):
        levels += [value] if not levels or value - levels[-1] > TIE else []
    if best is None or len(levels) < 2:
        return [""] * len(values)
    first, second = levels[:2]
    return [
        "best" if value - first <= TIE else "second" if value - second <= TIE else ""
        for value in ranked
    ]


def p_text(p: float) -> str:
    """0.021, 4.682e-05, or 0.000 where p underflows."""
    return f"{p:.3e}" if SMALLEST_P <= p < 0.001 else f"{p:.3f}"


COUNTED: dict[str, Callable[[CellMetrics], int]] = {
    "Unreadable answers, counted as wrong": lambda cell: cell.n_unparsed["answer"],
    "Unreadable confidences, given the default confidence": lambda cell: cell.n_unparsed[
        "confidence"
    ],
    "Confidences read at a second try": lambda cell: max(
        0, cell.n_retried - cell.n_unparsed["confidence"]
    ),
}


def _notes(by_row: Rows, columns: Sequence[Column], models: Labels) -> list[str]:
    """How many items, one standard error, what could not be read, which rows are not ranked, why a
    value is missing.
    """

    def listed(texts: Mapping[Row, str]) -> str:
        """The texts of some rows, by model."""
        groups = groupby(texts, key=lambda row: row.model)
        lines = ((model, [f"{row.label} {texts[row]}" for row in rows]) for model, rows in groups)
        return "; ".join(
            f"{layout.model_label(model, models)}: {', '.join(line)}" for model, line in lines
        )

    usual = mode(cell.n for cell in by_row.values())
    others = listed({row: f"{cell.n:,}" for row, cell in by_row.items() if cell.n != usual})
    notes = [f"n = {usual:,}{' except ' + others if others else ' in every row'}."]
    # An undefined correlation implies an undefined p-value, which is not listed.
    titles = {
        column.key: SHORT_TITLES.get(column.key, column.title)
        for column in columns
        if column.key != "p"
    }
    widths = {
        key: [both[1] - both[0] for cell in by_row.values() if (both := cell.interval(key))]
        for key in titles
    }
    errors = [
        f"{titles[key]} {median(measured) / (2 * NORMAL):.3f}"
        for key, measured in widths.items()
        if measured and key != "ece"
    ]
    if errors:
        notes.append(f"One standard error: {', '.join(errors)} (median over the rows).")
    if widths.get("ece"):
        notes.append(
            f"Half of the interval: ECE {median(widths['ece']) / 2:.3f} (median over the rows)."
        )
    for readout in ("mean", "mode"):
        if any(cell.readout == readout for cell in by_row.values()):
            notes.append(f"Confidence LLMs are read by {HOW_READ[readout]}.")
    for reading in READINGS:
        if any(second(cell, reading) for cell in by_row.values()):
            notes.append(f"{reading.capitalize()}: the same models, read by {HOW_READ[reading]}.")
    masses = {row: cell.mean.values.get("mass") for row, cell in by_row.items() if cell.mean}
    if rows := listed({row: f"{mass:.3f}" for row, mass in masses.items() if little_mass(mass)}):
        notes.append(
            "A mean over 0 to 100 percent says little where these values have less than half of the "
            f"probability, here on average over the items: {rows}."
        )
    for title, count in COUNTED.items():
        if rows := listed({row: f"{count(cell):,}" for row, cell in by_row.items() if count(cell)}):
            notes.append(f"{title}: {rows}.")
    if any(map(replaced, by_row.values())):
        notes.append(
            f"{UNREAD} More than a tenth of the confidences were unreadable: the row is not ranked."
        )
    read = [*by_row.values()]
    read += [
        other for cell in by_row.values() for name in READINGS if (other := second(cell, name))
    ]
    if any(cell.collapse for cell in read):
        notes.append(
            f"{COLLAPSED} Fewer than three distinct confidences, or a Brier score above that of the best constant: "
            "the row is not ranked."
        )
    undefined: dict[str, dict[Row, list[str]]] = {}
    for row, metrics in by_row.items():
        for key, title in titles.items():
            if metrics.value(key) is None:
                undefined.setdefault(metrics.reason(key), {}).setdefault(row, []).append(title)
    for reason, rows in undefined.items():
        missing = listed({row: f"({', '.join(titles)})" for row, titles in rows.items()})
        notes.append(f"{UNDEFINED} undefined ({reason}): {missing}.")
    return notes


def selection_notes(spec: TableWithRows, accept: str) -> list[str]:
    """What an ablation says where `dpo.accept` selects the pairs of its rewards differently
    (docs/choices.md).
    """
    return [ACCEPTED] if spec.kind == "ablation" and accept == "improving" else []


def _differences(spec: TableWithRows, given: set[str], unparsed: float) -> list[str]:
    """A note for each model of an ablation: the AURC of every row minus ORCE's, on the same items."""
    by_model: dict[str, list[str]] = {}
    for row in spec.rows if spec.kind == "ablation" else []:
        cell = Cell(spec.dataset, row.model)
        path = cell.confidences(row.method)
        base = cell.confidences("orce")
        if path == base or not given.issuperset((path, base)):
            continue
        own, orce = (read_stated(name, unparsed) for name in (path, base))
        if own.ids != orce.ids:
            raise BadInput(f"{path}: not the items of {base}; make both again")
        values = paired_bootstrap(
            "aurc", own.confidence, own.correct, orce.confidence, orce.correct, RESAMPLES
        )
        difference, *bounds = (
            "" if values[key] is None else f"{values[key]:+.3f}"
            for key in ("difference", "low", "high")
        )
        interval = f"{difference} [{', '.join(bounds)}]" if difference else "undefined"
        by_model.setdefault(row.model, []).append(f"{row.label} {interval}")
    title = "AURC minus ORCE's on the same items, with its paired 95 % interval"
    return [f"{title}: {', '.join(differences)}." for differences in by_model.values()]


def tex_escape(text: str) -> str:
    return "".join(TEX_SPECIAL.get(character, character) for character in str(text))


def render_template(template: str, **values) -> str:
    """A template of LaTeX, or of a page that needs no network and escapes what it prints."""
    tex = template.endswith(".tex.j2")
    options: dict[str, Any] = {
        "trim_blocks": True,
        "lstrip_blocks": True,
        "keep_trailing_newline": True,
    }
    options |= {"undefined": jinja2.StrictUndefined} | (TEX_SIGNS if tex else {"autoescape": True})
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), **options)
    environment.filters |= {"tex": tex_escape, "decimals": decimals}
    return environment.get_template(template).render(**values)


def _pdf(**document) -> bytes:
    """Set by typst, whose wheel brings the compiler and its fonts; characters that they lack come
    from matplotlib's.
    """
    import matplotlib
    import typst

    from orce.reports import figures

    def printable(value):
        """The same with an en dash for --, and with code points for characters that no font here
        has.
        """
        if isinstance(value, str):
            return figures.drawable(value).replace("--", "–")
        value = value._asdict() if hasattr(value, "_asdict") else value
        if isinstance(value, dict):
            return {key: printable(item) for key, item in value.items()}
        return [printable(item) for item in value] if isinstance(value, list | tuple) else value

    data = {"fonts": ["New Computer Modern", *figures.style()["font.family"]], **document}
    fonts = [Path(matplotlib.get_data_path(), "fonts", "ttf")]
    inputs = {"data": json.dumps(printable(data))}
    return typst.compile(
        TEMPLATES / "tables.typ", format="pdf", font_paths=fonts, sys_inputs=inputs
    )
