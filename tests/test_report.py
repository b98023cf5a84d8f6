"""What people read of a run: the report in its one file, the rows so far and `orce compare`."""

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import ROOT, typed
from test_workflow import snakemake as run_snakemake

from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import graph, layout
from orce.records import Candidate
from orce.runtime import preflight

METHODS = list(layout.KINDS["main"])
PICTURES = ["reliability-mmlu-llama3-8b", "reward", "risk-coverage-mmlu-llama3-8b"]


def snakemake(*arguments, folder):
    """What the rules under test say; everything before them is given."""
    rules = ["prompts", "overlap", "evaluate", "table", "tables", "paper_tables", "figures", "metrics_csv", "all"]
    return run_snakemake(*arguments, "--allowed-rules", *rules, "--", "all", folder=folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run of real MMLU questions from the confidences on: what a model would have said is made by hand."""
    folder = tmp_path_factory.mktemp("report")
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    source = {"path": str(ROOT / "tests" / "data" / "mmlu")}
    splits = {name: {"from": "test", "size": size} for name, size in (("sft", 10), ("rl", 10), ("test", 30))}
    config |= {
        "datasets": {"mmlu": {"task": "mmlu", "source": source, "splits": splits}},
        "models": {"llama3-8b": {"label": "LLAMA-3 8B", "source": {"path": "nowhere"}}},
        "tables": {"mmlu": {"kind": "main", "dataset": "mmlu", "models": ["llama3-8b"]}},
        "paper_tables": ["mmlu"],
        "device": "cpu",
    }
    config["evaluation"]["bootstrap"] = 200
    (folder / "nowhere").mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    given(folder / "results" / "mmlu" / "llama3-8b", ids=[f"question {i}" for i in range(30)])
    made = ("prompts/", "metrics.json")
    for path in graph.files(typed(config), ["mmlu"]):
        if not any(name in path for name in made) and not (folder / path).exists():  # nothing here reads what is in it
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("{}" if path.endswith(".json") else "")
    snakemake("--cores", "1", folder=folder)
    return folder


def given(cell: Path, ids: list[str]) -> None:
    """What the steps before the evaluation leave behind, for one cell."""
    rng = np.random.default_rng(0)
    kappa = rng.integers(0, 11, len(ids)) / 10
    correct = rng.random(len(ids)) < kappa
    cell.mkdir(parents=True)
    rows = [f"{name},test,{round(10 * k)},10,{k},A,{int(c)}" for name, k, c in zip(ids, kappa, correct, strict=True)]
    header = "id,split,n_correct,n_samples,kappa,answer,answer_correct"
    (cell / "surrogate.csv").write_text("\n".join([header, *rows]) + "\n")
    store.seal(cell / "surrogate.csv")
    cost = {"cost": {"seconds": 12.5, "gpus": 1}, "sha256": {"adapter_model.safetensors": "0" * 64}}
    files.write_json(cell / "samples.manifest.json", {"file": "samples.jsonl", "sha256": "0" * 64})
    for stage, size in (("conftuner", "examples"), ("sft", "examples"), ("dpo", "pairs")):
        log = [{"step": step, "loss": 0.7 - 0.05 * step, "rewards/margins": 0.1 * step} for step in range(30)]
        (cell / stage).mkdir()
        (cell / stage / "training_log.json").write_text(json.dumps(log))
        facts = {"stage": stage, size: 10, "steps": 3, "loss": 0.5, **cost}
        listed = {"files": {"training_log.json": files.file_digest(cell / stage / "training_log.json")}}
        files.write_json(cell / stage / "manifest.json", facts | listed)
    drawn = [candidate(*one) for one in zip(ids, kappa.tolist(), correct.tolist(), strict=True)]
    store.write(cell / "candidates.jsonl", drawn)
    for number, method in enumerate(METHODS):
        stated = np.clip(np.round(kappa + rng.normal(0, 0.5 / (number + 1), len(ids)), 2), 0, 1).tolist()
        store.write(cell / method / "confidences.jsonl", [*records(ids, correct.tolist(), stated, method)])


def candidate(name, kappa, correct):
    drawn, stated = [0.1, 0.5, kappa], round(0.2 + 0.6 * kappa, 2)
    raw = [f"Confidence: {one}" for one in drawn]
    return Candidate(name, kappa, correct, drawn, [-1.0] * 3, raw, stated, [-5.0] * 101)


def records(ids, correct, stated, method):
    """Consistency states one value for all, Vanilla cannot be read now and then."""
    for i, (name, right, value) in enumerate(zip(ids, correct, stated, strict=True)):
        value = 0.9 if method == "consistency" else None if method == "vanilla" and i % 7 == 0 else value
        yield {"id": name, "answer": "A", "correct": right, "f1": None, "confidence": value, "raw": ""}


@pytest.fixture(scope="module")
def report(finished) -> dict:
    """The data in the report: results and categories by file, the text of the first page, the times of the rules."""
    snakemake("--report", "report.html", folder=finished)
    text = (finished / "report.html").read_text()
    assert not re.search(r"""(src|href)=["']https?://""", text), "nothing is asked of the network"

    def data(name):
        *_, last = re.finditer(rf'var {name} = (?=[{{"])', text)
        return json.JSONDecoder().raw_decode(text[last.end() :])[0]

    return {name: data(name) for name in ("results", "categories", "workflow_desc", "runtimes_spec")}


def content(file: dict) -> bytes:
    return base64.b64decode(file["data_uri"].partition("base64,")[2])


@pytest.mark.slow
def test_every_part_stands_in_its_category_with_its_label(report):
    listed = report["categories"].items()
    shown = {name: sorted(path for some in paths.values() for path in some) for name, paths in listed}
    assert shown.pop("Figures") == sorted(f"figures/{name}.png" for name in PICTURES)
    assert shown == {
        "Tables": ["paper_tables/mmlu.html", "paper_tables/tables.html"],
        "Comparison with the paper": ["paper_tables/comparison.csv", "paper_tables/comparison.html"],
        "Metrics": ["results/metrics.csv"],
    }
    labels = report["results"]["figures/reliability-mmlu-llama3-8b.png"]["labels"]
    assert labels == {"picture": "reliability", "of": "MMLU, LLAMA-3 8B"}


@pytest.mark.slow
def test_its_files_are_those_of_the_run(report, finished):
    assert all(content(file) == (finished / path).read_bytes() for path, file in report["results"].items())
    tables = (finished / "paper_tables/tables.html").read_text()
    for metric in ("aurc", "ece"):
        value = json.loads((finished / "results/mmlu/llama3-8b/orce/metrics.json").read_text())[metric]
        assert f"{value:.3f}" in tables
    comparison = (finished / "paper_tables/comparison.html").read_text()
    assert comparison.count('<tr><th scope="row">') == 490
    assert "inside the interval" in comparison and "not run" in comparison


@pytest.mark.slow
def test_it_opens_on_the_tables_and_two_pictures_with_captions_and_times(report, finished):
    page = report["workflow_desc"]
    pictures = re.findall(r'<img [^>]*alt="[^"]*/([\w-]+)\.png"', page)
    assert pictures == ["risk-coverage-mmlu-llama3-8b", "reliability-mmlu-llama3-8b"]
    assert page.count("<iframe") == 1 and page.index("<iframe") < page.index("<img")
    assert "System Message" not in page, "docutils complains in the page"
    text = report["workflow_desc"] + "".join(file["caption"] for file in report["results"].values())
    for words in ("ten bins of ECE", "expectation over all orders", "200 resamples", "Datasets: mmlu. Models: "):
        assert words in " ".join(text.split())
    assert "Nothing to be done" in snakemake("--cores", "1", folder=finished), "a second run has nothing to draw"
    timed = {one["rule"] for one in report["runtimes_spec"]["data"]["values"]}
    assert timed >= {"evaluate", "tables", "figures", "metrics_csv"}


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


def test_the_usual_methods_are_compared_those_of_another_model_too_and_the_others_named(cell, capsys):
    status, lines = compare(capsys, CELL)
    assert status == 0
    assert lines[0].startswith(f"{CELL}: aurc of sft - vanilla: -0.") and "(n = 4, same answers)" in lines[0]
    assert lines[1].startswith(f"{CELL}: aurc of orce - vanilla: -0.")
    assert lines[2:] == [f"{CELL}: other methods of this cell, for --methods: consistency"]
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


@pytest.mark.parametrize(("arguments", "message"), [
    ([CELL, "--methods", "sft", "orca"], f"{CELL}: no method 'orca'; did you mean 'orce'? It has consistency, orce, sft"),
    ([CELL, "--methods", "orce"], f"{CELL}: name two methods to compare (--methods); it has consistency, orce, sft, van"),
    (["results/sums/large"], "results/sums/large: no such folder; expected results/DATASET/MODEL of a finished run"),
    (["results/sums"], "results/sums: no confidences.jsonl in its folders; expected results/DATASET/MODEL"),
])  # fmt: skip
def test_a_wrong_name_is_answered_with_those_that_there_are(cell, capsys, arguments, message):
    status, lines = compare(capsys, *arguments)
    assert status == 2 and len(lines) == 1
    assert lines[0].startswith(f"orce compare: {message}")


def summarised(folder, cell: str, n: int, answers: int, confidences: int) -> None:
    place = folder / "results" / cell
    unparsed = {"answer": answers, "confidence": confidences}
    store.write_object(place / "metrics.json", {"n": n, "n_unparsed": unparsed})


def test_it_shows_the_rows_so_far_in_the_tables_order(tmp_path):
    summarised(tmp_path, "sums/small/orce", 120, 0, 3)
    summarised(tmp_path, "sums/small/consistency", 120, 0, 0)
    values = {"accuracy": 0.5, "ece": 0.25, "aurc": 0.125, "auroc": None, "spearman": {"rho": 0.75, "p": 0.01}}
    place = tmp_path / "results" / "sums" / "small" / "consistency" / "metrics.json"
    store.write_object(place, store.read_object(place) | values)
    command = [sys.executable, ROOT / "tools" / "rows.py", tmp_path / "results"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0] == "sums, small, 120 test questions"
    assert [line.split() for line in lines[1:]] == [
        ["accuracy", "ece", "aurc", "auroc", "spearman", "unread"],
        ["consistency", "0.500", "0.250", "0.125", "-", "0.750", "0"],
        ["orce", "-", "-", "-", "-", "-", "3"],
    ]  # fmt: skip


def test_a_run_says_whose_tables_it_replaces(folder, capsys):
    """As `orce tables` writes the document: with a line for each table."""
    document = folder / "paper_tables" / "tables.tex"
    document.parent.mkdir()
    document.write_text("\\begin{document}\n\\input{arithmetic.tex}\n\\input{transfer.tex}\n")
    preflight.tell_replaced(["mine"], {"results/metrics.csv"})
    preflight.tell_replaced(["transfer", "arithmetic", "mine"], {"paper_tables/tables.tex"})
    assert capsys.readouterr().err == ""
    preflight.tell_replaced(["mine", "transfer"], {"paper_tables/tables.tex"})
    assert "replaced: they show arithmetic, transfer, now mine, transfer;" in capsys.readouterr().err
