"""The check of a machine, on the CPU with a tiny model, and the frame of the benchmarks. No time is asserted. All of its checks at
once: test_tutorial.py, in the notebook."""

import itertools
import json
import os
import re
import signal
import sys

import numpy as np
import pytest
from benchmarks import comparisons, timing
from conftest import ROOT, program, typed
from tools import gpu_check
from tools.gpu_check import TWO, Check, Ended, apart, below

from orce.errors import BadInput
from orce.settings import load
from orce.training import dpo


@pytest.fixture
def folder(project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setenv("ORCE_SPEED", "{}")  # a check sets it; afterwards it is as before
    return project


def config(**lora):
    read = load.read_mapping(ROOT / "config.yaml") | {"device": "cpu", "dtype": "float32"}
    read["training"]["lora"] |= lora
    return typed(read)


@pytest.mark.slow
def test_a_stage_that_fails_is_in_the_report_and_the_others_go_on(tiny, folder):
    check = Check(config(target_modules=["nothing"]), tiny, folder, ["transformers"])
    check.all()
    found = {one.name: one for one in check.results}
    assert not found["sft"].passed and "nothing" in found["sft"].note and not found["dpo"].passed
    assert found["sampling, transformers"].passed and str(found[TWO]) == f"not run {TWO}  needs two GPUs"
    failed = "sft, conftuner, dpo, kill and resume, reading, likelihoods, states"
    assert f"verdict   FAILED: {failed}, in 1 s" in verdict(check)


def verdict(check) -> str:
    report = {"gpu": None, "listed": 0, "dtype": "float32", "files": [], "seconds": 1, "packages": {}, "cuda": None}
    return gpu_check.verdict(report | {"checks": [*map(vars, check.results)]})


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "left"), [(-1, 1.1), (0, 1.0)])
def test_a_gradient_that_is_reversed_or_zero_fails_though_the_cpus_is_so_too(tiny, folder, monkeypatch, sign, left):
    check, loss = Check(config(), tiny, folder, ["transformers"]), dpo.dpo_loss

    def turned(*given):
        """The same value, whose gradient is `sign` times what it was."""
        return (value := loss(*given)).detach() * (1 - sign) + sign * value

    monkeypatch.setattr(dpo, "dpo_loss", turned)
    check.attempt("sft", check.sft)
    check.attempt("dpo", check.dpo)
    found = {one.name: one for one in check.results}
    assert found["sft learns"].passed and found["dpo"].passed and found["dpo learns"].value >= left
    assert "verdict   FAILED: dpo learns, in 1 s" in verdict(check)


@pytest.fixture
def fakes(folder, monkeypatch):
    """fakes(driver, headers): a machine whose nvidia-smi lists an H100, and what the jobs' interpreter says of itself."""

    def make(driver="580.65.06", headers="/usr/include") -> list[str]:
        smi = f"case $1 in *driver*) echo {driver}, 9.0;; *) echo 0;; esac"
        python = f"""echo '["2.13.0", "13.0", 0, "{headers}"]'"""
        for name, text in (("nvidia-smi", smi), ("python", python)):
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
        (folder / "Python.h").touch()
        (folder / "fake.yaml").write_text(f"python: {folder / 'python'}")
        return ["--configfile", "fake.yaml"]

    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("CC", "cc")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return make


def report(folder, capsys) -> tuple[list[str], dict]:
    return capsys.readouterr().out.splitlines(), json.loads((folder / "gpu-check.json").read_text())


NO_CUDA = "1 GPU listed, and torch starts none: AssertionError: Torch not compiled with CUDA enabled"


@pytest.mark.parametrize(("driver", "headers", "lacks"), [
    ("535.183.01", ".", "driver 535 is too old for torch 2.13.0, whose CUDA 13.0 needs 580 or newer; update the driver, or see"),
    ("580.65.06", "/no/python3.11", "no Python.h in /no/python3.11, which these kernels include; apt-get install python3.11-dev"),
    ("580.65.06", ".", NO_CUDA),
])  # fmt: skip
def test_a_gpu_that_torch_does_not_start_fails_with_what_the_machine_lacks(
    folder, fakes, capsys, driver, headers, lacks
):
    assert gpu_check.main(fakes(driver, headers)) == 1
    lines, written = report(folder, capsys)
    failed = [line for line in lines if line.startswith("FAILED  environment  ")]
    assert lacks in failed[0] and NO_CUDA in failed[-1] and len(failed) == 1 + (lacks != NO_CUDA)
    assert len(lines) == len(failed) + 5 and lines[-1].startswith("verdict   FAILED: environment, in ")
    assert not written["passed"]


def test_a_driver_that_knows_no_capability_is_too_old_and_one_that_is_broken_is_no_cpu(folder, fakes, capsys):
    arguments = fakes(headers=folder)
    (folder / "nvidia-smi").write_text("""#!/bin/sh
case $1 in *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;; *driver*) echo 470.256.02;; *) echo 0;; esac
""")
    assert gpu_check.main(arguments) == 1
    assert "driver 470 is too old for torch 2.13.0" in report(folder, capsys)[0][0]
    (folder / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA-SMI has failed; exit 9\n")
    with pytest.raises(BadInput, match="no GPU .nvidia-smi: NVIDIA-SMI has failed.; --device cpu checks"):
        gpu_check.main(arguments)


@pytest.mark.parametrize(("engine", "line", "code"), [
    ("vllm", "FAILED  vllm  is not installed; install envs/gpu.txt, or set engine.name: transformers", 1),
    ("transformers", "not run vllm  is not installed", 0),
])  # fmt: skip
def test_without_vllm_a_line_says_so_and_the_rest_runs(folder, fakes, monkeypatch, capsys, engine, line, code):
    monkeypatch.setattr(gpu_check.provenance, "versions", lambda: {"torch": "2.13.0"})
    card = {"name": "H100", "capability": 9.0, "driver": "580.65.06", "memory": 80.0, "free": 80.0}
    monkeypatch.setattr(gpu_check, "at_hand", lambda: card)
    monkeypatch.setattr(gpu_check, "first_layers", lambda whole, work: str(whole))
    monkeypatch.setattr(Check, "all", lambda one, real: one.results.append(below(",".join(one.engines), 0, 0, "")))
    (folder / "engine.yaml").write_text(f"engine: {{name: {engine}}}")
    assert gpu_check.main([*fakes(headers=folder), "engine.yaml"]) == code
    lines, written = report(folder, capsys)
    assert any(shown.startswith(line) for shown in lines) and "passed  transformers 0 (at most 0)  " in lines
    assert lines[-5].startswith("machine   H100, 80 GB, capability 9, driver 580.65.06; GPUs that are listed: 1")
    assert lines[-1].startswith("verdict   FAILED: vllm, in " if code else "verdict   passed")
    assert written["passed"] != code


@pytest.mark.slow
def test_two_processes_that_train_otherwise_than_one_are_told(tiny, folder):
    check = Check(config(), tiny, folder, ["transformers"], pair="")
    check.attempt("sft", check.sft)
    log = folder / "sft" / "training_log.json"
    *first, last = json.loads(log.read_text())
    log.write_text(json.dumps([*first, last | {"loss": last["loss"] * 1.01}]))
    check.attempt(TWO, check.two)
    assert not check.results[-1].passed, check.results[-1]


def test_a_killed_check_is_a_result_and_a_number_that_is_none_does_not_pass():
    with pytest.raises(Ended, match="exit code -9"):
        apart(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(Ended, match="ZeroDivisionError: division by zero"):
        apart(lambda: 1 / 0)
    assert apart(lambda: os.getpid()) != os.getpid()
    for value, passes in ((0.1, True), (0.3, False), (float("nan"), False)):
        assert below("a", value, 0.2, "").passed == passes


@pytest.mark.slow
def test_one_gpu_is_taken_of_those_that_are_visible(tmp_path):
    """On a node of several GPUs the trainer would split each batch, and vllm each model. A second one is kept for the check of two processes."""
    taken = "os.environ['CUDA_VISIBLE_DEVICES'] = seen; print(take(lease.visible()[0]), *os.environ['CUDA_VISIBLE_DEVICES'])"
    script = f"from tools.gpu_check import *\nfor seen in ('0', '0,1,2,3'): {taken}"
    done = program(sys.executable, "-c", script, cwd=ROOT, check=True, TMPDIR=str(tmp_path))
    assert done.stdout == "['0'] 0\n['0', '1'] 0\n"


def test_a_ratio_is_that_of_the_medians_of_repeats_in_turn_and_several_runs_of_ours_make_one(monkeypatch):
    order, ticks = [], itertools.count()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks))
    row = timing.compare("a", lambda: order.append("ours"), lambda: order.append("plain"), repeats=2, inner=2)
    assert order == ["ours", "plain", *["ours", "ours", "plain"] * 2]
    assert row.ours_wall == [0.5, 0.5] and row.plain_wall == [1, 1] and len(row.ours_cpu) == len(row.plain_cpu) == 2
    row = timing.Row("a", [1.0, 2.0, 4.0], [1.0, 1.0, 1.0], [8.0, 6.0, 2.0], [2.0, 3.0, 7.0])
    assert row.ratio("wall") == {"median": 3.0, "low": 0.5, "high": 8.0}
    assert row.ratio("cpu") == {"median": 3.0, "low": 2.0, "high": 7.0}


def test_the_page_has_the_ratios_of_the_record_and_says_why_one_is_below_one():
    record = json.loads((ROOT / "benchmarks" / "record.json").read_text())
    page = (ROOT / "docs" / "performance.md").read_text()
    shown = []
    for name in ("reward", "sampling", "reading", "training"):
        for row in record[name]["rows"]:
            ratio = row["ratio_cpu"]
            shown.append(f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}) | {len(row['ours_cpu'])}")
    lines = [line for line in page.splitlines() if re.search(r"\| \d+\.\d\d \(.* to ", line)]
    assert [re.search(r"\| (\d+\.\d\d \([^|]* \| \d+) \|", line)[1] for line in lines] == shown
    assert all("since" in line for line, ratio in zip(lines, shown, strict=True) if float(ratio[:4]) < 1)
    seconds = np.median(record["dry-run"]["rows"][0]["ours_cpu"])
    assert f"| {seconds:.1f} CPU-s |" in page
    took = [f"{np.median(row['ours_cpu']):.2g}" for row in record["growth"]["rows"]]
    of_stage = [took[place:9:3] for place in range(3)]  # of surrogate, pairs and evaluate, by the number of rows
    for first, second, third in [*of_stage, took[9:]]:
        assert f"{first}, {second} and {third} s" in " ".join(page.split())


@pytest.mark.slow
def test_every_comparison_runs_and_is_kept_by_its_name_with_the_machine_it_comes_from(tiny, tmp_path):
    out = tmp_path / "results.json"
    out.write_text(json.dumps({"earlier": {"rows": []}}))
    command = [sys.executable, "-m", "benchmarks", "--repeats", "1", "--model", tiny, "--out", out]
    program(*command, cwd=ROOT, check=True)
    kept, names = json.loads(out.read_text()), comparisons.names()
    assert kept.keys() == {*names, "earlier"}
    for one in (kept[name] for name in names):
        assert {"cpu", "cores", "threads", "packages", "commit", "date"} <= one["machine"].keys()
        assert one["title"] and one["rows"] and all(len(row["ours_cpu"]) == 1 for row in one["rows"])
    done = program(*command, "rewards", cwd=ROOT)
    assert done.returncode == 2 and f"no comparison 'rewards'; there are {', '.join(names)}" in done.stderr
