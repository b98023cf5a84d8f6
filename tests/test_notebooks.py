"""The notebooks of docs/notebooks run as they stand, and say what they said when they were written."""

import os

import pages
import pytest
from conftest import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (envs/test.txt)")
pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


VERDICT = ("machine", "settings", "numbers", "speed", "verdict")


def said(notebook) -> list[str]:
    """What each cell printed or returned."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    parts = [[one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.outputs] for cell in cells]
    return ["".join(part) for part in parts]


def test_there_are_four():
    assert [path.stem for path in NOTEBOOKS] == ["a_gpu", "score_your_answers", "your_dataset", "your_reward"]


def test_the_one_for_a_gpu_shows_the_verdict_and_plans_a_small_cell(tiny, tmp_path, monkeypatch):
    """Here: on the CPU and the tiny model, in a checkout that is installed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "workflow"))
    monkeypatch.setenv("ORCE_CHECKOUT", str(pages.copy_of_the_project(tmp_path)))
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    short = f'"--quick", "--model", "{tiny}", "--shape", "{tiny}", "--seconds", "0.1"'
    for cell in notebook.cells:
        cell.source = cell.source.replace('"--quick"', short)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    installed, verdict, planned = said(notebook)
    assert installed == "installed\n" and short in notebook.cells[3].source
    assert [line.split()[0] for line in verdict.splitlines()] == [*VERDICT, "passed"]
    assert {"sample", "sft", "dpo", "evaluate"} <= {line.split()[0] for line in planned.splitlines() if line}


@pytest.mark.parametrize("path", NOTEBOOKS[1:], ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_outputs_are_those_in_it(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "workflow"), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    written = said(notebook)
    assert sum(map(bool, written)) >= 2
    options = {"timeout": 120, "kernel_name": "python3", "resources": {"metadata": {"path": str(tmp_path)}}}
    nbclient.NotebookClient(notebook, **options).execute()
    assert said(notebook) == written
