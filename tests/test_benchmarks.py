"""The benchmarks' frame: both sides in turn, ratios of medians, results kept by name. No time is asserted."""

import itertools
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from benchmarks import comparisons, timing
from conftest import ROOT


def benchmarks(*arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_both_sides_run_in_turn_after_one_run_that_does_not_count():
    order = []
    row = timing.compare("a", lambda: order.append("ours"), lambda: order.append("plain"), repeats=2, inner=2)
    assert order == ["ours", "plain", *["ours", "ours", "plain"] * 2]
    assert len(row.ours_wall) == len(row.plain_cpu) == 2


def test_a_ratio_is_that_of_the_medians_with_the_extremes_of_single_repeats():
    row = timing.Row("a", [1.0, 2.0, 4.0], [1.0, 1.0, 1.0], [8.0, 6.0, 2.0], [2.0, 3.0, 7.0])
    assert row.ratio("wall") == {"median": 3.0, "low": 0.5, "high": 8.0}
    assert row.ratio("cpu") == {"median": 3.0, "low": 2.0, "high": 7.0}
    assert timing.Row("alone", [1.0], [1.0]).ratio("wall") is None


def test_several_runs_of_ours_make_one_repeat(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks))
    row = timing.compare("a", lambda: None, lambda: None, repeats=2, inner=4)
    assert row.ours_wall == [0.25, 0.25] and row.plain_wall == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in comparisons.names() if name != "dry-run"])  # that one: below
def test_every_comparison_runs(name, tiny):
    module = comparisons.get(name)
    rows = list(module.run(SimpleNamespace(model=tiny, repeats=1, threads=1)))
    assert module.TITLE and rows
    assert all(len(row.ours_cpu) == 1 for row in rows)


@pytest.mark.slow
def test_results_are_kept_by_name_with_the_machine_they_come_from(tmp_path):
    out = tmp_path / "results.json"
    out.write_text(json.dumps({"earlier": {"rows": []}}))
    done = benchmarks("dry-run", "--repeats", "1", "--model", "none", "--out", str(out))
    assert done.returncode == 0, done.stderr
    kept = json.loads(out.read_text())
    assert list(kept) == ["dry-run", "earlier"]
    assert {"cpu", "cores", "threads", "packages", "commit", "date"} <= set(kept["dry-run"]["machine"])
    assert len(kept["dry-run"]["rows"][0]["ours_wall"]) == 1


def test_an_unknown_comparison_is_answered_with_the_known_ones():
    done = benchmarks("rewards")
    assert done.returncode == 2
    assert "no comparison 'rewards'; there are dry-run, reading, reward, sampling, training" in done.stderr
