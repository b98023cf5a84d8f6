"""The check of a machine, on the CPU with a tiny model, and the frame of the benchmarks. No time is asserted."""

import itertools
import json
import os
import signal
import sys
from types import SimpleNamespace

import pytest
import yaml
from benchmarks import comparisons, timing
from conftest import ROOT, program, typed
from tools import gpu_check
from tools.gpu_check import SHARDED, Check, Ended, apart

OVER = """
training: {micro_batch_tokens: 600, lora: {r: 4}}
engine: {name: transformers, batch_tokens: 150}
"""


@pytest.fixture
def folder(project, monkeypatch):
    (project / "over.yaml").write_text(OVER)
    monkeypatch.chdir(project)
    monkeypatch.setenv("ORCE_SPEED", "{}")  # a check sets it; afterwards it is as before
    return project


def config(**lora):
    read = yaml.safe_load((ROOT / "config.yaml").read_text()) | {"device": "cpu", "dtype": "float32"}
    read["training"]["lora"] |= lora
    return typed(read)


@pytest.mark.slow
def test_every_stage_is_checked_against_the_cpu_and_one_report_holds_all(tiny, folder):
    arguments = ["--device", "cpu", "--model", tiny, "--configfile", "over.yaml", "--sharded"]
    done = program(sys.executable, ROOT / "tools/gpu_check.py", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads((folder / "gpu-check.json").read_text())
    assert report["passed"] and report["packages"] and report["gpu"] is None
    checks = {one["name"]: one for one in report["checks"]}
    trainings = {"sft", "conftuner", "dpo", SHARDED, "kill and resume"}
    assert checks.keys() == trainings | {"reading", "sampling, transformers", "seeds, transformers"}
    assert all(one["value"] <= one["limit"] for one in checks.values())
    assert done.stdout.count("passed  ") == len(checks)
    lines = done.stdout.splitlines()[-4:]
    assert [line.split()[0] for line in lines] == ["machine", "settings", "numbers", "verdict"]
    assert "8 of 8 within their limits" in lines[2] and lines[3].startswith("verdict   passed")


@pytest.mark.slow
def test_a_stage_that_fails_is_in_the_report_and_the_others_go_on(tiny, folder):
    check = Check(config(target_modules=["nothing"]), tiny, folder, ["transformers"])
    check.all()
    found = {one.name: one for one in check.results}
    assert not found["sft"].passed and "nothing" in found["sft"].note and not found["dpo"].passed
    assert found["sampling, transformers"].passed and found[SHARDED].note == "needs two GPUs; not checked"
    report = {"gpu": None, "dtype": "float32", "files": [], "seconds": 1, "checks": [*map(vars, check.results)]}
    assert "verdict   FAILED: sft, conftuner, dpo, kill and resume, reading, in 1 s" in gpu_check.verdict(report)


@pytest.mark.slow
def test_two_processes_that_train_otherwise_than_one_are_told(tiny, folder):
    check = Check(config(), tiny, folder, ["transformers"], pair="")
    check.attempt("sft", lambda: check.losses("sft", on_cpu=False))
    log = folder / "sft" / "training_log.json"
    first, second = json.loads(log.read_text())
    for wrong, passes in ((1.0, True), (1.01, False)):
        log.write_text(json.dumps([first, second | {"loss": second["loss"] * wrong}]))
        check.attempt(SHARDED, check.sharded)
        assert check.results[-1].passed == passes, check.results[-1]


def test_a_killed_check_is_a_result_and_a_number_that_is_none_does_not_pass(tmp_path):
    with pytest.raises(Ended, match="exit code -9"):
        apart(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(Ended, match="ZeroDivisionError: division by zero"):
        apart(lambda: 1 / 0)
    assert apart(lambda: os.getpid()) != os.getpid()
    check = Check(config(), "none", tmp_path, [])
    for value, passes in ((0.1, True), (0.3, False), (float("nan"), False)):
        check.below("a", value, 0.2, "")
        assert check.results[-1].passed == passes


@pytest.mark.parametrize("visible", [1, 4])
def test_one_gpu_is_taken_of_those_that_are_visible(visible, tmp_path):
    """On a node of several GPUs the trainer would split each batch, and vllm each model. A second one is kept for FSDP2."""
    script = "from tools import gpu_check; import os; print(*gpu_check.take(), os.environ['CUDA_VISIBLE_DEVICES'])"
    around = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(visible))), "TMPDIR": str(tmp_path)}
    done = program(sys.executable, "-c", script, cwd=ROOT, check=True, **around)
    assert done.stdout == f"{visible} {['0'] if visible == 1 else ['0', '1']} 0\n"


def test_a_gpu_that_is_asked_for_and_not_there_is_told(folder):
    words = [ROOT / "tools/gpu_check.py", "--device", "cuda"]
    done = program(sys.executable, *words, cwd=folder, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1 and done.stderr.endswith("`python -c 'import torch; torch.cuda.init()'` says why\n")


def benchmarks(*arguments):
    return program(sys.executable, "-m", "benchmarks", *arguments, cwd=ROOT)


def test_a_ratio_is_that_of_the_medians_of_repeats_in_turn_and_several_runs_of_ours_make_one(monkeypatch):
    order = []
    row = timing.compare("a", lambda: order.append("ours"), lambda: order.append("plain"), repeats=2, inner=2)
    assert order == ["ours", "plain", *["ours", "ours", "plain"] * 2]
    assert len(row.ours_wall) == len(row.plain_cpu) == 2
    row = timing.Row("a", [1.0, 2.0, 4.0], [1.0, 1.0, 1.0], [8.0, 6.0, 2.0], [2.0, 3.0, 7.0])
    assert row.ratio("wall") == {"median": 3.0, "low": 0.5, "high": 8.0}
    assert row.ratio("cpu") == {"median": 3.0, "low": 2.0, "high": 7.0}
    assert timing.Row("alone", [1.0], [1.0]).ratio("wall") is None
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
    done = benchmarks("rewards")
    assert done.returncode == 2
    assert "no comparison 'rewards'; there are dry-run, reading, reward, sampling, training" in done.stderr
    done = benchmarks("dry-run", "--repeats", "1", "--model", "none", "--out", str(out))
    assert done.returncode == 0, done.stderr
    kept = json.loads(out.read_text())
    assert list(kept) == ["dry-run", "earlier"]
    assert {"cpu", "cores", "threads", "packages", "commit", "date"} <= set(kept["dry-run"]["machine"])
    assert len(kept["dry-run"]["rows"][0]["ours_wall"]) == 1
