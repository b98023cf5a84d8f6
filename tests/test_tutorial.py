"""The tutorial, done as it says: its files written, its commands run in order in a fresh copy of the project."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from conftest import ROOT

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "tutorial.md"
METHODS = ("vanilla", "consistency", "topk", "cot", "conftuner", "sft", "orce")


@pytest.fixture(scope="module")
def done(smollm2, tmp_path_factory) -> tuple[Path, str]:
    """The folder in which the page was followed, and all that its commands printed."""
    folder = pages.copy_of_the_project(tmp_path_factory.mktemp("tutorial"))
    converted = folder / "results" / "models" / "smollm2"  # the one step that is done already
    converted.parent.mkdir(parents=True)
    converted.symlink_to(smollm2)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(folder / "workflow")}
    printed = []
    for block in pages.blocks(PAGE):
        if block.file:
            (folder / block.file).parent.mkdir(exist_ok=True)
            (folder / block.file).write_text(block.text)
        elif block.language == "bash" and not block.reason:
            command = ["bash", "-euo", "pipefail", "-c", block.text]
            run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            printed.append(run.stdout + run.stderr)
            assert run.returncode == 0, f"line {block.line}:\n{printed[-1][-6000:]}"
    return folder, "\n".join(printed)


def test_the_module_reads_what_the_page_says(done):
    assert "77 examples; the first asks: What is the chemical symbol of helium?\nread as: Fe" in done[1]


def test_the_table_has_a_row_of_numbers_for_every_method(done):
    folder, printed = done
    table = (folder / "paper_tables" / "elements.tex").read_text()
    assert table in printed and "Chemical symbols." in table and "SmolLM2 135M" in table
    for method in METHODS:
        metrics = json.loads((folder / "results/elements/smollm2" / method / "metrics.json").read_text())
        assert metrics["n"] == 20
        assert f"{metrics['aurc']:.3f}" in table
        assert metrics["spearman"]["rho"] is not None or method in ("topk", "cot", "vanilla")
    assert (folder / "paper_tables" / "tables.pdf").read_bytes().startswith(b"%PDF")


def test_the_questions_are_of_mixed_difficulty_so_that_there_is_an_order_to_learn(done):
    lines = (done[0] / "results/elements/smollm2/surrogate.csv").read_text().splitlines()
    kappas = {line.split(",")[4] for line in lines[1:]}
    assert kappas == {"0.0", "0.25", "0.5", "0.75", "1.0"}


def test_the_last_commands_compare_the_methods(done):
    assert "cells: 7 metrics.json in results/" in done[1]
    assert "aurc of orce - sft: " in done[1]
