"""The paper's tables from metrics.json files: LaTeX, PDF and HTML, with the published numbers beside them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import median, mode

import jinja2
from msgspec import structs

from orce import tasks
from orce.artefacts.files import atomic, digest
from orce.config import layout
from orce.config.cells import Cell
from orce.config.layout import Column, Resolved, Row, Tables
from orce.errors import BadInput
from orce.metrics import paired_bootstrap
from orce.metrics.summary import read_stated
from orce.reports import comparison, metrics_file, provenance
from orce.reports.comparison import SHORT_TITLES, Compared, decimals
from orce.reports.metrics_file import CellMetrics
from orce.stage_settings import plain

Metrics = Mapping[str, CellMetrics]  # by path
Labels = Mapping[str, Mapping[str, str]]  # of models: {key: {"label": ...}}
Rows = dict[Row, CellMetrics]
Facts = list[tuple[str, str]]

TEMPLATES = Path(__file__).with_name("templates")
UNDEFINED = "--"
# The paper prints 0.000 where the p-value underflows; SciPy's own limit is near 1e-308.
SMALLEST_P = 1e-300
NORMAL = 1.96  # standard errors on either side of a 95 % interval
RESAMPLES = 2000  # of the paired differences
TABCOLSEP = {"main": "7pt", "ablation": "4pt", "transfer": "8pt"}
# Above this share of unreadable confidences, a row's numbers say more about the default than about the method.
REPLACED = 0.1
TIE = 1e-12  # methods with the same answers may differ in accuracy by rounding of their sums: that is a tie
DAGGER = "†"
TEX_SIGNS = ("<%", "%>", "<<", ">>", "<#", "#>")  # of a template's blocks, values and comments: braces are LaTeX's own
TEX_SPECIAL = {
    DAGGER: r"\textdagger{}", "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    **{character: "\\" + character for character in "&%$#_"},
}  # fmt: skip

CONFIDENCES = "of the rows of ablations, for differences on the same items"


@dataclass(frozen=True)
class Number:
    """One printed number: its text (0.170, 4.682e-05 or --), its mark, and what a tooltip adds."""

    text: str
    mark: str
    interval: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Line:
    """One row with its numbers. `sign` is a dagger where too many confidences were replaced for the row to be ranked."""

    row: Row
    cells: list[Number]
    sign: str


@dataclass(frozen=True)
class Block:
    """The lines of a foundation model."""

    label: str
    lines: list[Line]


@dataclass(frozen=True)
class Table:
    """A table with every number formatted and marked; LaTeX, HTML and the PDF are written from it."""

    caption: str
    label: str
    tabcolsep: str
    columns: list[Column]
    blocks: list[Block]
    notes: list[str]


def facts(config_digest: str | None = None, git_commit: str | None = None, packages: Mapping[str, str] = {}) -> Facts:
    """Provenance that is printed on the pages, as (name, value); a missing value is 'unknown'."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
    known = (("configuration digest", config_digest), ("git commit", git_commit), ("packages", versions))
    return [(title, value or "unknown") for title, value in known]


@dataclass(frozen=True)
class Content:
    """What tables are made of. specs: by name; models: {key: {"label": ...}}; metrics: by path."""

    specs: Mapping[str, Resolved]
    models: Labels
    metrics: Metrics
    facts: Facts

    @classmethod
    def of(cls, settings: Tables, metrics: list[str], confidences: list[str]) -> "Content":
        """What the stages table and tables print, from files. Raises BadInput for an incomplete metrics file."""
        read, digests = metrics_file.collect(metrics), []
        for path, cell in read.items():
            if cell.provenance is None:
                raise BadInput(f"{path}: not all of a metrics file; make it again with `snakemake -f -- {path}`")
            digests.append(cell.provenance.config_digest)
        specs = {}
        for name in settings.order:
            spec, task = settings.tables[name], tasks.get(settings.tasks[settings.tables[name].dataset])
            notes = _differences(spec, set(confidences), settings.unparsed_confidence)
            specs[name] = structs.replace(spec, metric=task.METRIC, notes=notes)
        known = facts(digest(plain(settings), digests), provenance.commit(), provenance.versions())
        return cls(specs, settings.models, read, known)

    def tables(self) -> dict[str, Table]:
        layout.check_names(self.specs)
        labelled = {name: structs.replace(spec, label=spec.label or f"tab:{name}") for name, spec in self.specs.items()}
        return {name: fill(spec, self.metrics, self.models) for name, spec in labelled.items()}


def build_tables(content: Content, out_dir: str | Path) -> dict[str, Path]:
    """Write NAME.tex and NAME.html of every table; {file name: path}."""
    compared = comparison.compare(content.metrics)
    summary = comparison.summary(comparison.of_run(compared) or compared)
    written = {}
    for name, table in content.tables().items():
        tex = rendered("table.tex.j2", table=table)
        page = rendered("tables.html.j2", tables=[table], facts=content.facts, summary=summary, compared=[])
        written |= _written(out_dir, {f"{name}.tex": tex, f"{name}.html": page})
    return written


def build_document(content: Content, out_dir: str | Path) -> dict[str, Path]:
    """Write tables.tex, tables.pdf, tables.html and the comparison; {file name: path}."""
    by_name, compared = content.tables(), comparison.compare(content.metrics)
    summary, shown = comparison.summary(compared), compared if comparison.of_run(compared) else []
    document = {"tables": [*by_name.values()], "facts": content.facts, "summary": summary, "compared": shown}
    by_table = [(name, list(group)) for name, group in groupby(compared, key=lambda value: value.table)]
    texts = {
        "comparison.tex": rendered("comparison.tex.j2", tables=comparison.in_tables(compared), summary=summary),
        "comparison.html": rendered("comparison.html.j2", tables=by_table, summary=summary),
        "comparison.csv": comparison.to_csv(compared),
        "tables.tex": rendered("tables.tex.j2", names=[*by_name], **document),
        "tables.html": rendered("tables.html.j2", **document),
    }
    # The PDF comes last: only it needs a package that `orce` may lack.
    written = _written(out_dir, texts)
    return written | _written(out_dir, {"tables.pdf": _pdf(**document)})


def _written(folder: str | Path, contents: Mapping[str, str | bytes]) -> dict[str, Path]:
    for name, content in contents.items():
        with atomic(Path(folder, name), "wb") as handle:
            handle.write(content.encode() if isinstance(content, str) else content)
    return {name: Path(folder, name) for name in contents}


def fill(spec: Resolved, metrics: Metrics, models: Labels) -> Table:
    """Format and mark every number of a table; raises BadInput for a row without metrics."""
    columns, by_row = layout.columns(spec), {}
    for row in spec.rows:
        path = layout.cell_path(spec.dataset, row)
        if path not in metrics:
            raise BadInput(f"{path} is missing: a table needs it; make it with `snakemake -- {path}`")
        by_row[row] = metrics[path]
    blocks = []
    for model, rows in groupby(spec.rows, key=lambda row: row.model):
        label, of_model = layout.model_label(model, models), {row: by_row[row] for row in rows}
        blocks.append(_block(label, of_model, columns))
        if means := {row: mean for row, cell in of_model.items() if (mean := second_reading(cell))}:
            blocks.append(_block(f"{label}, mean", means, columns))
    notes = _notes(by_row, columns, models) + spec.notes
    return Table(layout.caption(spec, models), layout.label(spec), TABCOLSEP[spec.kind], columns, blocks, notes)


def replaced(metrics: CellMetrics) -> bool:
    """Whether more than a tenth of a row's confidences were unreadable and took the default; such a row is not ranked."""
    return metrics.n_unparsed["confidence"] > REPLACED * metrics.n


def second_reading(metrics: CellMetrics) -> CellMetrics | None:
    """A confidence LLM's mean, where it says something else than what the model states."""
    mean = metrics.mean
    return mean if mean and mean.values.get("aurc") != metrics.values.get("aurc") else None


def _block(label: str, by_row: Rows, columns: list[Column]) -> Block:
    signs = {row: DAGGER if replaced(cell) else "" for row, cell in by_row.items()}
    cells: dict[Row, list[Number]] = {row: [] for row in by_row}
    for column in columns:
        values = [cell.value(column.key) for cell in by_row.values()]
        ranked = [None if sign else value for value, sign in zip(values, signs.values(), strict=True)]
        for row, value, mark in zip(by_row, values, marks(ranked, column.best), strict=True):
            cells[row].append(_number(column.key, value, mark, by_row[row]))
    return Block(label, [Line(row, cells[row], signs[row]) for row in by_row])


def _number(key: str, value: float | None, mark: str, metrics: CellMetrics) -> Number:
    if value is None:
        return Number(UNDEFINED, mark, hint=metrics.reason(key))
    if key == "p":
        exponent = metrics.log10_p
        return Number(p_text(value), mark, hint="" if exponent is None else f"log10 p = {exponent:.1f}")
    bounds = metrics.interval(key)
    return Number(decimals(value), mark, interval=f"{decimals(bounds[0])} to {decimals(bounds[1])}" if bounds else "")


def marks(values: Sequence[float | None], best: str | None) -> list[str]:
    """'best', 'second' or '' for each value, from unrounded values.

    Equal values share a mark, and the next distinct value is second. None and NaN are never marked, nor is a column in
    which every value is the same. `best` is 'max', 'min', or None for a column without marks.
    """
    sign = -1.0 if best == "max" else 1.0
    ranked = [math.nan if value is None or not math.isfinite(value) else sign * value for value in values]
    distinct: list[float] = []
    for value in sorted(value for value in ranked if not math.isnan(value)):
        if not distinct or value - distinct[-1] > TIE:
            distinct.append(value)
    if best is None or len(distinct) < 2:
        return [""] * len(values)
    levels = {"best": distinct[0], "second": distinct[1]}
    return [next((name for name, level in levels.items() if 0 <= value - level <= TIE), "") for value in ranked]


def p_text(p: float | None) -> str:
    """0.021, 4.682e-05, or 0.000 where p underflows."""
    if p is None:
        return UNDEFINED
    return f"{p:.3e}" if SMALLEST_P <= p < 0.001 else f"{p:.3f}"


def _notes(by_row: Rows, columns: list[Column], models: Labels) -> list[str]:
    """How many items, one standard error, what could not be read, which rows are not ranked, why a value is missing."""

    def by_model(texts: Mapping[Row, str]) -> str:
        groups = groupby(texts, key=lambda row: row.model)
        return "; ".join(
            f"{layout.model_label(key, models)}: {', '.join(texts[row] for row in rows)}" for key, rows in groups
        )

    def counted(counts: Mapping[Row, int]) -> str:
        return by_model({row: f"{row.label} {count:,}" for row, count in counts.items() if count})

    usual = mode(cell.n for cell in by_row.values())
    others = counted({row: cell.n for row, cell in by_row.items() if cell.n != usual})
    notes = [f"n = {usual:,}{' except ' + others if others else ' in every row'}."]
    # An undefined correlation implies an undefined p-value, which is not listed.
    titles = {column.key: SHORT_TITLES.get(column.key, column.title) for column in columns if column.key != "p"}
    widths = {key: [both[1] - both[0] for cell in by_row.values() if (both := cell.interval(key))] for key in titles}
    errors = [f"{titles[key]} {median(of_key) / (2 * NORMAL):.3f}" for key, of_key in widths.items() if of_key]
    if errors:
        notes.append(f"One standard error: {', '.join(errors)} (median over the rows).")
    if any(cell.readout == "mode" for cell in by_row.values()):
        notes.append("Confidence LLMs are read by the most probable of the values 0 to 100 percent.")
    if any(map(second_reading, by_row.values())):
        notes.append("Mean: the same models, read by the mean of their distribution over 0 to 100 percent.")
    for kind, meaning in (("answer", "counted as wrong"), ("confidence", "given the default confidence")):
        if unread := counted({row: cell.n_unparsed[kind] for row, cell in by_row.items()}):
            notes.append(f"Unreadable {kind}s, {meaning}: {unread}.")
    if second := counted({row: max(0, cell.n_retried - cell.n_unparsed["confidence"]) for row, cell in by_row.items()}):
        notes.append(f"Confidences read at a second try: {second}.")
    if any(map(replaced, by_row.values())):
        notes.append(f"{DAGGER} More than a tenth of the confidences were unreadable: the row is not ranked.")
    undefined: dict[str, dict[Row, list[str]]] = {}
    for row, metrics in by_row.items():
        for key, title in titles.items():
            if metrics.value(key) is None:
                undefined.setdefault(metrics.reason(key), {}).setdefault(row, []).append(title)
    for reason, rows in undefined.items():
        listed = by_model({row: f"{row.label} ({', '.join(missing)})" for row, missing in rows.items()})
        notes.append(f"{UNDEFINED} undefined ({reason}): {listed}.")
    return notes


def _differences(spec: Resolved, given: set[str], unparsed: float) -> list[str]:
    """A note for each model of an ablation: the AURC of every row less ORCE's, on the same items."""
    by_model: dict[str, list[str]] = {}
    for row in spec.rows if spec.kind == "ablation" else []:
        cell = Cell(spec.dataset, row.model)
        path, base = cell.confidences(row.method), cell.confidences("orce")
        if path == base or not given.issuperset((path, base)):
            continue
        own, orce = (read_stated(name, unparsed) for name in (path, base))
        if own.ids != orce.ids:
            raise BadInput(f"{path}: not the items of {base}; make both again")
        values = paired_bootstrap("aurc", own.confidence, own.correct, orce.confidence, orce.correct, RESAMPLES)
        difference, low, high = (
            "" if values[key] is None else f"{values[key]:+.3f}" for key in ("difference", "low", "high")
        )
        interval = f"{difference} [{low}, {high}]" if difference else "undefined"
        by_model.setdefault(row.model, []).append(f"{row.label} {interval}")
    title = "AURC less that of ORCE on the same items, with its paired 95 % interval"
    return [f"{title}: {', '.join(of_model)}." for of_model in by_model.values()]


def tex_escape(text: str) -> str:
    return "".join(TEX_SPECIAL.get(character, character) for character in str(text))


def rendered(template: str, **values) -> str:
    """A template of LaTeX, or of a page that needs no network and escapes what it prints."""
    tex = template.endswith(".tex.j2")
    environment = jinja2.Environment(
        *(TEX_SIGNS if tex else ()),
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=not tex,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"tex": tex_escape, "decimals": decimals}
    return environment.get_template(template).render(**values)


def _pdf(tables: list[Table], compared: list[Compared], facts: Facts, summary: str) -> bytes:
    """Set by typst, whose wheel brings the compiler and its fonts; characters that they lack come from matplotlib's."""
    import matplotlib
    import typst

    from orce.reports import figures

    def printable(value):
        """The same with an en dash for --, and with code points for characters that no font here has."""
        if isinstance(value, str):
            return figures.drawable(value).replace("--", "–")
        if isinstance(value, Row):
            value = value._asdict()
        if isinstance(value, dict):
            return {key: printable(item) for key, item in value.items()}
        return [printable(item) for item in value] if isinstance(value, list | tuple) else value

    data = {
        "fonts": ["New Computer Modern", *figures.font_families()],
        "facts": facts,
        "summary": summary,
        "tables": [asdict(table) for table in tables],
        "compared": comparison.in_tables(compared),
    }
    fonts, inputs = [Path(matplotlib.get_data_path(), "fonts", "ttf")], {"data": json.dumps(printable(data))}
    return typst.compile(TEMPLATES / "tables.typ", format="pdf", font_paths=fonts, sys_inputs=inputs)
