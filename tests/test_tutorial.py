"""The tutorial, the notebooks and docs/examples, run as they stand in a fresh copy of the project."""

import json
import os
import sys
from pathlib import Path

import nbformat
import pages
import pytest
from conftest import ROOT, program
from test_openai_engine import Server
from tools.gpu_check import TWO

from orce import metrics

pytestmark = pytest.mark.slow


def test_the_table_has_a_row_of_numbers_for_every_method(smollm2, tmp_path):
    """The page, followed in a fresh copy of the project."""
    folder = pages.copy_of_the_project(tmp_path)
    converted = folder / "results" / "models" / "smollm2"  # the one step that is done already
    converted.parent.mkdir(parents=True)
    converted.symlink_to(smollm2)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    around = {"PATH": path, "PYTHONPATH": str(folder / "workflow")}
    page = ROOT / "docs" / "tutorial.md"
    pages.write_files(page, folder)
    printed = ""
    for block in pages.blocks(page):
        if block.language == "bash" and not block.file and not block.reason:
            run = program("bash", "-euo", "pipefail", "-c", block.text, cwd=folder, **around)
            printed += run.stdout + run.stderr
            assert run.returncode == 0, f"line {block.line}:\n{printed[-6000:]}"
    assert "77 examples; the first asks: What is the chemical symbol of helium?\nread as: Fe" in printed
    cell = folder / "results/elements/smollm2"
    kappas = {line.split(",")[4] for line in (cell / "surrogate.csv").read_text().splitlines()[1:]}
    assert kappas == {"0.0", "0.25", "0.5", "0.75", "1.0"}, "an order to learn"
    assert "elements, smollm2, 20 test questions; confidence LLMs read by the mean\n" in printed
    assert "aurc of orce - sft: " in printed
    table = (folder / "paper_tables" / "elements.tex").read_text()
    assert table in printed and "Chemical symbols." in table and "SmolLM2 135M" in table
    for method in ("vanilla", "consistency", "sft", "orce"):
        found = json.loads((cell / method / "metrics.json").read_text())
        assert found["n"] == 20
        assert f"{found['aurc']:.3f}" in table
        assert found["spearman"]["rho"] is not None or method == "vanilla"
    assert (folder / "paper_tables" / "tables.pdf").read_bytes().startswith(b"%PDF")


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def said(notebook) -> list[str]:
    """What each cell printed or returned."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    parts = [[one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.outputs] for cell in cells]
    return ["".join(part) for part in parts]


def executed(notebook, folder) -> list[str]:
    """What each cell prints or returns now."""
    from nbclient import NotebookClient

    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place).execute()
    return said(notebook)


def test_the_one_for_a_gpu_checks_every_stage_shows_the_verdict_and_plans_a_small_cell(tiny, tmp_path, monkeypatch):
    """Here: on the CPU and the tiny model, in a checkout that is installed."""
    assert [path.stem for path in NOTEBOOKS] == ["a_gpu", "score_your_answers", "your_dataset", "your_reward"]
    checkout = pages.copy_of_the_project(tmp_path)
    monkeypatch.setenv("ORCE_CHECKOUT", str(checkout))
    own = {"device": "cpu", "dtype": "float32", "models": {"tiny": {"label": "Tiny", "source": {"path": tiny}}}}
    own |= {"training": {"micro_batch_tokens": 600}, "engine": {"name": "transformers", "batch_tokens": 150}}
    (checkout / "tiny.yaml").write_text(json.dumps(own))
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    words = ["tools/gpu_check.py", "--device", "cpu", "--two", "--model", tiny]
    words += ["--weights", "tiny", "--configfile", "tiny.yaml"]
    for cell in notebook.cells:
        cell.source = cell.source.replace('"tools/gpu_check.py"', ", ".join(map(json.dumps, words)))
    installed, verdict, planned = executed(notebook, tmp_path)
    assert installed == "installed\n" and "tiny.yaml" in notebook.cells[3].source
    parts = ["machine", "software", "settings", "numbers", "verdict", "passed"]
    assert [line.split()[0] for line in verdict.splitlines()] == parts
    assert "15 of 15 within their limits" in verdict and "verdict   passed" in verdict
    assert {"sample", "sft", "dpo", "evaluate"} <= {line.split()[0] for line in planned.splitlines() if line}
    report = json.loads((checkout / "gpu-check.json").read_text())
    assert report["passed"] and report["packages"] and report["gpu"] is None
    checks = {one["name"]: one for one in report["checks"]}
    learning = {f"{name}{end}" for name in ("sft", "conftuner", "dpo") for end in ("", " learns")}
    others = {"attention", "kill and resume", "weights, tiny", "reading", "likelihoods", "states"}
    assert checks.keys() == learning | others | {TWO, "sampling, transformers", "seeds, transformers"}
    assert all(one["value"] <= one["limit"] for one in checks.values())


@pytest.mark.parametrize("path", NOTEBOOKS[1:], ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_outputs_are_those_in_it(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    written = said(notebook)
    assert sum(map(bool, written)) >= 2
    assert executed(notebook, tmp_path) == written


def test_a_server_answers_the_cells_of_a_notebook(tmp_path):
    """In a kernel an event loop runs already. A cell shows the table, and so does one that awaits it in a thread."""
    given = [{"question": "Where is Rome?", "answer": "Italy"}, {"question": "Where is Oslo?", "answer": "Italy"}]
    with Server(text=lambda body, i: "Confidence: 30%") as server:
        asked = f"{server.address!r}, {given!r}, ['vanilla'], server_model='m'"
        cells = [
            "import asyncio, orce", f"orce.confidence({asked})", f"await asyncio.to_thread(orce.confidence, {asked})",
            f"print(orce.confidence({asked}).keep(coverage=0.5))",
        ]  # fmt: skip
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        nothing, shown, awaited, kept = executed(notebook, tmp_path)
    rows = [line.split() for line in shown.splitlines() if line.startswith("Where")]
    assert rows == [["Where", "is", "Rome?", "Italy", "0.300"], ["Where", "is", "Oslo?", "Italy", "0.300"]]
    assert nothing == "" and awaited.endswith(shown[shown.index("question ") :]) and "keep 2 of 2" in kept


def test_the_harness_gives_the_numbers_of_orce_metrics(tmp_path):
    """For a model that is right on even questions and leaves out every eighth confidence."""
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    lines = (json.dumps({"question": f"What is {i} + {i}?", "reference": str(2 * i)}) for i in range(40))
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    stated = [0.5 if i % 8 == 7 else (90 - i if i % 2 == 0 else 10 + i) / 100 for i in range(40)]
    right = [i % 2 == 0 for i in range(40)]
    ends = ["" if i % 8 == 7 else f"\nConfidence: {stated[i]:.0%}" for i in range(40)]
    replies = [f"Answer: {2 * i + i % 2}{ends[i]}" for i in range(40)]

    class Scripted(LM):
        def generate_until(self, requests, **_):
            assert all("Confidence" in one.args[0] and f"{one.doc_id} + " in one.args[0] for one in requests)
            return [replies[one.doc_id] for one in requests]

        def loglikelihood(self, requests, **_):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    questions, path = {"questions": str(tmp_path / "questions.jsonl")}, str(ROOT / "docs/examples/lm_eval")
    manager = TaskManager(include_path=path, include_defaults=False, metadata=questions)
    found = lm_eval.simple_evaluate(Scripted(), tasks=["orce_confidence"], task_manager=manager, bootstrap_iters=0)
    scores = found["results"]["orce_confidence"]
    assert (scores["acc,none"], scores["unread,none"]) == (0.5, 1 / 8)
    for name, metric in (("ece", "expected_calibration_error"), ("auroc", "auroc"), ("aurc", "aurc")):
        assert scores[f"{name},none"] == pytest.approx(getattr(metrics, metric)(stated, right))
