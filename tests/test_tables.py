"""Marks, formats, LaTeX, HTML, PDF and the comparison, on metrics made by hand. The paper's own numbers: test_published.py."""

import csv
import os
import re
import sys
from pathlib import Path

import msgspec
import pytest
from conftest import ROOT, cases, program
from finished_run import EVALUATE
from stages_by_hand import stage, write

from orce.config import layout
from orce.errors import BadInput
from orce.methods import Registry
from orce.reports import comparison, metrics_file, tables
from orce.reports.metrics_file import CellMetrics
from orce.reports.tables import marks
from orce.settings.schema import Table

MODELS = {
    "small": {"label": "Small_LLM 1B"}, "big": {"label": "A model with a very long label of its own"},
    "llama3-8b": {"label": "LLAMA-3 8B"},
}  # fmt: skip


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
    return layout.resolve(msgspec.convert(spec, Table), Registry())


def cells(spec):
    return layout.metrics_paths(msgspec.convert(spec, Table), Registry())


def build(specs, found, folder):
    """Every file of the tables: those of each table, and the document with the comparison."""
    filled = {name: filled_in({"label": f"tab:{name}"} | spec, found) for name, spec in specs.items()}
    content = tables.Content(filled, read_in(found), [*PROVENANCE.items()])
    return tables.build_tables(content, folder) | tables.build_document(content, folder)


def filled_in(spec, found, models=MODELS):
    return tables.fill(resolved(spec), read_in(found), models)


def tex_of(table):
    return tables.render_template("table.tex.j2", table=table)


def page_of(table):
    return tables.render_template(
        "tables.html.j2", tables=[table], facts=[*PROVENANCE.items()], summary="Summary <here>.", compared=[]
    )


def metrics(ece=0.2, rho=0.3, p=0.02, aurc=0.4, e_aurc=0.1, accuracy=0.5, **more):
    unread = {"answer": 0, "confidence": 0}
    intervals = {"ece": [ece - 0.01, ece + 0.01] if ece else None, "spearman": None}
    return {
        "ece": ece, "spearman": {"rho": rho, "p": p, "log10_p": None}, "aurc": aurc, "e_aurc": e_aurc,
        "e_aurc_analytic": e_aurc, "accuracy": accuracy, "f1": None, "n": 1200, "n_unparsed": unread,
        "intervals": intervals, "reasons": {}, **more,
    }  # fmt: skip


def all_metrics(*specs):
    paths = dict.fromkeys(path for spec in specs for path in cells(spec))
    return {path: metrics(ece=0.1 + 0.01 * index, p=4.682e-5) for index, path in enumerate(paths)}


def golden_case():
    spec = table_of("vanilla", "cot", "orce", caption="Sums & products.", label="tab:sums")
    unread = {"n_unparsed": {"answer": 12, "confidence": 1034}, "reasons": {"spearman": "constant confidence"}}
    rows = (
        metrics(0.17, 0.034, 4.682e-5, 0.332, 0.265, 0.657), metrics(0.5, None, None, 0.3131, 0.2311, 0.6574, **unread),
        metrics(0.025, -0.4774, 0.0, 0.3132, 0.089, 0.657),
    )  # fmt: skip
    return spec, dict(zip(all_metrics(spec), rows, strict=True))


@pytest.mark.parametrize(("why", "values", "best", "expected"), cases("best_values"))
def test_the_best_and_the_second_of_a_column_are_marked(why, values, best, expected):
    assert marks(values, best) == expected, why


def test_numbers_and_p_values_are_shown_as_in_the_paper():
    texts = ["1.000", "0.001", "1.000e-03", "1.000e-05", "1.000e-300", "0.000", "0.000"]
    assert [*map(tables.p_text, (1.0, 0.001, 0.00099996, 9.99996e-6, 1e-300, 9e-301, 0.0))] == texts
    assert [*map(tables.decimals, (-0.0004, -0.0006, 0.0005001, None))] == ["0.000", "-0.001", "0.001", "--"]


def test_a_new_method_needs_only_the_config_and_the_golden_table_stays():
    spec = table_of() | {"methods": {"mine": r"a_b & 100% {x} ~ ^ \ # $ <|>"}}
    tex = tex_of(filled_in(spec, all_metrics(spec), {}))
    special = r"\textasciitilde{} \textasciicircum{} \textbackslash{} \# \$ \textless{}\textbar{}\textgreater{}"
    assert r"\multirow{1}{*}{small}" in tex and rf"& a\_b \& 100\% \{{x\}} {special} &" in tex
    assert tex_of(filled_in(*golden_case())) == (ROOT / "tests" / "data" / "golden.tex").read_text()


def unread(confidences, answers=0):
    return {"n_unparsed": {"answer": answers, "confidence": confidences}}


@pytest.mark.parametrize(("changed", "sign", "shown", "why"), [
    (unread(120), "", "", ""),
    (unread(121), "†", r"$^{\dagger}$", "† More than a tenth of the confidences were unreadable: the row is not"),
    ({"n_distinct": 2}, "‡", r"$^{\ddagger}$", "‡ Fewer than three distinct confidences, or a Brier score above"),
], ids=["a tenth unread", "more unread", "two values"])  # fmt: skip
def test_a_row_that_says_too_little_has_a_sign_and_takes_no_place_of_another(changed, sign, shown, why):
    spec = table_of("vanilla", "cot", "orce")
    best = metrics(0.1, 0.9, 0.01, 0.1, 0.01, 0.9) | changed
    found = dict(zip(cells(spec), (metrics(ece=0.2), best, metrics(ece=0.4)), strict=True))
    table = filled_in(spec, found)
    tex, page, lines = tex_of(table), page_of(table), table.blocks[0].lines
    assert [line.sign for line in lines] == ["", sign, ""]
    assert {cell.mark for cell in lines[1].cells} == ({""} if sign else {"", "best"})
    assert [line.cells[0].mark for line in lines] == (["best", "", "second"] if sign else ["second", "best", ""])
    assert f"CoT{shown} &" in tex and tables.tex_escape(why) in tex and why in page
    assert re.findall(r"(\w+)</a><sup title=[^>]+>(.)</sup></th>", page) == ([("CoT", sign)] if sign else [])
    assert sign or "dagger" not in tex and not {"†", "‡"} & {*page}


def evaluated(path, records):
    """metrics.json of some confidences, by the step, in the current folder."""
    records = [{"id": str(i), "answer": "1"} | record for i, record in enumerate(records)]
    rows = [f"{one['id']},test,1,2,0.5,1,{int(one['correct'])}" for one in records]
    head = "id,split,n_correct,n_samples,kappa,answer,answer_correct"
    Path("surrogate.csv").write_text("\n".join([head, *rows]))
    settings = EVALUATE | {"method": Path(path).parent.name, "bootstrap": 2, "seed": 1}
    read = {"confidences": write("stated.jsonl", records), "surrogate": "surrogate.csv"}
    stage("evaluate", settings, **read, out=path, extra=Path(path).with_name("extra.json"))
    return metrics_file.read_all([path])


@pytest.mark.parametrize("case", cases("collapsed"), ids=lambda case: case["case"])
def test_a_row_that_says_no_more_than_a_constant_is_marked_where_it_is_shown(case, folder, capsys):
    """In the log, in the rows so far, and in the tables."""
    records = []
    for value, right, wrong in case["counts"]:
        records += [{"confidence": value, "correct": True}] * right + [{"confidence": value, "correct": False}] * wrong
    spec = table_of("sft")
    (path,) = cells(spec)
    found = evaluated(path, records)
    logged = capsys.readouterr().err
    assert (f"metrics.json: {case['why']}" in logged) == (case["why"] is not None) == ("  sft ‡" in logged)
    table = tables.fill(resolved(spec), found, MODELS)
    assert ["‡" in line.sign for line in table.blocks[0].lines] == [bool(case["why"])]


def test_a_mean_that_says_something_else_is_a_second_block_with_its_own_marks():
    spec = table_of("vanilla", "consistency", "orce")
    found = all_metrics(spec)
    for path, aurc in zip(found, (0.4, 0.2, 0.3), strict=True):
        mean = metrics(aurc=aurc - 0.1, rho=None, reasons={"spearman": "one value"})
        found[path] = metrics(aurc=aurc, **unread(900)) | ({} if "consistency" in path else {"mean": mean})
    table = filled_in(spec, found)
    assert [(block.label, [line.row.method for line in block.lines]) for block in table.blocks] == [
        ("Small_LLM 1B", ["vanilla", "consistency", "orce"]),
        ("Small_LLM 1B, mean", ["vanilla", "orce"]),
    ]
    stated, mean = ([line.cells[3] for line in block.lines] for block in table.blocks)
    assert [cell.text for cell in mean] == ["0.300", "0.200"] and [cell.mark for cell in mean] == ["second", "best"]
    assert {cell.mark for cell in stated} == {""} and not any(line.sign for line in table.blocks[1].lines)
    assert any(note.startswith("Mean: the same models, read by the mean") for note in table.notes)
    assert "one value): Small_LLM 1B: Vanilla (Spearman by the mean), ORCE (Spearman by the mean)." in table.notes[-1]
    for differs, blocks in (({}, 1), ({"ece": 0.9}, 2)):  # all right or all wrong: one AURC, whatever the confidence
        found = {path: one | {"mean": one | differs} for path, one in all_metrics(spec).items()}
        assert len(filled_in(spec, found).blocks) == blocks


@pytest.mark.parametrize(("masses", "named"), [((0.9, 0.1, 0.49), "0.497"), ((0.9, 0.1, 0.5), None), (None, None)])
@pytest.mark.parametrize("readout", ["stated", "mean"])
def test_a_note_names_the_rows_whose_mean_is_over_a_small_part_of_the_probability(masses, named, readout, folder):
    """From confidences.jsonl, where each question's distribution has its mass on the 101 values, to the table."""
    records = []
    for i, (stated, mean, right) in enumerate([(0.9, 0.61, True), (0.1, 0.33, False), (0.5, 0.72, False)]):
        read = {"correct": right, "mean": mean, "confidence": stated if readout == "stated" else mean}
        records.append(read | ({"mass": masses[i]} if masses else {}))
    spec = table_of("vanilla", "cot")
    vanilla, cot = cells(spec)
    table = tables.fill(resolved(spec), evaluated(vanilla, records) | read_in({cot: metrics()}), MODELS)
    said = [note for note in table.notes if "less than half of the probability" in note]
    expected = [f"Small_LLM 1B: Vanilla {named}."] if named else []
    assert [note.partition("over the items: ")[2] for note in said] == expected


def test_notes_say_errors_sizes_second_tries_and_which_pairs_a_reward_sees():
    """Of CoT's 30 second replies 7 could not be read either; all 4 of Vanilla's could not."""
    spec = table_of("vanilla", "cot", "orce")
    found = {path: metrics(ece=0.2 + 0.1 * i) for i, path in enumerate(cells(spec))}
    vanilla, cot, orce = found
    found[vanilla] |= {"n_retried": 4} | unread(4)
    found[cot] |= {"n_retried": 30, "n": 1199} | unread(7, answers=2)
    for path, half in ((vanilla, 0.0196), (cot, 0.0392), (orce, 0.0784)):
        found[path]["intervals"] = {"aurc": [0.4 - half, 0.4 + half]}
    assert filled_in(spec, found).notes == [
        "n = 1,200 except Small_LLM 1B: CoT 1,199.",
        "One standard error: AURC 0.020 (median over the rows).",
        "Unreadable answers, wrong unless given as right: Small_LLM 1B: CoT 2.",
        "Unreadable confidences, given the default confidence: Small_LLM 1B: Vanilla 4, CoT 7.",
        "Confidences read at a second try, or decoded among the 101 values alone: Small_LLM 1B: CoT 23.",
    ]
    asked = ("ablation", "improving"), ("ablation", "all"), ("arithmetic", "improving")
    (note,), *others = (tables.selection_notes(resolved(SPECS[name]), accept) for name, accept in asked)
    assert "all pairs of every other reward" in note and others == [[], []]


def test_a_missing_cell_or_metric_is_named():
    spec, found = golden_case()
    path = cells(spec)[1]
    with pytest.raises(BadInput, match=re.escape(path)):
        filled_in(spec, {key: value for key, value in found.items() if key != path})
    del found[path]["aurc"]
    with pytest.raises(BadInput, match=re.escape(path) + ".*aurc"):
        filled_in(spec, found)


def test_html_is_one_accessible_page_without_requests():
    spec, found = golden_case()
    [*found.values()][2]["spearman"]["log10_p"] = -451.25
    text = page_of(filled_in(spec, found))
    opened = []
    for end, tag in re.findall(r"<(/?)([a-z]\w*)", text):
        if end:
            assert opened.pop() == tag
        elif tag not in ("meta", "br", "link", "img"):
            opened.append(tag)
    assert opened == []
    links = re.findall(r'<a [^>]*href="([^"]+)"', text)
    assert links == [f"../{path}" for path in cells(spec)], "a row names its metrics"
    assert not re.search(r"""(<(?!a )[^>]*\bhref| src)=|url\(|@import""", text), "nothing is loaded"
    assert "prefers-color-scheme: dark" in text and 'lang="en"' in text
    assert 'title="log10 p = -451.2"' in text and 'title="constant confidence"' in text
    assert "Summary &lt;here&gt;." in text and "Sums &amp; products." in text
    assert text.count('scope="row"') == 3 and re.findall(r'scope="rowgroup" rowspan="(\d)"', text) == ["3"]
    assert "0.160 to 0.180" in text and "4.682&#8239;×&#8239;10<sup>−5</sup>" in text


def pages_of(path):
    return program("pdftotext", "-layout", path, "-", check=True).stdout.split("\f")[:-1]


def test_build_writes_every_file_and_tables_of_a_demo_are_not_compared_with_the_paper(tmp_path, monkeypatch):
    written = build(SPECS, all_metrics(*SPECS.values()), tmp_path)
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


def says_everything(path, *more):
    text = " ".join("\n".join(pages_of(path)).split())  # a note may break its line anywhere
    for words in ("Spearman Correlation", "Small_LLM 1B", "ORCE", "Table 4", "a1b2c3", *more):
        assert words in text, words
    assert re.search(r"\[0\.\d{3}, 0\.\d{3}\]", text), "the comparison is set where the paper's cells were run"


def keeps_its_margin(path):
    page = program("pdftotext", "-bbox", path, "-", check=True).stdout
    width = float(re.search(r'<page width="([\d.]+)"', page)[1])
    rightmost = max(map(float, re.findall(r'xMax="([\d.]+)"', page)))
    return width - rightmost > 70  # points: of the margin's 72 a letter may have two


def build_everything(folder):
    """Every kind of table, with a comparison."""
    specs = SPECS | {"mmlu": {"kind": "main", "dataset": "mmlu", "models": [*comparison.MODELS]}}
    golden, found = golden_case()
    build(specs | {"sums": golden}, all_metrics(*specs.values()) | found, folder)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build_everything(tmp_path_factory.mktemp("built"))


@pytest.mark.slow
def test_the_pdf_has_the_same_bytes_where_no_program_is_found(built, tmp_path):
    code = "from test_tables import build_everything; build_everything('b')"
    around = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7", "PATH": "/nowhere"}
    program(sys.executable, "-c", code, cwd=tmp_path, check=True, **around)
    first = (built / "tables.pdf").read_bytes()
    assert first == (tmp_path / "b" / "tables.pdf").read_bytes()
    assert first.startswith(b"%PDF") and b"CreationDate" not in first


@pytest.mark.needs("poppler")
def test_the_pdf_and_the_page_have_every_table_and_the_comparison(built):
    page = (built / "tables.html").read_text()
    assert page.count('<tr><th scope="row">') == 490, "every published value"
    assert "inside the interval" in page and "not run" in page
    more = ("0.025", "4.682", "Sums & products.", "CoT 12", "CoT†", "Accuracy", "Table 11")
    says_everything(built / "tables.pdf", *more)
    assert keeps_its_margin(built / "tables.pdf")


@pytest.mark.slow
@pytest.mark.needs("latex", "poppler")
def test_the_latex_compiles_says_the_same_and_keeps_its_margin(built):
    says_everything(compiled(built))
    assert keeps_its_margin(built / "latex.pdf")


def compiled(folder):
    """tables.tex of a folder as pdflatex sets it."""
    options = ["-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "-jobname=latex"]
    done = program("pdflatex", *options, "tables.tex", cwd=folder)
    assert done.returncode == 0, done.stdout[-1500:]
    return folder / "latex.pdf"


def test_the_comparison_says_whether_each_published_value_agrees():
    """By the row of ORCE on MMLU, which stands in two of the paper's tables."""

    def compared(**changed):
        return comparison.compare(read_in({"results/mmlu/llama3-8b/orce/metrics.json": one | changed}))

    # Published: 0.025, 0.477, 0.156, which may be 0.1555 unrounded, and an E-AURC of 0.089 that is the analytic one.
    intervals = {"ece": [0.02, 0.03], "spearman": [0.48, 0.5], "aurc": [0.1, 0.1555], "e_aurc": [0.01, 0.02]}
    one = metrics(0.0261234, 0.49, 0.0, 0.15, 0.015, 0.66, intervals=intervals | {"e_aurc_analytic": [0.08, 0.1]})
    one |= {"e_aurc_analytic": 0.0891, "n": 14042}
    found = {line.metric: line for line in compared() if line.table == "mmlu" and line.verdict != "not run"}
    assert {metric: line.verdict for metric, line in found.items()} == {
        "ece": "inside the interval", "rho": "outside by 0.003", "aurc": "inside the interval",
        "e_aurc": "inside the interval", "accuracy": "no interval",
    }  # fmt: skip
    assert found["ece"].difference == pytest.approx(0.0011234)
    analytic = found["e_aurc"]
    assert (analytic.published, analytic.reproduced, analytic.low, analytic.high) == ("0.089", 0.0891, 0.08, 0.1)
    undefined = compared(accuracy=None, reasons={"accuracy": "none"})
    assert {line.metric for line in undefined if line.verdict == "undefined"} == {"accuracy"}
    assert compared(ece=0.9, readout="mean", stated=dict(one)) == compared(), "the paper's are stated confidences"
    said = "Of 490 values of the paper, 6 are inside the reproduced interval, 2 outside, 480 not run, 2 no interval."
    assert comparison.summary(compared()) == said
    values = compared(n=100)
    assert comparison.summary(values) == f"{said} The number of test items differs from the paper's in: ablation, mmlu."
    line = next(row for row in csv.DictReader(comparison.to_csv(values).splitlines()) if row["verdict"] != "not run")
    assert (line["published"], line["reproduced"], line["low"], line["high"]) == ("0.025", "0.0261234", "0.02", "0.03")
    assert (line["n"], line["n_published"]) == ("100", "14042")
    tex = tables.render_template("comparison.tex.j2", tables=comparison.in_tables(values), summary="")
    assert r"\makecell{0.025 $\to$ 0.026\\{}[0.020, 0.030]}" in tex
    assert r"\makecell{0.477 $\to$ 0.490\\{}\textbf{[0.480, 0.500]}}" in tex
