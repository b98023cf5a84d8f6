"""The notebooks of docs/notebooks run as they stand, and say what they said when they were written."""

import os

import pytest
from conftest import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (envs/test.txt)")
pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def said(notebook) -> list[str]:
    """What each cell printed or returned."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    parts = [[one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.outputs] for cell in cells]
    return ["".join(part) for part in parts]


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["score_your_answers", "your_dataset", "your_reward"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_outputs_are_those_in_it(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "workflow"), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    written = said(notebook)
    assert sum(map(bool, written)) >= 2
    options = {"timeout": 120, "kernel_name": "python3", "resources": {"metadata": {"path": str(tmp_path)}}}
    nbclient.NotebookClient(notebook, **options).execute()
    assert said(notebook) == written
