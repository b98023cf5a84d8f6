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
from orce.metrics.signs import COLLAPSED, UNREAD
from orce.metrics.summary import read_stated
from orce.reports import comparison, metrics_file, provenance
from orce.reports.comparison import SHORT_TITLES, decimals
from orce.reports.metrics_file import READINGS, CellMetrics
from orce.settings.stage import to_mapping

Labels = Mapping[str, Mapping[str, str]]  # of models: {key: {"label": ...}}
Rows = Mapping[Row, CellMetrics]

TEMPLATES = Path(__file__).with_name("templates")
UNDEFINED = "--"
SMALLEST_P = 1e-300  # prints as 0.000, as in the paper, where it underflows; near SciPy's limit
NORMAL = 1.96  # standard errors on either side of a 95 % interval
RESAMPLES = 2000  # of the paired differences
TABCOLSEP = {"main": "7pt", "ablation": "4pt", "transfer": "8pt"}
TIE = 1e-12  # equal accuracies may differ by the rounding of their sums
HOW_READ = {
    "stated": "what they state",
    "mean": "the mean of their distribution over 0 to 100 percent",
    "mode": "the most probable of the values 0 to 100 percent",
}
SAID = {"stated": " as stated", "mean": " by the mean"}  # of a metric in a further block
# The help of the option --confidences of the stages table and tables.
CONFIDENCES = "of the rows of ablations, for differences on the same items"
ACCEPTED = (
    "DPO sees the SC reward's pairs that raise the correlation of the generated list, "
    "and all pairs of every other reward."
)


class Number(NamedTuple):
    """One printed number: its text (0.170, 4.682e-05 or --), its mark, and what a tooltip adds."""

    text: str
    mark: str
    interval: str = ""
    hint: str = ""


class Line(NamedTuple):
    """One row with its numbers. `sign`: of a row that is not ranked (`CellMetrics.sign`)."""

    row: Row
    source: str  # its metrics.json
    cells: list[Number]
    sign: str


class Block(NamedTuple):
    """The lines of a foundation model."""

    label: str
    lines: list[Line]


class Table(NamedTuple):
    """A table with every number formatted and marked: what LaTeX, HTML and the PDF print."""

    caption: str
    label: str
    tabcolsep: str
    columns: Sequence[Column]
    blocks: list[Block]
    notes: list[str]


class Content(NamedTuple):
    """Tables by name, the metrics of their rows by path, and the printed provenance, pairs of name
    and value.
    """

    tables: dict[str, Table]
    metrics: Mapping[str, CellMetrics]
    facts: list[tuple[str, str]]


def read_content(settings: Tables, metrics: list[str], confidences: list[str]) -> Content:
    """What the stages table and tables print, from files. Raises BadInput for an incomplete metrics
    file.
    """
    by_path = metrics_file.read_all(metrics)
    digests = []
    for path, cell in by_path.items():
        if "config_digest" not in cell.provenance:
            remedy = f"make it again with `snakemake -f -- {path}`"
            raise BadInput(f"{path}: not all of a metrics file; {remedy}")
        digests.append(cell.provenance["config_digest"])
    filled = {}
    for name in settings.order:
        spec = settings.tables[name]
        differences = _differences(spec, set(confidences), settings.unparsed_confidence)
        spec = structs.replace(
            spec,
            metric=tasks.get(settings.tasks[spec.dataset]).METRIC,
            notes=selection_notes(spec, settings.accept) + differences,
            label=spec.label or f"tab:{name}",
        )
        filled[name] = fill(spec, by_path, settings.models)
    versions = sorted(provenance.versions().items())
    facts = [
        ("configuration digest", digest(to_mapping(settings), digests)),
        ("git commit", provenance.commit() or "unknown"),
        ("packages", ", ".join(f"{name} {version}" for name, version in versions)),
    ]
    return Content(filled, by_path, facts)


def build_tables(content: Content, out_dir: str | Path) -> dict[str, Path]:
    """Write NAME.tex and NAME.html of every table; {file name: path}."""
    compared = comparison.compare(content.metrics)
    summary = comparison.summary(comparison.in_this_run(compared) or compared)
    page = {"facts": content.facts, "summary": summary, "compared": []}
    texts = {}
    for name, table in content.tables.items():
        texts[f"{name}.tex"] = render_template("table.tex.j2", table=table)
        texts[f"{name}.html"] = render_template("tables.html.j2", tables=[table], **page)
    return _write_files(out_dir, texts)


def build_document(content: Content, out_dir: str | Path) -> dict[str, Path]:
    """Write tables.tex, tables.pdf, tables.html and the comparison; {file name: path}."""
    compared = comparison.compare(content.metrics)
    summary = comparison.summary(compared)
    # Of a run with none of the paper's cells the summary says all: not 490 lines "not run".
    shown = compared if comparison.in_this_run(compared) else []
    document = {"tables": [*content.tables.values()], "facts": content.facts, "summary": summary}
    printed = comparison.in_tables(shown)
    texts = {
        "comparison.tex": render_template("comparison.tex.j2", tables=printed, summary=summary),
        "comparison.csv": comparison.to_csv(compared),
        "tables.tex": render_template(
            "tables.tex.j2", names=[*content.tables], compared=shown, **document
        ),
        "tables.html": render_template("tables.html.j2", compared=shown, **document),
    }
    written = _write_files(out_dir, texts)
    # The PDF comes last: only it needs a package that `orce` may lack.
    pdf = _pdf(compared=printed, **document)
    return written | _write_files(out_dir, {"tables.pdf": pdf})


def _write_files(folder: str | Path, contents: Mapping[str, str | bytes]) -> dict[str, Path]:
    for name, text in contents.items():
        with atomic(Path(folder, name), "wb") as handle:
            handle.write(text.encode() if isinstance(text, str) else text)
    return {name: Path(folder, name) for name in contents}


def seal_by_name(written: Mapping[str, Path], settings: Tables) -> None:
    """Write a seal for the files of one name that build_tables or build_document wrote in several
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
    for row in spec.rows:
        path = layout.metrics_path(spec.dataset, row)
        if path not in metrics:
            remedy = f"make it with `snakemake -- {path}`"
            raise BadInput(f"{path} is missing: a table needs it; {remedy}")
        by_row[row] = metrics[path]
    blocks = []
    for model, rows in groupby(spec.rows, key=lambda row: row.model):
        label = layout.model_label(model, models)
        block = {row: by_row[row] for row in rows}
        blocks.append(_block(label, block, spec))
        for reading in READINGS:
            others = {}
            for row, cell in block.items():
                if other := other_reading(cell, reading):
                    others[row] = other
            if others:
                blocks.append(_block(f"{label}, {reading}", others, spec))
    return Table(
        caption=layout.caption(spec, models),
        label=spec.label or "",
        tabcolsep=TABCOLSEP[spec.kind],
        columns=spec.columns,
        blocks=blocks,
        notes=_notes(by_row, spec.columns, models) + spec.notes,
    )


def other_reading(metrics: CellMetrics, reading: str) -> CellMetrics | None:
    """A row by another reading of its confidence LLM; None where that says the same."""
    other = getattr(metrics, reading)
    # where all answers are right or all wrong, AURC is the same for any confidence
    keys = ("aurc", "ece")
    same = other is None or all(other.values.get(key) == metrics.values.get(key) for key in keys)
    return None if same else other


def _block(label: str, by_row: Rows, spec: TableWithRows) -> Block:
    numbers = {row: [] for row in by_row}
    for column in spec.columns:
        values = [None if cell.sign else cell.value(column.key) for cell in by_row.values()]
        marked = zip(by_row.items(), marks(values, column.best), strict=True)
        for (row, cell), mark in marked:
            numbers[row].append(_number(column.key, mark, cell))
    lines = []
    for row, cell in by_row.items():
        lines.append(Line(row, layout.metrics_path(spec.dataset, row), numbers[row], cell.sign))
    return Block(label, lines)


def _number(key: str, mark: str, metrics: CellMetrics) -> Number:
    value = metrics.value(key)
    if value is None:
        return Number(UNDEFINED, mark, hint=metrics.reason(key))
    if key == "p":
        hint = "" if metrics.log10_p is None else f"log10 p = {metrics.log10_p:.1f}"
        return Number(p_text(value), mark, hint=hint)
    bounds = metrics.interval(key)
    return Number(decimals(value), mark, " to ".join(map(decimals, bounds)) if bounds else "")


def marks(values: Sequence[float | None], best: str | None) -> list[str]:
    """'best', 'second' or '' for each value, from unrounded values.

    Equal values share a mark, and the next distinct value is second. None and NaN are never marked,
    nor is a column in which every value is the same. `best` is 'max', 'min', or None for a column
    without marks.
    """
    sign = -1.0 if best == "max" else 1.0
    costs = []  # the lower the better
    for value in values:
        costs.append(sign * value if value is not None and math.isfinite(value) else math.inf)
    levels: list[float] = []
    for cost in sorted(set(costs) - {math.inf}):
        if not levels or cost - levels[-1] > TIE:
            levels.append(cost)
    if best is None or len(levels) < 2:
        return [""] * len(values)
    first, second = levels[:2]
    return [
        "best" if cost - first <= TIE else "second" if cost - second <= TIE else ""
        for cost in costs
    ]


def p_text(p: float) -> str:
    """0.021, 4.682e-05, or 0.000 where p underflows."""
    return f"{p:.3e}" if SMALLEST_P <= p < 0.001 else f"{p:.3f}"


COUNTS: dict[str, Callable[[CellMetrics], int]] = {
    "Unreadable answers, wrong unless given as right": lambda cell: cell.n_unparsed["answer"],
    "Unreadable confidences, given the default confidence": (
        lambda cell: cell.n_unparsed["confidence"]
    ),
    "Confidences read at a second try, or decoded among the 101 values alone": (
        lambda cell: max(0, cell.n_retried - cell.n_unparsed["confidence"])
    ),
}


def _notes(by_row: Rows, columns: Sequence[Column], models: Labels) -> list[str]:
    """What stands below a table: how many items, one standard error, how confidence LLMs are read,
    what could not be read, which rows are not ranked, why a value is missing.
    """

    def listed(texts: Mapping[Row, str]) -> str:
        """The texts of some rows, by model."""
        lines = []
        for model, rows in groupby(texts, key=lambda row: row.model):
            line = ", ".join(f"{row.label} {texts[row]}" for row in rows)
            lines.append(f"{layout.model_label(model, models)}: {line}")
        return "; ".join(lines)

    usual = mode(cell.n for cell in by_row.values())
    others = listed({row: f"{cell.n:,}" for row, cell in by_row.items() if cell.n != usual})
    notes = [f"n = {usual:,}{' except ' + others if others else ' in every row'}."]
    # An undefined correlation implies an undefined p-value, which is not listed.
    titles = {
        column.key: SHORT_TITLES.get(column.key, column.title)
        for column in columns
        if column.key != "p"
    }
    notes += _error_notes(by_row, titles)
    notes += _reading_notes(by_row)
    masses = {row: cell.mean.values.get("mass") for row, cell in by_row.items() if cell.mean}
    little = {row: f"{mass:.3f}" for row, mass in masses.items() if little_mass(mass)}
    if little:
        notes.append(
            "A mean over 0 to 100 percent says little where these values have less than half of "
            f"the probability, here on average over the items: {listed(little)}."
        )
    for title, count in COUNTS.items():
        counts = {row: f"{count(cell):,}" for row, cell in by_row.items() if count(cell)}
        if counts:
            notes.append(f"{title}: {listed(counts)}.")
    notes += _sign_notes(by_row)
    undefined: dict[str, dict[Row, list[str]]] = {}
    for row, cell in by_row.items():
        readings = {"": cell}
        readings |= {SAID[name]: other_reading(cell, name) for name in READINGS}
        for said, metrics in readings.items():
            for key, title in titles.items():
                if metrics and metrics.value(key) is None:
                    rows = undefined.setdefault(metrics.reason(key), {})
                    rows.setdefault(row, []).append(f"{title}{said}")
    for reason, rows in undefined.items():
        missing = listed({row: f"({', '.join(names)})" for row, names in rows.items()})
        notes.append(f"{UNDEFINED} undefined ({reason}): {missing}.")
    return notes


def _error_notes(by_row: Rows, titles: Mapping[str, str]) -> list[str]:
    """The usual uncertainty of each column, by the widths of its intervals."""
    notes = []
    errors = []
    for key, title in titles.items():
        intervals = [cell.interval(key) for cell in by_row.values()]
        widths = [both[1] - both[0] for both in intervals if both]
        if not widths:
            continue
        if key == "ece":  # no interval of percentiles: its width says nothing about an error
            half = f"Half of the interval: ECE {median(widths) / 2:.3f} (median over the rows)."
            notes.append(half)
        else:
            errors.append(f"{title} {median(widths) / (2 * NORMAL):.3f}")
    if errors:
        notes.insert(0, f"One standard error: {', '.join(errors)} (median over the rows).")
    return notes


def _reading_notes(by_row: Rows) -> list[str]:
    """How the confidence LLMs are read, in each block of the table."""
    notes = []
    for readout in ("mean", "mode"):
        if any(cell.readout == readout for cell in by_row.values()):
            notes.append(f"Confidence LLMs are read by {HOW_READ[readout]}.")
    for reading in READINGS:
        if any(other_reading(cell, reading) for cell in by_row.values()):
            notes.append(f"{reading.capitalize()}: the same models, read by {HOW_READ[reading]}.")
    return notes


def _sign_notes(by_row: Rows) -> list[str]:
    """What the signs of rows that are not ranked mean."""
    notes = []
    if any(cell.mostly_unread for cell in by_row.values()):
        notes.append(
            f"{UNREAD} More than a tenth of the confidences were unreadable: the row is not ranked."
        )
    readings = [*by_row.values()]
    for cell in by_row.values():
        readings += filter(None, (other_reading(cell, name) for name in READINGS))
    if any(cell.collapse for cell in readings):
        notes.append(
            f"{COLLAPSED} Fewer than three distinct confidences, "
            "or a Brier score above that of the best constant: the row is not ranked."
        )
    return notes


def selection_notes(spec: TableWithRows, accept: str) -> list[str]:
    """What an ablation says where `dpo.accept` selects the pairs of its rewards differently
    (docs/choices.md).
    """
    return [ACCEPTED] if spec.kind == "ablation" and accept == "improving" else []


def _differences(spec: TableWithRows, given: set[str], unparsed: float) -> list[str]:
    """A note for each model of an ablation: the AURC of its rows minus ORCE's, on equal items."""
    if spec.kind != "ablation":
        return []
    by_model: dict[str, list[str]] = {}
    for row in spec.rows:
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
        text = "undefined"
        is_unread = len(own.ids) in (own.unread, orce.unread)
        if values["difference"] is not None and not is_unread:
            # the sign stays also where a bound is nearly 0: it says whether 0 is inside
            text = "{difference:+.3f} [{low:+.3f}, {high:+.3f}]".format(**values)
        by_model.setdefault(row.model, []).append(f"{row.label} {text}")
    title = "AURC minus ORCE's on the same items, with its paired 95 % interval"
    return [f"{title}: {', '.join(differences)}." for differences in by_model.values()]


TEX_SIGNS = {  # of a template's blocks, values and comments: braces are LaTeX's own
    "block_start_string": "<%",
    "block_end_string": "%>",
    "variable_start_string": "<<",
    "variable_end_string": ">>",
    "comment_start_string": "<#",
    "comment_end_string": "#>",
}
TEX_SPECIAL = str.maketrans(
    {
        UNREAD: r"\textdagger{}",
        COLLAPSED: r"\textdaggerdbl{}",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **{character: "\\" + character for character in "&%$#_{}"},
    }
)


def tex_escape(text: str) -> str:
    return str(text).translate(TEX_SPECIAL)


def render_template(template: str, **values) -> str:
    """A template of LaTeX, or of a page that needs no network and escapes what it prints."""
    signs: dict[str, Any] = TEX_SIGNS if template.endswith(".tex.j2") else {"autoescape": True}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **signs,
    )
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
        """The value with an en dash for --, and code points for characters that no font has."""
        if isinstance(value, str):
            return figures.drawable(value).replace("--", "–")
        if hasattr(value, "_asdict"):  # a named tuple
            value = value._asdict()
        if isinstance(value, dict):
            return {key: printable(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [printable(item) for item in value]
        return value

    families = ["New Computer Modern", *figures.style()["font.family"]]
    return typst.compile(
        TEMPLATES / "tables.typ",
        format="pdf",
        font_paths=[Path(matplotlib.get_data_path(), "fonts", "ttf")],
        sys_inputs={"data": json.dumps(printable({"fonts": families, **document}))},
    )
