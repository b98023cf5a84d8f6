"""From metrics to the paper's tables, as LaTeX and as one self-contained HTML page."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median

import jinja2
from markupsafe import Markup

from orce.config import layout
from orce.config.layout import Column
from orce.errors import BadInput
from orce.reports.cell_metrics import CellMetrics
from orce.reports.tables.emphasis import marks
from orce.stage_settings import Resolved, Row

Metrics = Mapping[str, CellMetrics]  # by path
Labels = Mapping[str, Mapping[str, str]]  # of models: {key: {"label": ...}}
Rows = dict[Row, CellMetrics]

UNDEFINED = "--"
# The paper prints 0.000 where the p-value underflows; SciPy's own limit is near 1e-308.
SMALLEST_P = 1e-300
NORMAL = 1.96  # standard errors on either side of a 95 % interval
TABCOLSEP = {"main": "7pt", "ablation": "4pt", "transfer": "8pt"}
# Above this share of unreadable confidences, a row's numbers say more about the default than about the method.
REPLACED = 0.1
DAGGER = "†"
SHORT_TITLES = {"rho": "Spearman", "p": "p-value"}
TEX_SPECIAL = {
    DAGGER: r"\textdagger{}",
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: "\\" + character for character in "&%$#_"},
}


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
    """One foundation model's lines."""

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


def fill(spec: Resolved, metrics: Metrics, models: Labels, root: str = "results") -> Table:
    """Format and mark every number of a table; raises BadInput for a row without metrics."""
    columns, rows = layout.columns(spec), spec.rows
    by_row = {row: _metrics_of(metrics, layout.cell_path(spec.dataset, row, root)) for row in rows}
    blocks = []
    for model, grouped in groupby(rows, key=lambda row: row.model):
        label, block = layout.model_label(model, models), list(grouped)
        blocks.append(_block(label, block, by_row, columns))
        if read := {row: mean for row in block if (mean := second_reading(by_row[row]))}:
            blocks.append(_block(f"{label}, mean", list(read), read, columns))
    return Table(
        layout.caption(spec, models),
        layout.label(spec),
        TABCOLSEP[spec.kind],
        columns,
        blocks,
        _notes(by_row, columns, models) + spec.notes,
    )


def table_tex(table: Table) -> str:
    return tex_environment().get_template("table.tex.j2").render(table=table)


def document_tex(names: list[str], facts: Facts, summary: str, with_comparison: bool) -> str:
    """The standalone document that \\inputs every table."""
    template = tex_environment().get_template("tables.tex.j2")
    return template.render(names=names, facts=facts.named(), summary=summary, with_comparison=with_comparison)


def document_html(tables: list[Table], facts: Facts, summary: str, compared: list) -> str:
    """The same tables as one page that needs no network; `compared` is empty when nothing published was run."""
    template = html_environment().get_template("tables.html.j2")
    return template.render(tables=tables, facts=facts.named(), summary=summary, compared=compared)


def decimals(value: float | None) -> str:
    """Three decimals as in the paper, and never a negative zero."""
    return UNDEFINED if value is None else f"{round(value, 3) + 0.0:.3f}"


def _signed(value: float | None) -> str:
    return UNDEFINED if value is None else f"{round(value, 3) + 0.0:+.3f}"


def p_text(p: float | None) -> str:
    """0.021, 4.682e-05, or 0.000 where p underflows."""
    if p is None:
        return UNDEFINED
    return f"{p:.3e}" if SMALLEST_P <= p < 0.001 else f"{p:.3f}"


def tex_escape(text: str) -> str:
    return "".join(TEX_SPECIAL.get(character, character) for character in str(text))


def tex_number(text: str) -> str:
    """4.682e-05 as the paper sets it; other texts unchanged."""
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return rf"${mantissa}\times10^{{{int(exponent)}}}$"


def tex_environment() -> jinja2.Environment:
    """Templates of LaTeX: << value >> and <% block %>, since braces are LaTeX's own."""
    signs = {"block": ("<%", "%>"), "variable": ("<<", ">>"), "comment": ("<#", "#>")}
    starts = {f"{kind}_start_string": start for kind, (start, _) in signs.items()}
    environment = _environment(**starts, **{f"{kind}_end_string": end for kind, (_, end) in signs.items()})
    environment.filters.update(tex=tex_escape, number=tex_number, marked=_tex_marked)
    return environment


def html_environment() -> jinja2.Environment:
    """Templates of HTML pages, all of which extend page.html.j2; what they print is escaped."""
    environment = _environment(autoescape=True)
    environment.filters.update(number=_html_number, decimals=decimals, signed=_signed)
    return environment


def _environment(**options) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )


def _tex_marked(cell: Number) -> str:
    number = tex_number(cell.text)
    return {"best": rf"\textbf{{{number}}}", "second": rf"\underline{{{number}}}"}.get(cell.mark, number)


def _html_number(text: str) -> str:
    if text == UNDEFINED:
        return Markup('<span aria-label="undefined">–</span>')
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return Markup(f"{mantissa}&#8239;×&#8239;10<sup>{int(exponent)}</sup>".replace("-", "−"))


def _metrics_of(metrics: Metrics, path: str) -> CellMetrics:
    if path not in metrics:
        raise BadInput(f"{path} is missing: a table needs it; make it with `snakemake -- {path}`")
    return metrics[path]


def replaced(metrics: CellMetrics) -> bool:
    """Whether more than a tenth of a row's confidences were unreadable and took the default; such a row is not ranked."""
    return metrics.n_unparsed.confidence > REPLACED * metrics.n


def second_reading(metrics: CellMetrics) -> CellMetrics | None:
    """A confidence LLM's mean, where it says something else than what the model states."""
    mean = metrics.mean
    return mean if mean and mean.values.get("aurc") != metrics.values.get("aurc") else None


def _block(label: str, rows: list[Row], by_row: Rows, columns: list[Column]) -> Block:
    metrics = [by_row[row] for row in rows]
    numbers = zip(*[_column(column, metrics) for column in columns], strict=True)
    signs = [DAGGER if replaced(one) else "" for one in metrics]
    return Block(label, [Line(row, list(cells), sign) for row, cells, sign in zip(rows, numbers, signs, strict=True)])


def _column(column: Column, metrics: list[CellMetrics]) -> list[Number]:
    values = [one.value(column.key) for one in metrics]
    ranked = [None if replaced(one) else value for value, one in zip(values, metrics, strict=True)]
    return [
        _cell(column.key, value, mark, one)
        for value, mark, one in zip(values, marks(ranked, column.best), metrics, strict=True)
    ]


def _cell(key: str, value: float | None, mark: str, metrics: CellMetrics) -> Number:
    if value is None:
        return Number(UNDEFINED, mark, hint=metrics.reason(key))
    if key == "p":
        exponent = metrics.log10_p
        return Number(p_text(value), mark, hint="" if exponent is None else f"log10 p = {exponent:.1f}")
    bounds = metrics.interval(key)
    return Number(decimals(value), mark, interval=f"{decimals(bounds[0])} to {decimals(bounds[1])}" if bounds else "")


def _notes(by_row: Rows, columns: list[Column], models: Labels) -> list[str]:
    """The footnotes: how many items, what could not be read, which rows are not ranked, why a value is missing."""
    notes = [_size_note(by_row, models), *_error_note(by_row, columns)]
    if any(one.of_mode for one in by_row.values()):
        notes.append("Confidence LLMs are read by the most probable of the values 0 to 100 percent.")
    if any(map(second_reading, by_row.values())):
        notes.append("Mean: the same models, read by the mean of their distribution over 0 to 100 percent.")
    for kind, meaning in [("answer", "counted as wrong"), ("confidence", "given the default confidence")]:
        counts = {row: getattr(one.n_unparsed, kind) for row, one in by_row.items()}
        unread = _by_model({row: f"{row.label} {count:,}" for row, count in counts.items() if count}, models)
        if unread:
            notes.append(f"Unreadable {kind}s, {meaning}: {unread}.")
    retried = {row: max(0, one.retried - one.n_unparsed.confidence) for row, one in by_row.items()}
    if second := _by_model({row: f"{row.label} {count:,}" for row, count in retried.items() if count}, models):
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
        bounds = [one.interval(column.key) for one in by_row.values()]
        widths = [high - low for low, high in (one for one in bounds if one)]
        if column.key != "p" and widths:
            title = SHORT_TITLES.get(column.key, column.title)
            parts.append(f"{title} {median(widths) / (2 * NORMAL):.3f}")
    return [f"One standard error: {', '.join(parts)} (median over the rows)."] if parts else []


def _size_note(by_row: Rows, models: Labels) -> str:
    sizes = {row: one.n for row, one in by_row.items()}
    usual = max(sizes.values(), key=list(sizes.values()).count)
    others = _by_model({row: f"{row.label} {size:,}" for row, size in sizes.items() if size != usual}, models)
    return f"n = {usual:,}{' except ' + others if others else ' in every row'}."


def _undefined(by_row: Rows, columns: list[Column], models: Labels) -> dict[str, str]:
    """{reason: the places it explains}; an undefined correlation implies an undefined p-value, which is not listed."""
    found: dict[str, dict[Row, list[str]]] = {}
    for row, metrics in by_row.items():
        for column in columns:
            if column.key != "p" and metrics.value(column.key) is None:
                places = found.setdefault(metrics.reason(column.key), {})
                places.setdefault(row, []).append(SHORT_TITLES.get(column.key, column.title))
    return {
        reason: _by_model({row: f"{row.label} ({', '.join(titles)})" for row, titles in places.items()}, models)
        for reason, places in found.items()
    }


def _by_model(texts: dict[Row, str], models: Labels) -> str:
    """'LLAMA-3 8B: Vanilla 3, CoT 12; Mistral 7B: CoT 1'."""
    return "; ".join(
        f"{layout.model_label(model, models)}: {', '.join(texts[row] for row in rows)}"
        for model, rows in groupby(texts, key=lambda row: row.model)
    )
