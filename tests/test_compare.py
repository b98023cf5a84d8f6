"""What people read of a run on the screen: `orce summary` (what was made, where, in what time) and `orce compare`."""

import os
import shutil

import pytest

from orce.__main__ import main
from orce.artefacts import store

CELL = "results/sums/small"


@pytest.fixture
def cell(tmp_path, monkeypatch):
    """A cell with four methods, of which Consistency states one value for all."""
    monkeypatch.chdir(tmp_path)
    for method, values in {
        "vanilla": [0.9, 0.2, 0.8, 0.1], "sft": [0.1, 0.9, 0.2, None], "orce": [0.1, 0.9, 0.2, 0.8], "consistency": [0.5] * 4,
    }.items():  # fmt: skip
        rows = [{"id": f"q{i}", "answer": "A", "correct": i % 2, "confidence": c} for i, c in enumerate(values)]
        store.write(f"{CELL}/{method}/confidences.jsonl", rows)
    return tmp_path


def compare(capsys, *arguments) -> tuple[int, list[str]]:
    status = main(["compare", *arguments, "--resamples", "50"])
    return status, capsys.readouterr().err.splitlines()


def test_the_usual_methods_are_compared_and_the_others_named(cell, capsys):
    status, lines = compare(capsys, CELL)
    assert status == 0
    assert lines[0].startswith(f"{CELL}: aurc of sft - vanilla: -0.") and "(n = 4, same answers)" in lines[0]
    assert lines[1].startswith(f"{CELL}: aurc of orce - vanilla: -0.")
    assert lines[2:] == [f"{CELL}: other methods of this cell, for --methods: consistency"]


def test_confidence_llms_of_another_model_count_as_usual(cell, capsys):
    for method in ("sft", "orce"):
        store.write(f"{CELL}/{method}-from-large/confidences.jsonl", store.read(f"{CELL}/{method}/confidences.jsonl"))
        shutil.rmtree(f"{CELL}/{method}")
    lines = compare(capsys, CELL)[1]
    assert [line.split(": ")[1] for line in lines[:2]] == [
        "aurc of sft-from-large - vanilla", "aurc of orce-from-large - vanilla",
    ]  # fmt: skip


def test_an_undefined_metric_is_said_to_be_undefined(cell, capsys):
    status, lines = compare(capsys, CELL, "--methods", "orce", "consistency", "--metric", "spearman")
    assert (status, len(lines)) == (0, 1)
    assert "spearman of consistency - orce: undefined" in lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([CELL, "--methods", "sft", "orca"], f"{CELL}: no method 'orca'; did you mean 'orce'? It has consistency, orce, sft"),
        ([CELL, "--methods", "orce"], f"{CELL}: name two methods to compare (--methods); it has consistency, orce, sft, van"),
        (["results/sums/large"], "results/sums/large: no such folder; expected results/DATASET/MODEL of a finished run"),
        (["results/sums"], "results/sums: no confidences.jsonl in its folders; expected results/DATASET/MODEL"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_answered_with_those_that_there_are(cell, capsys, arguments, message):
    status, lines = compare(capsys, *arguments)
    assert status == 2 and len(lines) == 1
    assert lines[0].startswith(f"orce compare: {message}")


def finished(folder, cell: str, n: int, answers: int, confidences: int) -> None:
    place = folder / "results" / cell
    unparsed = {"answer": answers, "confidence": confidences}
    store.write_object(place / "metrics.json", {"n": n, "n_unparsed": unparsed})


def job(folder, rule: str, name: str, seconds: float, end: float) -> None:
    path = folder / "results" / "benchmarks" / rule / f"{name}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"s\th:m:s\tmax_rss\tcpu_time\n{seconds}\t0:00:00\t10.5\t1.0\n")
    os.utime(path, (end, end))


def summary(folder, capsys) -> list[str]:
    places = [
        f"--{kind}={folder / name}" for kind, name in (("results",) * 2, ("tables", "paper_tables"), ("figures",) * 2)
    ]
    assert main(["summary", *places]) == 0
    return [line.replace(f"{folder}/", "") for line in capsys.readouterr().err.splitlines()]


def test_it_says_what_was_made_where_in_what_time_and_what_was_not_read(tmp_path, capsys):
    finished(tmp_path, "sums/small/orce", 120, 0, 3)
    finished(tmp_path, "sums/small/cot", 120, 5, 40)
    finished(tmp_path, "facts/other/orce", 60, 0, 0)
    # Two jobs side by side for a minute, a pause, and one of half a minute.
    job(tmp_path, "sample", "a", 60, 1060)
    job(tmp_path, "sample", "b", 120, 1120)
    job(tmp_path, "align", "a", 30, 9000)
    for name in ("sums.tex", "tables.pdf", "../figures/risk.pdf"):
        path = tmp_path / "paper_tables" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    lines = summary(tmp_path, capsys)
    assert lines[:3] == [
        "cells: 3 metrics.json in results/ (datasets 2, models 2, methods 2)",
        "tables: sums.tex tables.pdf in paper_tables/",
        "figures: 1 in figures/",
    ]
    assert lines[3] == "time: 2.5 minutes with a job at work, 3.5 of jobs in all"
    assert [line.split() for line in lines[4:7]] == [
        ["rule", "jobs", "minutes", "longest"], ["sample", "2", "3.0", "2.0"], ["align", "1", "0.5", "0.5"],
    ]  # fmt: skip
    assert lines[7:12] == [
        "unread: 5 of 300 answers", "  sums/small/cot: 5 of 120",
        "unread: 43 of 300 confidences", "  sums/small/cot: 40 of 120", "  sums/small/orce: 3 of 120",
    ]  # fmt: skip


def test_it_shows_the_rows_so_far_in_the_tables_order(tmp_path, capsys):
    finished(tmp_path, "sums/small/orce", 120, 0, 3)
    finished(tmp_path, "sums/small/consistency", 120, 0, 0)
    values = {"accuracy": 0.5, "ece": 0.25, "aurc": 0.125, "auroc": None, "spearman": {"rho": 0.75, "p": 0.01}}
    place = tmp_path / "results" / "sums" / "small" / "consistency" / "metrics.json"
    store.write_object(place, store.read_object(place) | values)
    lines = summary(tmp_path, capsys)[-5:-1]
    assert lines[0] == "sums, small, 120 test questions"
    assert [line.split() for line in lines[1:]] == [
        ["accuracy", "ece", "aurc", "auroc", "spearman", "unread"],
        ["consistency", "0.500", "0.250", "0.125", "-", "0.750", "0"],
        ["orce", "-", "-", "-", "-", "-", "3"],
    ]  # fmt: skip


def test_before_the_first_job_it_says_that_there_is_nothing_yet(tmp_path, capsys):
    lines = summary(tmp_path, capsys)
    assert lines[:3] == [
        "cells: 0 metrics.json in results/", "tables: none yet in paper_tables/",
        "time: no finished job in results/benchmarks/",
    ]  # fmt: skip
