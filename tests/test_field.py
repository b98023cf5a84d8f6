"""From a file of one's own to every metric of the field's baselines, by configuration alone."""

import json

import numpy as np
import pandas as pd
import pytest
import yaml
from browser import Browser, until
from conftest import ROOT
from test_any_data import written
from test_workflow import job_counts, plan, snakemake

from orce.evaluation.metrics import EXTRA, METRICS
from orce.evaluation.summary import summarise, summarise_extra
from orce.reports import leaderboard
from orce.runtime import files

METHODS = [
    "likelihood",
    "min_likelihood",
    "p_true",
    "semantic_entropy",
    "linguistic",
    "consistency+platt",
    "p_true+isotonic",
]


@pytest.fixture(scope="module")
def folder(letters, tmp_path_factory):
    """Files with the columns of StrategyQA, a model that answers by letters, and a configuration without any code."""
    root = tmp_path_factory.mktemp("field")
    rows = [
        {"qid": f"q{i}", "question": f"Can {i} ships sail?", "answer": "Maybe" if i % 2 else "Yes"} for i in range(48)
    ]
    written(root / "train.jsonl", rows[:24])
    written(root / "test.jsonl", rows[24:])
    read = {
        "fields": {"id": "qid", "question": "question", "answer": "answer"},
        "options": ["Yes", "No", "Maybe", "Never"],
    }
    known = {"task": "choice", "source": {"path": "."}} | read
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    demo = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    config["datasets"] = {
        "ships": known | {"splits": {"test": {"from": "test"}}, "calibrate_on": "ships-fit"},
        "ships-fit": known | {"splits": {"test": {"from": "train"}}, "confidence_from": "ships"},
    }
    config["models"] = {"small": {"label": "Small", "source": {"path": letters}}}
    config["tables"] = {"field": {"kind": "main", "dataset": "ships", "models": ["small"], "methods": METHODS}}
    small = {key: demo[key] for key in ("device", "dtype", "gpus", "training", "resources")}
    small |= {"engine": {"name": "transformers"}, "answers": {"samples": 4, "max_tokens": 1}, "paper_tables": ["field"]}
    small |= {"evaluation": {"bootstrap": 100}, "methods": {"linguistic": {"max_tokens": 2}}}
    (root / "config.yaml").write_text(yaml.safe_dump(config))
    (root / "small.yaml").write_text(yaml.safe_dump(small))
    return root


ARGUMENTS = ["--configfile", "small.yaml", "--cores", "2", "--"]


@pytest.mark.slow
def test_everything_is_planned_from_the_table(folder):
    counts = job_counts(plan(*ARGUMENTS, "all", folder=folder))
    expected = {"likelihoods_shard": 2, "measure": 5, "calibrate": 2, "extra": 7, "evaluate": 7, "leaderboard": 1}
    # What is only below a calibration has no row, and is not evaluated: consistency, and p_true on the set to fit on.
    assert {rule: counts[rule] for rule in expected} == expected
    assert not {"sft", "dpo", "train"} & counts.keys()


@pytest.mark.slow
def test_the_leaderboard_is_made_from_cells_that_judge_the_same_greedy_answers(folder):
    snakemake(*ARGUMENTS, "results/metrics.csv", folder=folder)
    cell = folder / "results" / "ships" / "small"
    names = ["likelihood", "p_true", "linguistic", "p_true+isotonic"]
    found = {name: files.read_jsonl(cell / name / "confidences.jsonl") for name in names}
    greedy = [(one["id"], one["answer"], one["correct"]) for one in found["likelihood"]]
    assert len(greedy) == 24 and 0 < sum(right for *_, right in greedy) < 24
    for records in found.values():
        assert [(one["id"], one["answer"], one["correct"]) for one in records] == greedy
        assert all(one["confidence"] is None or 0 <= one["confidence"] <= 1 for one in records)
    scored = files.read_jsonl(cell / "likelihoods.jsonl")
    expected = [np.exp(np.mean(one["logprobs"])) for one in scored]
    assert [one["confidence"] for one in found["likelihood"]] == pytest.approx(expected)
    fit = json.loads((cell / "p_true+isotonic" / "fit.json").read_text())
    assert fit["n"] == 24 and fit["n_in_test_set"] == 0
    linguistic = json.loads((cell / "linguistic" / "metrics.json").read_text())
    assert linguistic["n"] == 24 and linguistic["n_unparsed"]["confidence"] > 0, "counted, never dropped"
    board = pd.read_csv(folder / "results" / "metrics.csv")
    assert set(board["method"]) == set(METHODS) and set(board["dataset"]) == {"ships"}
    assert all(set(part["metric"]) >= {*METRICS, *EXTRA} for _, part in board.groupby("method"))
    page = (folder / "results" / "metrics.html").read_text()
    assert page.count("<tr data-dataset") == len(METHODS) and "Semantic entropy" in page
    assert "Nothing to be done" in plan(*ARGUMENTS, "results/metrics.csv", folder=folder)


# ---- one table of every value, and its page


def cells():
    """metrics.json and extra.json of two datasets, two methods each; one of them states a constant."""
    rng = np.random.default_rng(0)
    for dataset in ("ships", "towns"):
        for method, label in (("p_true", "P(True)"), ("sft+platt", "SFT + <Platt>")):
            confidence = (
                np.full(60, 0.7) if method == "p_true" and dataset == "towns" else rng.integers(0, 101, 60) / 100
            )
            correct = rng.random(60) < confidence
            cell = {"dataset": dataset, "model": "small", "method": method}
            metrics = cell | summarise(confidence, correct, n_unparsed={"confidence": 3}, n_resamples=50)
            yield metrics, summarise_extra(confidence, correct, 50), label


@pytest.fixture(scope="module")
def board():
    return leaderboard.table([row for cell in cells() for row in leaderboard.rows(*cell)])


def test_the_tidy_table_has_every_metric_of_every_cell(board, tmp_path):
    (tmp_path / "metrics.csv").write_text(leaderboard.to_csv(board))
    read = pd.read_csv(tmp_path / "metrics.csv")
    assert list(read.columns) == leaderboard.COLUMNS
    assert set(read["metric"]) >= {*METRICS, *EXTRA, "unparsed_confidences"}
    for metrics, extra, _ in cells():
        mine = read[(read["dataset"] == metrics["dataset"]) & (read["method"] == metrics["method"])].set_index("metric")
        assert mine.loc["aurc", "value"] == metrics["aurc"] and mine.loc["prr", "low"] == extra["intervals"]["prr"][0]
        assert mine.loc["unparsed_confidences", "value"] == 3 and (mine["n"] == 60).all()
    constant = read[(read["dataset"] == "towns") & (read["method"] == "p_true") & (read["metric"] == "spearman")]
    assert constant["value"].isna().all() and list(constant["reason"]) == ["every confidence is the same"]


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_the_page_sorts_and_filters_without_a_network(board, tmp_path):
    (tmp_path / "metrics.html").write_text(leaderboard.page(board, {"small": "Small"}))
    shown = "[...document.querySelectorAll('#board tbody tr')].filter(one => !one.hidden)"
    column = f"{shown}.map(one => one.querySelectorAll('td')[INDEX].dataset.value ?? null)"
    with Browser(tmp_path / "browser") as window:
        window.open((tmp_path / "metrics.html").as_uri())
        until(lambda: window.evaluate("document.getElementById('count')?.textContent") == "4 of 4 rows")
        heads = window.evaluate("[...document.querySelectorAll('th[data-metric]')].map(one => one.dataset.metric)")
        for name, high in (("aurc", False), ("prr", True), ("spearman", True)):
            click = f"document.querySelector('th[data-metric={name}] button').click()"
            values = column.replace("INDEX", str(heads.index(name)))
            for reverse in (high, not high):
                window.evaluate(click)
                found = [None if one is None else float(one) for one in window.evaluate(values)]
                defined = [one for one in found if one is not None]
                assert defined == sorted(defined, reverse=reverse) and found[: len(defined)] == defined
        typed = "const box = document.getElementById('filter'); box.value = 'platt ships'; box.dispatchEvent(new Event('input'))"
        window.evaluate(f"(() => {{ {typed} }})()")
        assert window.evaluate("document.getElementById('count').textContent") == "1 of 4 rows"
        assert window.evaluate(f"{shown}[0].cells[2].textContent") == "SFT + <Platt>"
        links = window.evaluate(f"[...{shown}[0].querySelectorAll('a')].map(one => one.getAttribute('href'))")
        assert links[0] == "../figures/reliability-ships-small.png" and len(links) == 3
        assert [url for url in window.requests if not url.startswith(("file:", "data:", "about:"))] == []
        assert window.complaints == []
