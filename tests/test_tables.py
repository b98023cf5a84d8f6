"""Marks, formats, LaTeX, HTML, PDF and the comparison, on metrics made by hand."""

import csv
import html.parser
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import finished_run
import msgspec
import numpy as np
import pytest
from conftest import ROOT, cases, program
from finished_run import EVALUATE

from orce.align.surrogate import Row, write_surrogate
from orce.artefacts import files
from orce.config import layout
from orce.errors import BadInput
from orce.methods import Registry
from orce.metrics import summarise
from orce.reports import comparison, metrics_file, tables
from orce.reports.metrics_file import CellMetrics
from orce.reports.tables import marks
from orce.settings.schema import Table

MODELS = {"small": {"label": "Small_LLM 1B"}, "big": {"label": "Big 8B"}, "llama3-8b": {"label": "LLAMA-3 8B"}}


def table_of(*methods, models=("small",), **more):
    """A table of some methods on the arithmetic questions."""
    asked = {"dataset": "arithmetic", "models": [*models], "methods": [*methods]}
    return {"kind": "main"} | asked | more


SPECS = {
    "arithmetic": table_of("vanilla", "orce", models=("small", "big")),
    "ablation": {"kind": "ablation", "dataset": "arithmetic", "models": ["small"]},
    "transfer": {"kind": "transfer", "dataset": "arithmetic", "source": "small", "models": ["big"]},
}
PROVENANCE = {"configuration digest": "a1b2c3", "git commit": "0f0f0f", "packages": "numpy 2.3.5, torch 2.13.0"}


def read_in(found):
    return {path: CellMetrics.of(path, one) for path, one in found.items()}


def resolved(spec):
    metric = {"metric": "f1"} if spec["dataset"] == "drop" else {}
    return layout.resolve(msgspec.convert(spec, Table), Registry(), **metric)


def cells(spec):
    return layout.metrics_paths(msgspec.convert(spec, Table), Registry())


def build(specs, models, found, folder, provenance):
    """Every file of the tables: those of each table, and the document with the comparison."""
    filled = {name: filled_in({"label": f"tab:{name}"} | spec, found, models) for name, spec in specs.items()}
    content = tables.Content(filled, read_in(found), [*provenance.items()])
    return tables.build_tables(content, folder) | tables.build_document(content, folder)


def filled_in(spec, found, models=MODELS):
    return tables.fill(resolved(spec), read_in(found), models)


def tex_of(spec, found, models=MODELS):
    return tables.render_template("table.tex.j2", table=filled_in(spec, found, models))


def page_of(table, summary=""):
    return tables.render_template(
        "tables.html.j2", tables=[table], facts=[*PROVENANCE.items()], summary=summary, compared=[]
    )


def compared(found):
    return comparison.compare(read_in(found))


def metrics(ece=0.2, rho=0.3, p=0.02, aurc=0.4, e_aurc=0.1, accuracy=0.5, **more):
    unread = {"answer": 0, "confidence": 0}
    intervals = {"ece": [ece - 0.01, ece + 0.01] if ece else None, "spearman": None}
    return {
        "ece": ece, "spearman": {"rho": rho, "p": p, "log10_p": None}, "aurc": aurc, "e_aurc": e_aurc,
        "e_aurc_analytic": e_aurc, "accuracy": accuracy, "f1": None, "n": 1200, "n_unparsed": unread,
        "intervals": intervals, "reasons": {}, **more,
    }  # fmt: skip


def all_metrics(specs=None):
    paths = [path for spec in (specs or SPECS).values() for path in cells(spec)]
    return {path: metrics(ece=0.1 + 0.01 * index) for index, path in enumerate(dict.fromkeys(paths))}


def golden_case():
    spec = table_of("vanilla", "cot", "orce", caption="Sums & products.", label="tab:sums")
    unread = {"n_unparsed": {"answer": 12, "confidence": 1034}, "reasons": {"spearman": "constant confidence"}}
    rows = (
        metrics(0.17, 0.034, 4.682e-5, 0.332, 0.265, 0.657), metrics(0.5, None, None, 0.3131, 0.2311, 0.6574, **unread),
        metrics(0.025, -0.4774, 0.0, 0.3132, 0.089, 0.657),
    )  # fmt: skip
    return spec, dict(zip(all_metrics({"golden": spec}), rows, strict=True))


GOLDEN = (ROOT / "tests" / "data" / "golden.tex").read_text()


@pytest.mark.parametrize(("why", "values", "best", "expected"), cases("best_values"))
def test_the_best_and_the_second_of_a_column_are_marked(why, values, best, expected):
    assert marks(values, best) == expected, why


@pytest.mark.parametrize("p, expected", [
    (1.0, "1.000"), (0.23956, "0.240"), (0.001, "0.001"), (0.00099996, "1.000e-03"), (4.682e-5, "4.682e-05"),
    (9.99996e-6, "1.000e-05"), (8.568e-195, "8.568e-195"), (1e-300, "1.000e-300"), (9e-301, "0.000"),
    (0.0, "0.000"),
])  # fmt: skip
def test_p_values_in_the_papers_style(p, expected):
    assert tables.p_text(p) == expected


def test_numbers_and_signs_as_tex_shows_them():
    assert [tables.decimals(value) for value in (-0.0004, -0.0006, 0.0005001, None)] == [
        "0.000", "-0.001", "0.001", "--",
    ]  # fmt: skip
    escaped = tables.tex_escape(r"a_b & 50% {x} ~ ^ \ # $ <|>")
    assert not re.search(r"(?<!\\)[&%$#_]|[~^]", escaped.replace(r"\textasciitilde{}", "").replace(r"\^", ""))
    assert r"\_" in escaped and r"\textbackslash{}" in escaped


def test_a_table_has_the_rows_of_its_kind_and_an_ablation_says_which_pairs_each_reward_sees():
    """Under dpo.accept: improving the SC reward sees some pairs, and the rewards of the other rows see all."""
    transfer, ablation = resolved(SPECS["transfer"]), resolved(SPECS["ablation"])
    assert [row.method for row in transfer.rows] == [
        "vanilla", "conftuner-from-small", "sft-from-small", "orce-from-small",
    ]  # fmt: skip
    assert [row.method for row in ablation.rows] == [
        "vanilla", "orce-sayself", "orce-sc-surrogate", "orce-numeric", "orce-nrd", "orce",
    ]  # fmt: skip
    (note,) = tables.selection_notes(ablation, "improving")
    assert "all pairs of every other reward" in note
    assert tables.selection_notes(ablation, "all") == []
    assert tables.selection_notes(resolved(SPECS["arithmetic"]), "improving") == []


def test_layout_needs_the_standard_library_only():
    code = "import sys, orce.config.layout; print([m for m in ('jinja2', 'numpy', 'pandas') if m in sys.modules])"
    assert program(sys.executable, "-c", code, check=True).stdout.strip() == "[]"


def test_a_new_method_needs_only_the_config_and_the_golden_table_stays():
    spec = table_of() | {"methods": {"mine": "My 100% method"}}
    tex = tex_of(spec, {path: metrics() for path in cells(spec)}, {})
    assert r"\multirow{1}{*}{small}" in tex and r"& My 100\% method &" in tex
    spec, found = golden_case()
    assert tex_of(spec, found) == GOLDEN


NOT_RANKED = {
    "†": "More than a tenth of the confidences were unreadable: the row is not ranked.",
    "‡": "Fewer than three distinct confidences, or a Brier score above that of the best constant: "
    "the row is not ranked.",
}
TEX = {"†": (r"\dagger", r"\textdagger"), "‡": (r"\ddagger", r"\textdaggerdbl")}


def unread(confidences):
    return {"n_unparsed": {"answer": 0, "confidence": confidences}}


@pytest.mark.parametrize(("changed", "sign"), [
    (unread(120), ""), (unread(121), "†"), ({"n_distinct": 2}, "‡"), ({"brier": 0.3}, "‡"),
], ids=["a tenth unread", "more unread", "two values", "worse than a constant"])  # fmt: skip
def test_a_row_that_says_too_little_has_a_sign_and_takes_no_place_of_another(changed, sign):
    spec = table_of("vanilla", "cot", "orce")
    best = metrics(0.1, 0.9, 0.01, 0.1, 0.01, 0.9) | changed
    found = dict(zip(cells(spec), (metrics(ece=0.2), best, metrics(ece=0.4)), strict=True))
    table = filled_in(spec, found)
    vanilla, cot, orce = table.blocks[0].lines
    assert [line.sign for line in (vanilla, cot, orce)] == ["", sign, ""]
    assert {cell.mark for cell in cot.cells} == ({""} if sign else {"", "best"})
    marked = [line.cells[0].mark for line in (vanilla, orce)]
    assert marked == (["best", "second"] if sign else ["second", ""])
    tex, page = tex_of(spec, found), page_of(table)
    if sign:
        shown, below = TEX[sign]
        assert f"CoT$^{{{shown}}}$ &" in tex and f"{below}{{}} {NOT_RANKED[sign]}" in tex
        assert re.search(rf"CoT</a><sup title=[^>]+>{sign}</sup></th>", page)
        assert f"{sign} {NOT_RANKED[sign]}" in page
    else:
        assert "dagger" not in tex and not {"†", "‡"} & {*page}


def evaluated(path, records):
    """metrics.json of some confidences, by the step, in the current folder."""
    files.write_jsonl("stated.jsonl", records)
    given = {"split": "test", "n_correct": 1, "n_samples": 2, "kappa": 0.5, "answer": "1"}
    rows = [Row(id=one["id"], answer_correct=int(one["correct"]), **given) for one in records]
    with files.atomic("surrogate.csv") as handle:
        write_surrogate(handle, rows)
    settings = EVALUATE | {"method": Path(path).parent.name, "bootstrap": 2, "seed": 1}
    made = {"out": path, "extra": Path(path).with_name("extra.json")}
    read = {"confidences": "stated.jsonl", "surrogate": "surrogate.csv"}
    finished_run.step("evaluate", settings, **read, **made)
    return metrics_file.read_all([path])


@pytest.mark.parametrize("case", cases("collapsed"), ids=lambda case: case["case"])
def test_a_row_that_says_no_more_than_a_constant_is_marked_where_it_is_shown(case, folder, capsys):
    """In the log, in the rows so far, and in the tables."""
    stated = []
    for value, right, wrong in case["counts"]:
        stated += [(value, True)] * right + [(value, False)] * wrong
    records = [
        {"id": str(i), "answer": "1", "confidence": value, "correct": correct}
        for i, (value, correct) in enumerate(stated)
    ]
    spec = table_of("sft")
    (path,) = cells(spec)
    found = evaluated(path, records)
    logged = capsys.readouterr().err
    assert (f"metrics.json: {case['why']}" in logged) == (case["why"] is not None) == ("  sft ‡" in logged)
    table = tables.fill(resolved(spec), found, MODELS)
    assert ["‡" in line.sign for line in table.blocks[0].lines] == [bool(case["why"])]


def test_the_mean_of_the_distribution_is_a_second_block_with_marks_of_its_own():
    spec = table_of("vanilla", "consistency", "orce")
    found = all_metrics({"one": spec})
    for path, aurc in zip(found, (0.4, 0.2, 0.3), strict=True):
        mean = {"mean": metrics(aurc=aurc - 0.1)} if "consistency" not in path else {}
        found[path] = metrics(aurc=aurc, n_unparsed={"answer": 0, "confidence": 900}) | mean
    table = filled_in(spec, found)
    assert [(block.label, [line.row.method for line in block.lines]) for block in table.blocks] == [
        ("Small_LLM 1B", ["vanilla", "consistency", "orce"]),
        ("Small_LLM 1B, mean", ["vanilla", "orce"]),
    ]
    stated, mean = ([line.cells[3] for line in block.lines] for block in table.blocks)
    assert [cell.text for cell in mean] == ["0.300", "0.200"] and [cell.mark for cell in mean] == ["second", "best"]
    assert {cell.mark for cell in stated} == {""} and not any(line.sign for line in table.blocks[1].lines)
    assert any(note.startswith("Mean: the same models, read by the mean") for note in table.notes)


@pytest.mark.parametrize(
    ("masses", "named"),
    [((0.02, 0.004, 0.03), "0.018"), ((0.9, 0.1, 0.49), "0.497"), ((0.9, 0.1, 0.5), None), ((1, 1, 0.99), None), (None, None)],
)  # fmt: skip
@pytest.mark.parametrize("readout", ["stated", "mean"])
def test_a_note_names_the_rows_whose_mean_is_over_a_small_part_of_the_probability(masses, named, readout, folder):
    """From confidences.jsonl, where each question's distribution has its mass on the 101 values, to the table."""
    items = [("a", 0.9, 0.61, True), ("b", 0.1, 0.33, False), ("c", 0.5, 0.72, False)]
    rows = [
        {"id": name, "answer": "1", "correct": right, "mean": mean, "confidence": stated if readout == "stated" else mean}
        for name, stated, mean, right in items
    ]  # fmt: skip
    records = [row | ({"mass": masses[i]} if masses else {}) for i, row in enumerate(rows)]
    spec = table_of("vanilla", "cot")
    vanilla, cot = cells(spec)
    found = evaluated(vanilla, records) | read_in({cot: metrics()})
    table = tables.fill(resolved(spec), found, MODELS)
    said = [note for note in table.notes if "says little" in note]
    assert said == ([f"{LITTLE} Small_LLM 1B: Vanilla {named}."] if named else [])


LITTLE = (
    "A mean over 0 to 100 percent says little where these values have less than half of the probability, here on average "
    "over the items:"
)


def test_equal_readings_are_one_block_and_notes_and_f1():
    spec = SPECS["arithmetic"] | {"models": ["small"]}
    found = {path: one | {"mean": dict(one)} for path, one in all_metrics({"one": spec}).items()}
    assert len(filled_in(spec, found).blocks) == 1
    spec = table_of("vanilla", "sft", "orce")
    found = all_metrics({"one": spec})
    for path, half in zip(found, (0.0196, 0.0392, 0.0784), strict=True):
        found[path]["intervals"] = {"aurc": [0.4 - half, 0.4 + half]}
    assert "One standard error: AURC 0.020 (median over the rows)." in filled_in(spec, found).notes
    spec = table_of("vanilla") | {"dataset": "drop"}
    tex = tex_of(spec, {path: metrics(f1=0.568, accuracy=0.52) for path in cells(spec)}, MODELS)
    assert r"\textbf{F1} $\uparrow$" in tex and "0.568" in tex and "0.520" not in tex and "Accuracy" not in tex


def test_notes_count_what_was_unreadable_and_what_a_second_try_made_readable():
    """Of CoT's 30 second replies 7 could not be read either; all 4 of Vanilla's could not."""
    spec = table_of("vanilla", "cot", "orce")
    found = {path: metrics(ece=0.2 + 0.1 * i) for i, path in enumerate(cells(spec))}
    vanilla, cot, _ = found
    found[vanilla] |= {"n_retried": 4, "n_unparsed": {"answer": 0, "confidence": 4}}
    found[cot] |= {"n_retried": 30, "n_unparsed": {"answer": 2, "confidence": 7}}
    notes = [note for note in filled_in(spec, found).notes if "nreadable" in note or "second try" in note]
    assert notes == [
        "Unreadable answers, counted as wrong: Small_LLM 1B: CoT 2.",
        "Unreadable confidences, given the default confidence: Small_LLM 1B: Vanilla 4, CoT 7.",
        "Confidences read at a second try: Small_LLM 1B: CoT 23.",
    ]


def test_a_missing_cell_or_metric_and_rows_of_another_size_are_named():
    spec, found = golden_case()
    path = cells(spec)[1]
    with pytest.raises(BadInput, match=re.escape(path)):
        tex_of(spec, {key: value for key, value in found.items() if key != path}, MODELS)
    del found[path]["aurc"]
    with pytest.raises(BadInput, match=re.escape(path) + ".*aurc"):
        tex_of(spec, found, MODELS)
    spec, found = golden_case()
    found[cells(spec)[1]]["n"] = 1199
    assert "n = 1,200 except Small\\_LLM 1B: CoT 1,199." in tex_of(spec, found, MODELS)


class Page(html.parser.HTMLParser):
    """Checks that tags nest, and collects what a page loads and says."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loads, self.tags, self.titles = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if tag != "a":  # a link loads nothing
            self.loads += [attrs[key] for key in ("src", "href") if key in attrs]
        self.titles += [attrs["title"]] if "title" in attrs else []
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_is_one_accessible_page_without_requests():
    spec, found = golden_case()
    for one in found.values():
        one["spearman"]["log10_p"] = -451.25 if one["spearman"]["p"] == 0 else None
    text = page_of(filled_in(spec, found), "Summary <here>.")
    page = Page(text)
    assert page.open == [] and page.loads == [] and "url(" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text and 'lang="en"' in text
    assert "log10 p = -451.2" in page.titles and "constant confidence" in page.titles
    assert "Summary &lt;here&gt;." in text and "Sums &amp; products." in text
    rows = [attrs for tag, attrs in page.tags if tag == "th" and attrs.get("scope") == "row"]
    groups = [attrs for tag, attrs in page.tags if tag == "th" and attrs.get("scope") == "rowgroup"]
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert links == [f"../{path}" for path in cells(spec)], "a row names its metrics"
    assert len(rows) == 3 and [group["rowspan"] for group in groups] == ["3"]
    assert "0.160 to 0.180" in text and "4.682&#8239;×&#8239;10<sup>−5</sup>" in text


def pages_of(path):
    return program("pdftotext", "-layout", path, "-", check=True).stdout.split("\f")[:-1]


def test_build_writes_every_file_and_tables_of_a_demo_are_not_compared_with_the_paper(tmp_path, monkeypatch):
    written = build(SPECS, MODELS, all_metrics(), tmp_path, PROVENANCE)
    expected = {f"{name}.{kind}" for name in (*SPECS, "tables") for kind in ("tex", "html")}
    assert set(written) == expected | {"tables.pdf", "comparison.csv", "comparison.tex"}
    assert {path.name for path in tmp_path.iterdir()} == set(written), "no temporary file stays behind"
    document = written["tables.tex"].read_text()
    for fact in ("a1b2c3", "0f0f0f", "numpy 2.3.5, torch 2.13.0", r"\input{arithmetic.tex}"):
        assert fact in document
    lines = list(csv.DictReader(written["comparison.csv"].open()))
    assert len(lines) == 490 and {line["verdict"] for line in lines} == {"not run"}
    assert "None of the paper's 490 values was run" in document and r"\input{comparison.tex}" not in document
    for name in ("comparison.tex", "tables.html"):
        page = written[name].read_text()
        assert "None of the paper" in page and "not run" not in page, "one sentence, and not 490 lines"
    monkeypatch.setattr(tables.provenance, "commit", lambda: None)
    settings = layout.Tables(tables={}, order=[], models={}, tasks={})
    assert dict(tables.read_content(settings, [], []).facts)["git commit"] == "unknown"


EVERY = {**SPECS, "mmlu": {"kind": "main", "dataset": "mmlu", "models": list(comparison.MODELS)}}
WORDS = ("Spearman Correlation", "Small_LLM 1B", "ORCE", "Table 4", "a1b2c3")
INTERVAL = r"\[0\.\d{3}, 0\.\d{3}\]"


def rightmost(path):
    """Distance in points from the rightmost letter of a PDF's pages to the paper's edge."""
    page = program("pdftotext", "-bbox", path, "-", check=True).stdout
    width = float(re.search(r'<page width="([\d.]+)"', page)[1])
    return width - max(map(float, re.findall(r'xMax="([\d.]+)"', page)))


@pytest.fixture(scope="module")
def everything():
    """(tables, models, metrics) of every kind of table, with a comparison."""
    spec, found = golden_case()
    return {**EVERY, "sums": spec}, MODELS, {**all_metrics(EVERY), **found}


@pytest.fixture(scope="module")
def built(everything, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    build(*everything, folder, PROVENANCE)
    return folder


@pytest.mark.slow
def test_the_pdf_has_the_same_bytes_where_no_program_is_found(everything, built, tmp_path):
    (tmp_path / "arguments.json").write_text(json.dumps([*everything, "b", PROVENANCE]))
    code = "import json; from test_tables import build; build(*json.load(open('arguments.json')))"
    around = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7", "PATH": "/nowhere"}
    program(sys.executable, "-c", code, cwd=tmp_path, check=True, **around)
    first = (built / "tables.pdf").read_bytes()
    assert first == (tmp_path / "b" / "tables.pdf").read_bytes()
    assert first.startswith(b"%PDF") and b"CreationDate" not in first


def test_the_page_sets_every_published_value_beside_the_run(built):
    page = (built / "tables.html").read_text()
    assert page.count('<tr><th scope="row">') == 490
    assert "inside the interval" in page and "not run" in page


@pytest.mark.needs("poppler")
def test_the_pdf_has_every_table_and_the_comparison(built):
    pages = pages_of(built / "tables.pdf")
    text = " ".join("\n".join(pages).split())  # a note may break its line anywhere
    for words in (*WORDS, "0.025", "4.682", "Sums & products.", "CoT 12", "CoT†", "Accuracy", "Table 11"):
        assert words in text, words
    assert re.search(INTERVAL, text), "the comparison is set where the paper's cells were run"


@pytest.mark.slow
@pytest.mark.needs("latex", "poppler")
def test_the_latex_compiles_and_says_the_same(built):
    text = "\n".join(pages_of(compiled(built)))
    assert all(words in text for words in WORDS) and re.search(INTERVAL, text)


@pytest.mark.needs("latex", "poppler")
def test_no_table_runs_into_the_margin(tmp_path):
    models = {"small": {"label": "A model with a very long label of its own"}, "big": {"label": "Small_LLM zero-shot"}}
    found = {path: metrics(p=4.682e-5) for path in all_metrics()}
    by_typst = build(SPECS, models, found, tmp_path, PROVENANCE)["tables.pdf"]
    for pdf in (by_typst, compiled(tmp_path)):
        assert rightmost(pdf) > 70, "the margin is 72 points"


def compiled(folder):
    """tables.tex of a folder as pdflatex sets it."""
    options = ["-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "-jobname=latex"]
    done = subprocess.run(["pdflatex", *options, "tables.tex"], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-1500:]
    return folder / "latex.pdf"


PAPERS = "results/mmlu/llama3-8b/orce/metrics.json"


def mmlu_with(one):
    run = [line for line in compared({PAPERS: one}) if line.verdict != "not run"]
    return {(line.table, line.metric): line for line in run}


def test_a_value_is_inside_or_outside_its_interval_undefined_or_without_one():
    # Published: 0.025, 0.477, and 0.156, which may be 0.1555 unrounded.
    intervals = {"ece": [0.02, 0.03], "spearman": [0.48, 0.5], "aurc": [0.1, 0.1555], "e_aurc_analytic": None}
    one = metrics(0.026, 0.49, 0.0, 0.15, 0.08, None, intervals=intervals, reasons={"accuracy": "none"})
    found = mmlu_with(one)
    verdicts = {metric: line.verdict for (table, metric), line in found.items() if table == "mmlu"}
    assert verdicts == {
        "ece": "inside the interval", "rho": "outside by 0.003", "aurc": "inside the interval", "e_aurc": "no interval",
        "accuracy": "undefined",
    }  # fmt: skip
    assert found["mmlu", "ece"].difference == pytest.approx(0.001)
    assert {table for table, _ in found} == {"mmlu", "ablation"}, "ORCE on MMLU stands in two of the paper's tables"


def test_comparisons_take_the_analytic_e_aurc_and_a_calibrated_ece_as_inside():
    rng = np.random.default_rng(1)
    stated = rng.integers(0, 101, 500) / 100
    one = summarise(stated, rng.random(500) < stated, n_resamples=300)
    low, high = one["intervals"]["ece"]
    assert low <= 0.025 <= high and one["ece"] > 0.025
    assert mmlu_with(one)["mmlu", "ece"].verdict == "inside the interval"
    intervals = {"e_aurc": [0.01, 0.02], "e_aurc_analytic": [0.08, 0.1]}
    one = metrics(e_aurc=0.015, intervals=intervals) | {"e_aurc_analytic": 0.0891}
    found = mmlu_with(one)["mmlu", "e_aurc"]
    assert (found.published, found.reproduced, found.low, found.high) == ("0.089", 0.0891, 0.08, 0.1)
    assert found.verdict == "inside the interval"


def test_summary_counts_and_warns_of_another_test_set():
    intervals = {
        "ece": [0.02, 0.03], "spearman": [0.48, 0.5], "aurc": [0, 1], "e_aurc_analytic": [0, 1], "accuracy": [0, 1],
    }  # fmt: skip
    one = metrics(0.026, 0.49, 0.0, 0.15, 0.08, 0.66, intervals=intervals, n=14042)
    said = "Of the paper's 490 values, 8 are inside the reproduced interval, 2 outside, 480 not run."
    assert comparison.summary(compared({PAPERS: one})) == said
    text = comparison.summary(compared({PAPERS: {**one, "n": 100}}))
    assert text.endswith("The number of test items differs from the paper's in: ablation, mmlu.")


def test_comparison_files_carry_published_and_reproduced():
    intervals = {"ece": [0.02, 0.03], "spearman": [0.48, 0.5]}
    values = compared({PAPERS: metrics(0.0261234, 0.49, intervals=intervals)})
    line = next(row for row in csv.DictReader(comparison.to_csv(values).splitlines()) if row["verdict"] != "not run")
    assert (line["published"], line["reproduced"], line["low"], line["high"]) == ("0.025", "0.0261234", "0.02", "0.03")
    assert (line["n"], line["n_published"]) == ("1200", "14042")
    tex = tables.render_template("comparison.tex.j2", tables=comparison.in_tables(values), summary="")
    assert r"\makecell{0.025 $\to$ 0.026\\{}[0.020, 0.030]}" in tex
    assert r"\makecell{0.477 $\to$ 0.490\\{}\textbf{[0.480, 0.500]}}" in tex
