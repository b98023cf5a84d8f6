"""tools/recount.py: a finished run against its items, by code that imports nothing of orce."""

import re
import runpy
import shutil
from pathlib import Path

import pytest
from conftest import ROOT

from orce.reports.screen import rows_so_far

SCRIPT = ROOT / "tools" / "recount.py"
CELL = Path("results/arithmetic/small")
recount = runpy.run_path(str(SCRIPT))["main"]


def change(path: Path, pattern: str, replacement: str) -> None:
    text = path.read_text()
    changed = re.sub(pattern, replacement, text, count=1)
    assert changed != text
    path.write_text(changed)


@pytest.mark.parametrize(("name", "pattern", "replacement", "found"), [
    (CELL / "sft/metrics.json", r'("aurc": 0\.)\d', r"\g<1>01", "aurc is 0.0"),
    (CELL / "sft/metrics.json", r'("rho": -?0\.)\d', r"\g<1>01", "spearman is "),
    (CELL / "sft/confidences.jsonl", r'("confidence": )[\d.]+', r"\g<1>0.33", "and its items give"),
    (CELL / "samples.jsonl", r'("split": "test".*"greedy": {"answer": "\d+".*"correct": )false', r"\g<1>true", "the label of"),
    ("page.md", r"(?<=0\.)\d", "8", "not what the items give: arithmetic, small: sft"),
    ("page.md", r"(?s)(questions)(.*sft)(.*? 0\.)\d", r"\1; confidence LLMs read by the mean or mode\2 †\g<3>8", "small: sft † ‡"),
])  # fmt: skip
def test_the_numbers_of_a_finished_run_are_those_of_its_items_and_a_changed_one_is_found(
    finished, tmp_path, capsys, name, pattern, replacement, found
):
    shutil.copytree(finished / "results", tmp_path / "results")
    page = tmp_path / "page.md"
    page.write_text("\n".join(rows_so_far(tmp_path / CELL)))
    assert recount(tmp_path, [page]) == 0
    assert "1 cells and 1 printed rows: 0 differences" in capsys.readouterr().out
    change(tmp_path / name, pattern, replacement)
    assert recount(tmp_path, [page]) == 1
    assert found in capsys.readouterr().out


@pytest.mark.slow
def test_the_rows_of_the_tables_are_those_of_the_items(straight, tmp_path, capsys):
    assert not re.search(r"(import|from) +orce", SCRIPT.read_text())
    for folder in ("results", "paper_tables"):
        shutil.copytree(straight / folder, tmp_path / folder)
    assert recount(tmp_path, []) == 0
    assert "7 cells and 11 printed rows: 0 differences" in capsys.readouterr().out
    change(tmp_path / "paper_tables/main.tex", r"& Consistency & (\\textbf{)?0\.", r"\g<0>9")
    assert recount(tmp_path, []) == 1
    assert "no items give the row Consistency" in capsys.readouterr().out
