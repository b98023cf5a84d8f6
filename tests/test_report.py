"""What people read of a run: the report in its one file, the rows so far and `orce compare`."""

import base64
import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import small_matrix
import yaml
from conftest import ROOT, cases, program
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from test_any_data import written
from test_workflow import plan, snakemake

from orce import methods, metrics, stages, tasks
from orce.__main__ import main
from orce.artefacts import store
from orce.config import layout
from orce.config.check import read_config
from orce.metrics.definitions import EXTRA, METRICS
from orce.metrics.summary import Stated
from orce.reports import figures
from orce.settings import load
from orce.settings.stage import CellPicture, parse_argument, to_mapping
from orce.stages import prompts
from orce.stages.figures import FiguresSettings


def data(text: str, name: str):
    """What a report holds under a name."""
    *_, last = re.finditer(rf'var {name} = (?=[{{"])', text)
    return json.JSONDecoder().raw_decode(text[last.end() :])[0]


@pytest.mark.slow
def test_the_report_is_one_file_with_every_table_picture_and_metric_of_the_run_in_its_category(straight, tmp_path):
    folder = shutil.copytree(straight, tmp_path / "project", symlinks=True)
    everything = ("--configfile", "small.yaml", "--cores", "1", "--", "all")
    snakemake(*everything, folder=folder)
    assert "Nothing to be done" in snakemake(*everything, folder=folder), "a second run has nothing to draw"
    snakemake("--report", "report.html", *everything, folder=folder)
    text = (folder / "report.html").read_text()
    assert not re.search(r"""(src|href)=["']https?://""", text), "nothing is asked of the network"
    listed, results, page = (data(text, name) for name in ("categories", "results", "workflow_desc"))
    assert {name: sorted(path for some in paths.values() for path in some) for name, paths in listed.items()} == {
        "Figures": ["figures/reliability-mmlu_small.png", "figures/risk-coverage-mmlu_small.png"],
        "Tables": ["paper_tables/main.html", "paper_tables/tables.html"],
        "Comparison with the paper": ["paper_tables/comparison.csv"],
        "Metrics": ["results/metrics.csv"],
    }
    labels = {"picture": "reliability", "of": "MMLU, small"}
    assert results["figures/reliability-mmlu_small.png"]["labels"] == labels
    for path, file in results.items():
        content = base64.b64decode(file["data_uri"].partition("base64,")[2])
        assert content == (folder / path).read_bytes(), path
    tables = (folder / "paper_tables/tables.html").read_text()
    found = json.loads((folder / "results/mmlu/small/orce/metrics.json").read_text())
    assert f"{found['aurc']:.3f}" in tables and f"{found['ece']:.3f}" in tables
    pictures = re.findall(r'<img [^>]*alt="[^"]*/([\w-]+)\.png"', page)
    assert pictures == ["risk-coverage-mmlu_small", "reliability-mmlu_small"]
    assert page.count("<iframe") == 1 and page.index("<iframe") < page.index("<img"), "it opens on the tables"
    assert "System Message" not in page, "docutils complains in the page"
    said = " ".join((page + "".join(file["caption"] for file in results.values())).split())
    for words in ("ten bins of ECE", "expectation over all orders", "200 resamples", "Datasets: mmlu. Models: "):
        assert words in said
    timed = {one["rule"] for one in data(text, "runtimes_spec")["data"]["values"]}
    assert timed >= {"evaluate", "tables", "figures", "metrics_csv"}


CELL = "results/sums/small"


def write(cell: Path, method: str, confidences: list, correct: list) -> None:
    rows = enumerate(zip(confidences, correct, strict=True))
    lines = [{"id": str(i), "answer": "A", "correct": right, "confidence": c} for i, (c, right) in rows]
    store.write(cell / method / "confidences.jsonl", lines)


@pytest.fixture
def cell(folder):
    """A cell with four methods, of which Consistency states one value for all."""
    for method, confidences in {
        "vanilla": [0.9, 0.2, 0.8, 0.1],
        "sft": [0.1, 0.9, 0.2, None],
        "orce": [0.1, 0.9, 0.2, 0.8],
        "consistency": [0.5] * 4,
    }.items():
        write(folder / CELL, method, confidences, [0, 1, 0, 1])


def test_the_usual_methods_are_compared_those_of_another_model_too_and_the_others_named(cell, capsys):
    def compared(*arguments) -> list[str]:
        assert main(["compare", "--resamples", "50", CELL, *arguments]) == 0
        return capsys.readouterr().err.splitlines()

    lines = compared()
    assert lines.pop(0) == f"{CELL}: sft: 1 of 4 confidences unread, which count as the default †"
    assert lines[0].startswith(f"{CELL}: aurc of sft - vanilla: -0.") and "(n = 4, same answers)" in lines[0]
    assert lines[1].startswith(f"{CELL}: aurc of orce - vanilla: -0.")
    assert lines[2:] == [f"{CELL}: other methods of this cell, for --methods: consistency"]
    (line,) = compared("--methods", "orce", "consistency", "--metric", "spearman")
    assert "spearman of consistency - orce: undefined, as spearman is for one of them, or on most resamples" in line
    for method in ("sft", "orce"):
        store.write(f"{CELL}/{method}-from-large/confidences.jsonl", store.read(f"{CELL}/{method}/confidences.jsonl"))
        shutil.rmtree(f"{CELL}/{method}")
    expected = [f"aurc of {method}-from-large - vanilla" for method in ("sft", "orce")]
    assert [line.split(": ")[1] for line in compared()[1:3]] == expected, "after the line of the unread"


@pytest.mark.parametrize(("words", "message"), cases("wrong_names"))
def test_a_wrong_name_is_answered_with_those_that_there_are(cell, capsys, words, message):
    assert main(words.replace("CELL", str(CELL)).split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"orce {words.split()[0]}: {message.replace('CELL', str(CELL))}")


def test_it_shows_the_rows_so_far_in_the_tables_order(tmp_path):
    cell = tmp_path / CELL
    unread, none = ({"n": 120, "n_unparsed": {"answer": 0, "confidence": n}} for n in (3, 0))
    store.write_object(cell / "orce" / "metrics.json", unread)
    values = {"accuracy": 0.5, "ece": 0.25, "aurc": 0.125, "auroc": None, "spearman": {"rho": -0.0004}}
    store.write_object(cell / "consistency" / "metrics.json", none | values)
    done = program(sys.executable, ROOT / "tools" / "rows.py", tmp_path / "results", check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "sums, small, 120 test questions"
    assert [line.split() for line in lines[1:]] == [
        ["accuracy", "ece", "aurc", "auroc", "spearman", "unread"],
        ["consistency", "0.500", "0.250", "0.125", "-", "0.000", "0"],
        ["orce", "-", "-", "-", "-", "-", "3"],
    ]  # fmt: skip


PICTURED = CellPicture(dataset="sums", model="small", label="sums, Small 1B")
LABELLED = {"vanilla": "Vanilla", "sft": "SFT", "orce": "ORCE"}


def series(confidence, correct, method="orce", answer="A", unread=0):
    n = len(correct)
    read = Stated(
        ids=[*map(str, range(n))], answers=[answer] * n, confidence=np.array(confidence), correct=np.array(correct),
        f1=None, as_stated=None, mean=None, mass=None, unread=unread, distinct=n - unread, retried=0,
    )  # fmt: skip
    return figures.Series(method, LABELLED.get(method, method), read)


def stated(method="orce", unread=0):
    rng = np.random.default_rng(0)
    confidence = rng.integers(0, 101, 200) / 100
    return series(confidence, rng.random(200) < confidence, method, unread=unread)


def drawn(draw, *shown):
    with matplotlib.rc_context(figures.style()):
        return draw(PICTURED, shown)


def test_a_bin_is_a_circle_of_its_size_with_the_interval_of_its_accuracy():
    one = stated()
    panel = drawn(figures.draw_reliability, one).axes[0]
    _, count, confidence, accuracy = metrics.reliability_bins(one.stated.confidence, one.stated.correct)
    assert np.allclose(panel.collections[1].get_sizes(), figures.SMALLEST + figures.LARGEST * count / 200)
    gaps = np.array(panel.collections[0].get_segments())
    assert np.allclose(gaps[:, :, 0], confidence[:, None])
    assert np.allclose(gaps[:, :, 1], np.column_stack([confidence, accuracy]))
    panel = drawn(figures.draw_reliability, series(np.full(10, 0.75), np.arange(10) < 7)).axes[0]
    [interval] = panel.collections[2].get_segments()
    assert [one.get_label() for one in figures._legend_of_bins(3)[3:]] == [f"{k} of 3 items" for k in (1, 2, 3)]
    # Newcombe (Statistics in Medicine 17, 857, 1998) has .3968 to .8922 for 7 of 10 by Wilson's score.
    assert interval[:, 0].tolist() == [0.75, 0.75] and interval[:, 1] == pytest.approx([0.3968, 0.8922], abs=5e-5)


def test_nineteen_of_twenty_random_orders_are_within_the_band_and_a_perfect_one_is_not():
    correct = np.arange(100) < 60
    low, high = figures.random_band(correct)
    rng, drawn_items = np.random.default_rng(0), np.arange(1, 101)
    risks = np.array([np.cumsum(~rng.permutation(correct)) / drawn_items for _ in range(4000)])
    inside = ((risks >= low) & (risks <= high)).mean(axis=0)
    assert inside.min() > 0.94 and inside[30:70].max() < 0.99
    assert low[-1] == high[-1] == pytest.approx(0.4) and (np.cumsum(~correct) / drawn_items < low)[10:60].all()
    assert figures.BAND in drawn(figures.draw_risk_coverage, stated()).axes[0].get_legend_handles_labels()[1]


def test_the_baselines_are_those_of_the_answers_that_most_methods_judge():
    three = [stated(method) for method in LABELLED]
    other = series(np.ones(200), np.zeros(200), "cot", answer="B")
    assert figures.most_judged([other.stated, *(one.stated for one in three)]) is three[0].stated
    axes = drawn(figures.draw_risk_coverage, other, *three).axes[0]
    thin = [line for line in axes.lines if line.get_linewidth() == 0.5]
    assert [line.get_ydata().tolist() for line in thin] == [[1.0] * 200]  # its answers are all wrong, in any order


def words_of_both(*shown) -> list[str]:
    """Everything that stands in the two pictures."""
    both = (drawn(draw, *shown) for draw in (figures.draw_reliability, figures.draw_risk_coverage))
    return ["\n".join(text.get_text() for text in figure.findobj(Text)) for figure in both]


def test_what_is_unread_constant_all_right_or_missing_is_named():
    reliability, risk = words_of_both(series([0.9, 0.5, 0.1], [1, 0, 0], "sft", unread=1))
    assert "1 of 3 unread" in reliability and "SFT 0.389 (1 unread)" in risk
    assert "every confidence is the same" in words_of_both(series([0.9] * 3, [1, 0, 0]))[0]
    reliability, risk = words_of_both(series([0.2, 0.4, 0.9], np.ones(3), "sft"))
    assert "all answers are right" in reliability and "SFT 0.000" in risk
    reliability, risk = words_of_both(series([0.5] * 3, [1, 0, 0], "CoT", unread=3), stated())
    assert "no confidence could be read" in reliability and reliability.count("ECE") == 1 and "CoT (none read)" in risk
    gone = figures.Series("topk", "Top-k", None)
    reliability, risk = words_of_both(gone, stated())
    assert "Top-k" in reliability and "no confidences.jsonl" in reliability and "missing: Top-k" in risk
    assert "no confidences" in words_of_both(gone)[1]


def test_every_curve_of_a_picture_has_a_look_of_its_own():
    field = load.read_mapping(ROOT / "config" / "field.yaml")["tables"]["field-arithmetic"]["methods"]
    looks = [*figures.style()["axes.prop_cycle"]]
    assert len({str(look) for look in looks}) == len(looks) >= len(field)
    methods = [*layout.KINDS["main"]]
    axes = drawn(figures.draw_risk_coverage, *map(stated, methods)).axes[0]
    expected = [(look["color"], look["marker"]) for look in looks[: len(methods)]]
    assert [(line.get_color(), line.get_marker()) for line in axes.lines[2:]] == expected, "after the two baselines"


@pytest.mark.slow
def test_the_pictures_have_equal_bytes_twice_the_papers_widths_and_embedded_fonts(tmp_path):
    """Drawn twice by the command, in processes that hash differently."""
    rng = np.random.default_rng(0)
    for method in ("vanilla", "orce"):
        confidence = (rng.integers(0, 101, 60) / 100).tolist()
        write(tmp_path / CELL, method, [None, *confidence[1:]], (rng.random(60) < 0.5).tolist())
    cell = to_mapping(PICTURED) | {"methods": list(LABELLED.items())}
    wanted = json.dumps({"cells": [cell], "unparsed_confidence": 0.5})
    command = [sys.executable, "-m", "orce", "figures", "--settings", wanted, "--out"]
    for seed in ("1", "2"):
        program(*command, tmp_path / seed, cwd=tmp_path, check=True, PYTHONHASHSEED=seed)
    names = parse_argument(FiguresSettings, wanted).names()
    made = {f"{name}.{kind}" for name in names for kind in ("pdf", "png")}
    assert {path.name for path in (tmp_path / "1").iterdir()} == made | {"manifest.json"}
    for name in made:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name
    for name, about in names.items():
        path = tmp_path / "1" / f"{name}.pdf"
        content = path.read_bytes()
        assert b"CreationDate" not in content and b"/FontFile2" in content and b"/Type3" not in content
        assert b"/Subtype /Image" not in content, "vectors only"
        inches = figures.COLUMN if about["kind"] == "risk-coverage" else figures.PAGE
        if shutil.which("pdfinfo"):
            assert f"{72 * inches:g} x" in program("pdfinfo", path, check=True).stdout.split("Page size:")[1]


@pytest.mark.parametrize(("draw", "shown"), [
    (figures.draw_reliability, LABELLED), (figures.draw_risk_coverage, LABELLED),
    (figures.draw_risk_coverage, ["Token probability + Temperature"] * 21),
], ids=["reliability", "risk-coverage", "long labels"])  # fmt: skip
def test_no_type_is_below_seven_points_and_none_leaves_the_picture(draw, shown):
    figure = drawn(draw, *(stated(method, unread=3) for method in shown))
    box, renderer = figure.bbox, FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip():
            assert text.get_fontsize() >= 7, text.get_text()
            extent = text.get_window_extent(renderer)
            assert extent.x0 >= box.x0 - 1 and extent.x1 <= box.x1 + 1, text.get_text()
            assert extent.y0 >= box.y0 - 1 and extent.y1 <= box.y1 + 1, text.get_text()


@pytest.mark.slow
def test_files_of_ones_own_become_rows_by_configuration_alone(tiny, letters, shared, project):
    """Files with the columns of StrategyQA and of GSM8K, models that answer them, and a configuration without any code."""
    for name in ("ships", "sums"):
        (project / name).mkdir()
    ships = [{"qid": f"q{i}", "question": f"Can {i} ships sail?", "facts": ["Wet."]} for i in range(24)]
    answered = [one | {"answer": "Maybe" if i % 2 else "Yes"} for i, one in enumerate(ships)]
    written(project / "ships" / "test.jsonl", answered)
    sums = [{"question": f"Tom has {i} of 4.", "answer": f"4-3=<<4-3=1>>\n#### {1 + i % 4}"} for i in range(48)]
    written(project / "sums" / "train.jsonl", sums[:24])
    written(project / "sums" / "test.jsonl", sums[24:])
    digits = shared("digits", lambda place: small_matrix.letter_model(tiny, place, "1234"))
    paths = {"letters": letters, "digits": str(digits)}
    models = {name: {"label": name.title(), "source": {"path": path}} for name, path in paths.items()}
    config = yaml.safe_load((ROOT / "tests" / "data" / "field.yaml").read_text())
    (project / "mine.yaml").write_text(yaml.safe_dump(config | {"models": models}))
    made = ["--configfile", "mine.yaml", "--cores", "2", "--", "results/metrics.csv", "paper_tables/sums.tex"]
    snakemake(*made, folder=project)
    results = project / "results"
    board = pd.read_csv(results / "metrics.csv")
    tables = config["tables"].values()
    rows = {(one.dataset, one.method) for one in board.itertuples()}
    assert rows == {(table["dataset"], method) for table in tables for method in table["methods"]}
    for _, part in board.groupby(["dataset", "method"]):
        assert set(part["metric"]) >= {*METRICS, *EXTRA} and set(part["n"]) == {24}
    assert "Semantic entropy" in set(board["label"])
    assert "Consistency + Platt" in (project / "paper_tables" / "sums.tex").read_text()
    linguistic = json.loads((results / "ships/letters/linguistic/metrics.json").read_text())
    assert linguistic["n_unparsed"]["confidence"] > 0, "counted, never dropped"
    for method, first in (("consistency+platt", "consistency"), ("mix", "likelihood")):
        fit = json.loads((results / f"sums/digits/{method}/fit.json").read_text())
        assert fit["n"] == 24 and fit["n_in_test_set"] == 0
        assert fit["fitted_on"][0] == f"results/sums-fit/digits/{first}/confidences.jsonl"
    assert not [*results.glob("sums-fit/*/*/metrics.json")], "what is fitted on is not evaluated"
    assert "Nothing to be done" in plan(*made, folder=project)


def test_a_thousand_generated_questions_are_tested_and_no_question_is_trained_on_and_tested():
    names = ("config.yaml", "config/demo.yaml", "config/field-generated.yaml")
    config = read_config([ROOT / name for name in names])
    for name in ("arithmetic-all", "worldfacts-all"):
        settings = stages.pick_settings("prompts", config, name)
        sft, rl, test = (prompts.draw_split(settings, split) for split in ("sft", "rl", "test"))
        assert len(test) == 1000 and len(sft) + len(rl) >= 68
        texts = [one["question"] for one in [*sft, *rl, *test]]
        task = tasks.get(config.datasets[name].task)
        every = [one for split in ("train", "validation", "test") for one in task.load({}, split)]
        assert len(texts) == len({*texts}) == len(every)


def areas(name: str) -> pd.Series:
    """AUROC by (method, dataset) of a stored table."""
    rows = pd.read_csv(ROOT / "docs" / "field" / f"{name}.csv")
    return rows[rows.metric == "auroc"].set_index(["method", "dataset"])["value"]


def decimals(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1).replace("-", "−")


def test_the_page_describes_each_row_and_shows_the_stored_values():
    config = read_config([ROOT / "config.yaml", ROOT / "config" / "demo.yaml", ROOT / "config" / "field.yaml"])
    first, second = (config.tables[name] for name in config.paper_tables)
    assert first.methods == second.methods
    kinds = {methods.of(config).find(name).kind for name in first.methods}
    assert kinds == {"prompted", "measured", "stated", "fitted"}
    page = (ROOT / "docs" / "field.md").read_text()
    described, found = page.split("## The demo's table")
    for row in first.methods:
        method, _, calibration = row.partition("+")
        assert f"| `{f'METHOD+{calibration}' if calibration else method}` |" in described
    board = pd.read_csv(ROOT / "docs" / "field" / "metrics.csv").set_index(["dataset", "metric"])
    for table in (first, second):
        assert {*board.loc[(table.dataset, "ece"), "method"]} >= {*table.methods}
    values = {decimals(value) for value in board.query("metric in ('ece', 'auroc')")["value"].dropna()}
    assert {".830", ".073"} <= {*re.findall(r"\.\d{3}", found)} <= values
    facts, drawn = areas("wikidata"), areas("generated")
    rows = {name: (facts[name, "qa-wikidata"], drawn[name, "arithmetic-all"]) for name, _ in facts.index}
    shown = dict(re.findall(r"^\| `(\w+)` \|.* \| ((?:\.\d{3} ?){2}) \|$", page, re.MULTILINE))
    assert len(shown) == 18 and shown == {name: " ".join(map(decimals, both)) for name, both in rows.items()}


def test_the_picture_of_the_field_marks_every_method_and_hollow_where_little_could_be_read():
    made = runpy.run_path(str(ROOT / "docs" / "frontier.py"))
    (axes,) = made["draw"](made["stored"]()).axes
    marked = {line.get_label(): line for line in axes.lines if line.get_marker() != "None"}
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
    assert [len(line.get_xdata()) for line in hollow] == [1], "95 of 100 of linguistic on countries could not be read"
    marks = {name: len(line.get_xdata()) for name, line in marked.items() if not name.startswith("_")}
    assert marks == {"sums": 29, "countries": 30, "Wikidata": 18}, "of linguistic on sums nothing could be read"
    assert {"orce", "sft", "agreement"} <= {label.get_text() for label in axes.get_yticklabels()}


def test_the_decision_page_says_what_the_stored_tables_say():
    """Its numbers, which row is best on the demo's sets, and that no trained statement ranks as well as the answer's probability."""
    page = " ".join((ROOT / "docs" / "which.md").read_text().split())
    demo, facts, drawn = areas("metrics"), areas("wikidata"), areas("generated")
    means = demo[demo.index.get_level_values("dataset").isin(["arithmetic", "worldfacts"])].groupby("method").mean()
    first, second = means.sort_values(ascending=False).index[:2]
    assert f"(`{second}`) has a mean AUROC of {decimals(means[second])}" in page
    assert f"(`{first}`, {decimals(means[first])})" in page
    needs = pd.read_csv(ROOT / "docs" / "field" / "needs.csv", index_col="method")
    spoken = [name for name in means.index if needs["judge"][name]]
    assert len(spoken) > 10 and means[spoken].max() < means["likelihood"] < means["sequence_probability"]
    facts, drawn = facts.xs("qa-wikidata", level="dataset"), drawn.xs("arithmetic-all", level="dataset")
    assert "`likelihood`, is at chance. There the product is the best method without graded questions" in page
    assert abs(facts["likelihood"] - 0.5) < 0.05 and facts["agreement"] < facts["sequence_probability"]
    assert "a `probe` fitted on 500 is far better" in page and facts["probe"] > facts["sequence_probability"] + 0.1
    assert "Fitted on 168 in place of 300, `probe` is worse than the product on the demo's arithmetic" in page
    assert drawn["probe"] < drawn["sequence_probability"]
