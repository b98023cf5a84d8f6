"""The paper's tables from metrics.json files: LaTeX, PDF and HTML, with the published numbers beside them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median

import jinja2
from markupsafe import Markup
from msgspec import structs

from orce import tasks
from orce.artefacts.files import atomic, digest
from orce.config import layout
from orce.config.cells import Cell
from orce.config.layout import Column, Resolved, Row, Tables
from orce.errors import BadInput
from orce.metrics import paired_bootstrap
from orce.metrics.summary import read_stated
from orce.reports import comparison, figures, metrics_file, provenance
from orce.reports.comparison import SHORT_TITLES, decimals
from orce.reports.metrics_file import CellMetrics
from orce.stage_settings import plain

Metrics = Mapping[str, CellMetrics]  # by path
Labels = Mapping[str, Mapping[str, str]]  # of models: {key: {"label": ...}}
Rows = dict[Row, CellMetrics]

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
    sign: str = ""


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


@dataclass(frozen=True)
class Facts:
    """Provenance that is printed on the pages."""

    config_digest: str | None = None
    git_commit: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)

    def named(self) -> list[tuple[str, str]]:
        """(name, value); what is not known is 'unknown'."""
        versions = ", ".join(f"{name} {version}" for name, version in sorted(self.packages.items()))
        known = (("configuration digest", self.config_digest), ("git commit", self.git_commit), ("packages", versions))
        return [(title, value or "unknown") for title, value in known]


@dataclass(frozen=True)
class Content:
    """What tables are made of. specs: by name; models: {key: {"label": ...}}; metrics: by path, under `root`."""

    specs: Mapping[str, Resolved]
    models: Labels
    metrics: Metrics
    facts: Facts
    root: str = "results"

    def __post_init__(self):
        layout.check_names(self.specs)

    @classmethod
    def of(cls, settings: Tables, metrics: list[str], confidences: list[str]) -> "Content":
        """What the stages table and tables print, from files. Raises BadInput for an incomplete metrics file."""
        read = metrics_file.collect(metrics)
        for path, one in read.items():
            if one.provenance is None:
                raise BadInput(f"{path}: not all of a metrics file; make it again with `snakemake -f -- {path}`")
        digests = [one.provenance.config_digest for one in read.values() if one.provenance]
        facts = Facts(digest(plain(settings), digests), provenance.commit(), provenance.versions())
        specs = {}
        for name in settings.order:
            spec, task = settings.tables[name], tasks.get(settings.tasks[settings.tables[name].dataset])
            notes = _differences(spec, set(confidences), settings.unparsed_confidence)
            specs[name] = structs.replace(spec, metric=task.METRIC, notes=notes)
        return cls(specs, settings.models, read, facts)

    def tables(self) -> dict[str, Table]:
        labelled = {name: structs.replace(spec, label=spec.label or f"tab:{name}") for name, spec in self.specs.items()}
        return {name: fill(spec, self.metrics, self.models, self.root) for name, spec in labelled.items()}


def build_tables(content: Content, out_dir: str | Path) -> dict[str, Path]:
    """Write NAME.tex and NAME.html of every table; {file name: path}."""
    compared = comparison.compare(content.metrics, content.root)
    summary = comparison.summary(comparison.of_run(compared) or compared)
    texts = {}
    for name, table in content.tables().items():
        texts[f"{name}.tex"] = table_tex(table)
        texts[f"{name}.html"] = document_html([table], content.facts, summary, [])
    return {name: _write(Path(out_dir) / name, text.encode()) for name, text in texts.items()}


def build_document(content: Content, out_dir: str | Path) -> dict[str, Path]:
    """Write tables.tex, tables.pdf, tables.html and the comparison; {file name: path}."""
    tables, compared = content.tables(), comparison.compare(content.metrics, content.root)
    summary, shown = comparison.summary(compared), compared if comparison.of_run(compared) else []
    by_table = [(name, list(group)) for name, group in groupby(compared, key=lambda one: one.table)]
    document = {"names": list(tables), "facts": content.facts.named(), "with_comparison": bool(shown)}
    texts = {
        "comparison.tex": comparison_tex(compared),
        "comparison.html": _html("comparison.html.j2", tables=by_table, summary=summary),
        "comparison.csv": comparison.to_csv(compared),
        "tables.tex": _tex("tables.tex.j2", summary=summary, **document),
        "tables.html": document_html(list(tables.values()), content.facts, summary, shown),
    }
    # The PDF comes last: only it needs a package that `orce` may lack.
    written = {name: _write(Path(out_dir) / name, text.encode()) for name, text in texts.items()}
    pages = _pdf(list(tables.values()), shown, content.facts, summary)
    return written | {"tables.pdf": _write(Path(out_dir) / "tables.pdf", pages)}


def _write(path: Path, content: bytes) -> Path:
    with atomic(path, "wb") as handle:
        handle.write(content)
    return path


# From metrics to numbers


def fill(spec: Resolved, metrics: Metrics, models: Labels, root: str = "results") -> Table:
    """Format and mark every number of a table; raises BadInput for a row without metrics."""
    columns, by_row = layout.columns(spec), {}
    for row in spec.rows:
        path = layout.cell_path(spec.dataset, row, root)
        if path not in metrics:
            raise BadInput(f"{path} is missing: a table needs it; make it with `snakemake -- {path}`")
        by_row[row] = metrics[path]
    blocks = []
    for model, grouped in groupby(spec.rows, key=lambda row: row.model):
        label, rows = layout.model_label(model, models), list(grouped)
        blocks.append(_block(label, {row: by_row[row] for row in rows}, columns))
        if means := {row: mean for row in rows if (mean := second_reading(by_row[row]))}:
            blocks.append(_block(f"{label}, mean", means, columns))
    notes = _notes(by_row, columns, models) + spec.notes
    return Table(layout.caption(spec, models), layout.label(spec), TABCOLSEP[spec.kind], columns, blocks, notes)


def replaced(metrics: CellMetrics) -> bool:
    """Whether more than a tenth of a row's confidences were unreadable and took the default; such a row is not ranked."""
    return metrics.n_unparsed.confidence > REPLACED * metrics.n


def second_reading(metrics: CellMetrics) -> CellMetrics | None:
    """A confidence LLM's mean, where it says something else than what the model states."""
    mean = metrics.mean
    return mean if mean and mean.values.get("aurc") != metrics.values.get("aurc") else None


def _block(label: str, by_row: Rows, columns: list[Column]) -> Block:
    numbers = zip(*[_column(column, list(by_row.values())) for column in columns], strict=True)
    signs = [DAGGER if replaced(one) else "" for one in by_row.values()]
    return Block(label, [Line(row, list(cells), sign) for row, cells, sign in zip(by_row, numbers, signs, strict=True)])


def _column(column: Column, metrics: list[CellMetrics]) -> list[Number]:
    values = [one.value(column.key) for one in metrics]
    ranked = marks([None if replaced(one) else v for v, one in zip(values, metrics, strict=True)], column.best)
    return [_number(column.key, value, mark, one) for value, mark, one in zip(values, ranked, metrics, strict=True)]


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
    ranked = [None if value is None or not math.isfinite(value) else sign * value for value in values]
    distinct: list[float] = []
    for value in sorted(value for value in ranked if value is not None):
        if not distinct or value - distinct[-1] > TIE:
            distinct.append(value)
    if best is None or len(distinct) < 2:
        return [""] * len(values)
    levels = [("best", distinct[0]), ("second", distinct[1])]
    return [
        next((name for name, level in levels if value is not None and 0 <= value - level <= TIE), "")
        for value in ranked
    ]


def p_text(p: float | None) -> str:
    """0.021, 4.682e-05, or 0.000 where p underflows."""
    if p is None:
        return UNDEFINED
    return f"{p:.3e}" if SMALLEST_P <= p < 0.001 else f"{p:.3f}"


# Footnotes


def _notes(by_row: Rows, columns: list[Column], models: Labels) -> list[str]:
    """How many items, one standard error, what could not be read, which rows are not ranked, why a value is missing."""

    def counted(counts: Mapping[Row, int]) -> str:
        return _by_model({row: f"{row.label} {count:,}" for row, count in counts.items() if count}, models)

    sizes = {row: one.n for row, one in by_row.items()}
    usual = max(sizes.values(), key=list(sizes.values()).count)
    others = counted({row: size for row, size in sizes.items() if size != usual})
    notes = [f"n = {usual:,}{' except ' + others if others else ' in every row'}.", *_error_note(by_row, columns)]
    if any(one.of_mode for one in by_row.values()):
        notes.append("Confidence LLMs are read by the most probable of the values 0 to 100 percent.")
    if any(map(second_reading, by_row.values())):
        notes.append("Mean: the same models, read by the mean of their distribution over 0 to 100 percent.")
    for kind, meaning in [("answer", "counted as wrong"), ("confidence", "given the default confidence")]:
        if unread := counted({row: getattr(one.n_unparsed, kind) for row, one in by_row.items()}):
            notes.append(f"Unreadable {kind}s, {meaning}: {unread}.")
    if second := counted({row: max(0, one.retried - one.n_unparsed.confidence) for row, one in by_row.items()}):
        notes.append(f"Confidences read at a second try: {second}.")
    if any(map(replaced, by_row.values())):
        notes.append(f"{DAGGER} More than a tenth of the confidences were unreadable: the row is not ranked.")
    return notes + [
        f"{UNDEFINED} undefined ({reason}): {where}." for reason, where in _undefined(by_row, columns, models).items()
    ]


def _error_note(by_row: Rows, columns: list[Column]) -> list[str]:
    """How wide one standard error is at this n: the median over the rows, from the bootstrap's intervals."""
    parts = []
    for column in columns:
        widths = [both[1] - both[0] for one in by_row.values() if (both := one.interval(column.key))]
        if column.key != "p" and widths:
            title = SHORT_TITLES.get(column.key, column.title)
            parts.append(f"{title} {median(widths) / (2 * NORMAL):.3f}")
    return [f"One standard error: {', '.join(parts)} (median over the rows)."] if parts else []


def _undefined(by_row: Rows, columns: list[Column], models: Labels) -> dict[str, str]:
    """{reason: the rows and columns that it explains}; an undefined correlation implies an undefined p-value, which is not listed."""
    places: dict[str, dict[Row, list[str]]] = {}
    for row, metrics in by_row.items():
        for column in columns:
            if column.key != "p" and metrics.value(column.key) is None:
                titles = places.setdefault(metrics.reason(column.key), {}).setdefault(row, [])
                titles.append(SHORT_TITLES.get(column.key, column.title))
    return {
        reason: _by_model({row: f"{row.label} ({', '.join(titles)})" for row, titles in of_reason.items()}, models)
        for reason, of_reason in places.items()
    }


def _by_model(texts: dict[Row, str], models: Labels) -> str:
    """'LLAMA-3 8B: Vanilla 3, CoT 12; Mistral 7B: CoT 1'."""
    return "; ".join(
        f"{layout.model_label(model, models)}: {', '.join(texts[row] for row in rows)}"
        for model, rows in groupby(texts, key=lambda row: row.model)
    )


def _differences(spec: Resolved, given: set[str], unparsed: float) -> list[str]:
    """A note for each model of an ablation: the AURC of every row less ORCE's, on the same items."""
    parts: dict[str, list[str]] = {}
    for row in spec.rows if spec.kind == "ablation" else []:
        cell = Cell(spec.dataset, row.model)
        path, base = cell.confidences(row.method), cell.confidences("orce")
        if path == base or not given.issuperset((path, base)):
            continue
        one, other = (read_stated(name, unparsed) for name in (path, base))
        if one.ids != other.ids:
            raise BadInput(f"{path}: not the items of {base}; make both again")
        found = paired_bootstrap("aurc", one.confidence, one.correct, other.confidence, other.correct, RESAMPLES)
        shown = {key: "" if value is None else f"{value:+.3f}" for key, value in found.items()}
        interval = f"{shown['difference']} [{shown['low']}, {shown['high']}]"
        parts.setdefault(row.model, []).append(f"{row.label} {interval if shown['difference'] else 'undefined'}")
    title = "AURC less that of ORCE on the same items, with its paired 95 % interval"
    return [f"{title}: {', '.join(of_model)}." for of_model in parts.values()]


# LaTeX, HTML, PDF


def table_tex(table: Table) -> str:
    return _tex("table.tex.j2", table=table)


def document_html(tables: list[Table], facts: Facts, summary: str, compared: list) -> str:
    """The tables as one page that needs no network; `compared` is empty when nothing published was run."""
    return _html("tables.html.j2", tables=tables, facts=facts.named(), summary=summary, compared=compared)


def comparison_tex(compared: list[comparison.Compared]) -> str:
    """comparison.tex: the paper's tables again, each value next to ours and its interval."""
    return _tex("comparison.tex.j2", tables=comparison.in_tables(compared), summary=comparison.summary(compared))


def tex_escape(text: str) -> str:
    return "".join(TEX_SPECIAL.get(character, character) for character in str(text))


def _tex(template: str, **values) -> str:
    """A template of LaTeX: << value >> and <% block %>, since braces are LaTeX's own."""
    signs = {"block": ("<%", "%>"), "variable": ("<<", ">>"), "comment": ("<#", "#>")}
    starts = {f"{kind}_start_string": start for kind, (start, _) in signs.items()}
    ends = {f"{kind}_end_string": end for kind, (_, end) in signs.items()}
    filters = {"tex": tex_escape, "marked": _tex_marked, "pair": _tex_pair}
    return _rendered(template, values, filters, **starts, **ends)


def _html(template: str, **values) -> str:
    """A page that extends page.html.j2; what it prints is escaped."""
    filters = {"number": _html_number, "decimals": decimals, "signed": lambda value: decimals(value, "+")}
    return _rendered(template, values, filters, autoescape=True)


def _rendered(template: str, values: dict, filters: dict, **options) -> str:
    loader, layout = jinja2.FileSystemLoader(TEMPLATES), {"trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True, **layout, **options
    )
    environment.filters.update(filters)
    return environment.get_template(template).render(**values)


def _tex_marked(cell: Number) -> str:
    """4.682e-05 as the paper sets it."""
    number, mantissa, exponent = cell.text, *cell.text.partition("e")[::2]
    if exponent:
        number = rf"${mantissa}\times10^{{{int(exponent)}}}$"
    return {"best": rf"\textbf{{{number}}}", "second": rf"\underline{{{number}}}"}.get(cell.mark, number)


def _tex_pair(cell: Mapping[str, str]) -> str:
    pair, interval = rf"{cell['published']} $\to$ {cell['reproduced']}", cell["interval"]
    if not interval:
        return pair
    interval = rf"\textbf{{{interval}}}" if cell["outside"] else interval
    return rf"\makecell{{{pair}\\{{}}{interval}}}"  # {} keeps [ from being read as an argument of \\


def _html_number(text: str) -> str:
    if text == UNDEFINED:
        return Markup('<span aria-label="undefined">–</span>')
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return Markup(f"{mantissa}&#8239;×&#8239;10<sup>{int(exponent)}</sup>".replace("-", "−"))


def _pdf(tables: list[Table], compared: list[comparison.Compared], facts: Facts, summary: str) -> bytes:
    """Set by typst, whose wheel brings the compiler and its fonts; characters that they lack come from matplotlib's."""
    import matplotlib
    import typst

    data = {
        "fonts": ["New Computer Modern", *figures.font_families()],
        "facts": facts.named(),
        "summary": summary,
        "tables": [asdict(table) for table in tables],
        "compared": comparison.in_tables(compared),
    }
    fonts = [Path(matplotlib.get_data_path(), "fonts", "ttf")]
    inputs = {"data": json.dumps(_printable(data))}
    return typst.compile(TEMPLATES / "tables.typ", format="pdf", font_paths=fonts, sys_inputs=inputs)


def _printable(value):
    """The same with an en dash for --, and with code points for characters that no font here has."""
    if isinstance(value, str):
        return figures.drawable(value).replace("--", "–")
    if isinstance(value, Row):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _printable(part) for key, part in value.items()}
    return [_printable(part) for part in value] if isinstance(value, list | tuple) else value
