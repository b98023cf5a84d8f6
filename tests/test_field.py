"""From a file of one's own to every metric of the field's baselines, by configuration alone."""

import json
import runpy
import shutil

import numpy as np
import pandas as pd
import pytest
import small_matrix
import yaml
from conftest import ROOT
from scipy.special import expit
from test_any_data import written
from test_workflow import plan, snakemake

from orce import methods, stages, tasks
from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import graph
from orce.config.check import read_config
from orce.metrics import summarise, summarise_extra
from orce.metrics.definitions import EXTRA, METRICS
from orce.stages import metrics_csv, prompts

SHOWN = ["ece", "auroc"]  # in docs/field.md, of the demo's rows that no table of a thousand questions has
SHIPS = ["likelihood", "p_true", "semantic_entropy", "weighted_semantic_entropy", "linguistic"]
SUMS = ["consistency", "consistency+platt", "likelihood", "agreement", "cocoa", "mix", "cocoa+platt"]
CONFIG = yaml.safe_load((ROOT / "tests" / "data" / "field.yaml").read_text())


@pytest.fixture(scope="module")
def folder(tiny, letters, shared, tmp_path_factory):
    """Files with the columns of StrategyQA and of GSM8K, models that answer them, and a configuration without any code."""
    root = tmp_path_factory.mktemp("field")
    for name in ("ships", "sums"):
        (root / name).mkdir()
    ships = [{"qid": f"q{i}", "question": f"Can {i} ships sail?", "facts": ["Wet."]} for i in range(24)]
    answered = [one | {"answer": "Maybe" if i % 2 else "Yes"} for i, one in enumerate(ships)]
    written(root / "ships" / "test.jsonl", answered)
    sums = [{"question": f"Tom has {i} of 4.", "answer": f"4-3=<<4-3=1>>\n#### {1 + i % 4}"} for i in range(48)]
    written(root / "sums" / "train.jsonl", sums[:24])
    written(root / "sums" / "test.jsonl", sums[24:])
    digits = shared("digits", lambda place: small_matrix.letter_model(tiny, place, "1234"))
    shutil.copy(ROOT / "config.yaml", root)
    paths = {"letters": letters, "digits": str(digits)}
    models = {name: {"label": name.title(), "source": {"path": path}} for name, path in paths.items()}
    (root / "mine.yaml").write_text(yaml.safe_dump(CONFIG | {"models": models}))
    return root


ARGUMENTS = ["--configfile", "mine.yaml", "--cores", "2", "--", "results/metrics.csv", "paper_tables/sums.tex"]


@pytest.mark.slow
def test_files_of_ones_own_become_rows_by_configuration_alone(folder):
    snakemake(*ARGUMENTS, folder=folder)
    board = pd.read_csv(folder / "results" / "metrics.csv")
    rows = {(one.dataset, one.method) for one in board.itertuples()}
    assert rows == {("ships", name) for name in SHIPS} | {("sums", name) for name in SUMS}
    assert all(set(part["metric"]) >= {*METRICS, *EXTRA} for _, part in board.groupby(["dataset", "method"]))
    assert "Semantic entropy" in set(board["label"])
    assert "Consistency + Platt" in (folder / "paper_tables" / "sums.tex").read_text()
    judged_alike(folder / "results" / "ships" / "letters")
    fitted_elsewhere(folder / "results" / "sums" / "digits")
    assert "Nothing to be done" in plan(*ARGUMENTS, folder=folder)


def judged_alike(cell):
    """Every method judges the same greedy answers, with confidences in [0, 1]; what cannot be read is counted."""
    found = {name: files.read_jsonl(cell / name / "confidences.jsonl") for name in SHIPS}
    greedy = [(one["id"], one["answer"], one["correct"]) for one in found["likelihood"]]
    assert len(greedy) == 24 and 0 < sum(right for *_, right in greedy) < 24
    for records in found.values():
        assert [(one["id"], one["answer"], one["correct"]) for one in records] == greedy
        assert all(one["confidence"] is None or 0 <= one["confidence"] <= 1 for one in records)
    expected = [np.exp(np.mean(one["logprobs"])) for one in files.read_jsonl(cell / "likelihoods.jsonl")]
    assert [one["confidence"] for one in found["likelihood"]] == pytest.approx(expected)
    linguistic = json.loads((cell / "linguistic" / "metrics.json").read_text())
    assert linguistic["n"] == 24 and linguistic["n_unparsed"]["confidence"] > 0, "counted, never dropped"


def fitted_elsewhere(cell):
    """The calibration is the curve that fit.json has, and knows 24 items of the other file."""
    fit = json.loads((cell / "consistency+platt" / "fit.json").read_text())
    assert fit["n"] == 24 and fit["n_in_test_set"] == 0
    below, above, *rest = (files.read_jsonl(cell / name / "confidences.jsonl") for name in SUMS)
    line = [fit["parameters"]["slope"] * one["confidence"] + fit["parameters"]["intercept"] for one in below]
    assert [one["confidence"] for one in above] == pytest.approx(expit(line).tolist())
    assert {one["answer"] for one in below} <= {"1", "2", "3", "4"} and 0 < sum(one["correct"] for one in below) < 24
    product(*rest)
    combined = json.loads((cell / "mix" / "fit.json").read_text())
    assert combined["n"] == 24 and combined["n_in_test_set"] == 0 and len(combined["parameters"]["weights"]) == 3
    assert combined["fitted_on"] == [f"results/sums-fit/digits/{name}/confidences.jsonl" for name in combined["of"]]
    assert not list(cell.parent.glob("../sums-fit/*/*/metrics.json")), "what is only fitted on is not evaluated"


def product(likelihood, agreement, cocoa, *_):
    """Every combined confidence is the product of the two in the same greedy answer."""
    for one, other, both in zip(likelihood, agreement, cocoa, strict=True):
        assert one["id"] == other["id"] == both["id"] and one["answer"] == other["answer"] == both["answer"]
        assert both["raw"] == [one["confidence"], other["confidence"]]
        assert both["confidence"] == pytest.approx(one["confidence"] * other["confidence"])


@pytest.fixture(scope="module")
def shipped():
    """The checked configuration of docs/field.md's command."""
    return read_config([ROOT / "config.yaml", ROOT / "config" / "demo.yaml", ROOT / "config" / "field.yaml"])


def test_the_shipped_table_has_more_than_sixteen_methods_on_both_datasets(shipped):
    tables = [shipped.tables[name] for name in shipped.paper_tables]
    assert [table.dataset for table in tables] == ["arithmetic", "worldfacts"]
    assert tables[0].methods == tables[1].methods and len(tables[0].methods) >= 16
    kinds = {methods.of(shipped).find(name).kind for name in tables[0].methods}
    assert kinds == {"prompted", "measured", "stated", "fitted"}
    planned = graph.stages(shipped, shipped.paper_tables)
    fitted = {stage.cell.dataset for stage in planned} - {"arithmetic", "worldfacts"}
    assert fitted == {"arithmetic-validation", "worldfacts-validation"}
    assert not [stage for stage in planned if stage.cell.dataset in fitted and stage.rule in ("sft", "train", "dpo")]


def test_a_thousand_generated_questions_are_tested_and_no_question_is_trained_on_and_tested():
    names = ("config.yaml", "config/demo.yaml", "config/field-generated.yaml")
    config = read_config([ROOT / name for name in names])
    for name in ("arithmetic-all", "worldfacts-all"):
        drawn = {split: prompts.draw(stages.of("prompts", config, name), split) for split in ("sft", "rl", "test")}
        assert len(drawn["test"]) == 1000 and len(drawn["sft"]) + len(drawn["rl"]) >= 68
        texts = [one["question"] for examples in drawn.values() for one in examples]
        task = tasks.get(config.datasets[name].task)
        every = [one for split in ("train", "validation", "test") for one in task.load({}, split)]
        assert len(texts) == len({*texts}) == len(every)


def test_the_page_describes_each_row_and_shows_the_values_of_its_run(shipped):
    page = (ROOT / "docs" / "field.md").read_text()
    described, shown = page.split("## The demo's table")
    rows = shipped.tables["field-arithmetic"].methods
    for row in rows:
        method, _, calibration = row.partition("+")
        assert f"| `{f'METHOD+{calibration}' if calibration else method}` |" in described
    board = pd.read_csv(ROOT / "docs" / "field" / "metrics.csv").set_index(["method", "dataset", "metric"])["value"]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line.startswith("| `")]
    known = {*pd.read_csv(ROOT / "docs" / "field" / "wikidata.csv")["method"]}
    assert [line[0].strip("`") for line in lines] == [row for row in rows if row not in known]
    columns = [(dataset, metric) for dataset in ("arithmetic", "worldfacts") for metric in SHOWN]
    for name, *cells in lines:
        for (dataset, metric), cell in zip(columns, cells, strict=True):
            value = board[name.strip("`"), dataset, metric]
            assert (cell == "--") == np.isnan(value) and (cell == "--" or float(cell) == pytest.approx(value, abs=6e-4))


def test_the_table_of_a_thousand_questions_shows_the_values_of_its_runs():
    files = [pd.read_csv(ROOT / "docs" / "field" / f"{name}.csv") for name in ("wikidata", "generated")]
    board = pd.concat(files).set_index(["dataset", "method", "metric"]).sort_index()
    page = (ROOT / "docs" / "field.md").read_text()
    expected = []
    for method in dict.fromkeys(files[0]["method"]):
        cells = []
        for dataset in ("qa-wikidata", "arithmetic-all", "worldfacts-all"):
            of = board.loc[dataset, method, "auroc"]
            assert of["n"] == 1000
            cells.append("{} [{}, {}]".format(*(decimals(of[name]) for name in ("value", "low", "high"))))
        expected.append(f"| `{method}` | {' | '.join(cells)} |")
    assert len(expected) == 18 and [row for row in expected if row not in page] == []


def decimals(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1).replace("-", "−")


def cells():
    """metrics.json and extra.json of two datasets, two methods each; one of them states a constant."""
    rng = np.random.default_rng(0)
    for dataset in ("ships", "towns"):
        for method, label in (("p_true", "P(True)"), ("sft+platt", "SFT + <Platt>")):
            constant = method == "p_true" and dataset == "towns"
            confidence = np.full(60, 0.7) if constant else rng.integers(0, 101, 60) / 100
            correct = rng.random(60) < confidence
            cell = {"dataset": dataset, "model": "small", "method": method}
            metrics = cell | summarise(confidence, correct, n_unparsed={"confidence": 3}, n_resamples=50)
            yield metrics, summarise_extra(confidence, correct, 50), label


def test_the_tidy_table_and_the_picture_have_every_metric_and_method(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = {}
    for metrics, extra, label in cells():
        path = f"results/{metrics['dataset']}/small/{metrics['method']}/metrics.json"
        store.write_object(path, metrics)
        store.write_object(path.replace("metrics.json", "extra.json"), extra)
        labels[path] = label
    chosen = json.dumps({"labels": labels})
    assert main(["metrics-csv", "--settings", chosen, "--metrics", *labels, "--out", "metrics.csv"]) == 0
    read = pd.read_csv("metrics.csv")
    assert tuple(read.columns) == metrics_csv.COLUMNS and "SFT + <Platt>" in set(read["label"])
    assert set(read["metric"]) >= {*METRICS, *EXTRA, "unparsed_confidences"}
    for metrics, extra, _ in cells():
        mine = read[(read["dataset"] == metrics["dataset"]) & (read["method"] == metrics["method"])].set_index("metric")
        assert mine.loc["aurc", "value"] == metrics["aurc"] and mine.loc["prr", "low"] == extra["intervals"]["prr"][0]
        assert mine.loc["unparsed_confidences", "value"] == 3 and (mine["n"] == 60).all()
    constant = read[(read["dataset"] == "towns") & (read["method"] == "p_true") & (read["metric"] == "spearman")]
    assert constant["value"].isna().all() and list(constant["reason"]) == ["every confidence is the same"]
    made = runpy.run_path(str(ROOT / "docs" / "frontier.py"))
    (axes,) = made["draw"](made["stored"]()).axes
    marks = {line.get_label(): len(line.get_xdata()) for line in axes.lines if line.get_marker() != "None"}
    assert marks == {"sums": 30, "countries": 30, "Wikidata": 18}
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert len(shown) == 30 and {"ORCE", "SFT", "Agreement"} <= {*shown}
    assert [text.get_text() for text in axes.texts][-1] == "A prompted statement"


def areas(name: str) -> pd.Series:
    """AUROC by (method, dataset) of a stored table."""
    rows = pd.read_csv(ROOT / "docs" / "field" / f"{name}.csv")
    return rows[rows.metric == "auroc"].set_index(["method", "dataset"])["value"]


def shown(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def test_the_decision_page_says_what_the_stored_tables_say():
    """Its numbers, which row is best on the demo's sets, and that no trained statement ranks as well as the answer's probability."""
    page = " ".join((ROOT / "docs" / "which.md").read_text().split())
    demo, facts, drawn = areas("metrics"), areas("wikidata"), areas("generated")
    means = demo[demo.index.get_level_values("dataset").isin(["arithmetic", "worldfacts"])].groupby("method").mean()
    first, second = means.sort_values(ascending=False).index[:2]
    assert f"(`{second}`) has a mean AUROC of {shown(means[second])}" in page
    assert f"(`{first}`, {shown(means[first])})" in page
    needs = pd.read_csv(ROOT / "docs" / "field" / "needs.csv", index_col="method")
    spoken = [name for name in means.index if needs["judge"][name]]
    assert len(spoken) > 10 and means[spoken].max() < means["likelihood"] < means["sequence_probability"]
    rows = ("sequence_probability", "agreement", "likelihood", "probe")
    value = {row: shown(facts[row, "qa-wikidata"]) for row in rows}
    assert f"of {value['sequence_probability']} and `agreement` {value['agreement']}, but `likelihood`" in page
    assert f"{value['likelihood']}: chance. A linear `probe` with 500 graded questions has {value['probe']}" in page
    for row in ("sequence_probability", "likelihood", "probe"):
        both = [shown(drawn[row, f"{name}-all"]) for name in ("arithmetic", "worldfacts")]
        assert " and ".join(both) in page
