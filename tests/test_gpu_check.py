"""The check of a machine, on the CPU with a tiny model: it runs every kind of stage, and its report says what failed."""

import json
import os
import signal
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT, typed

from orce.__main__ import main
from orce.errors import BadInput
from orce.plan import gpu_check
from orce.plan.cost import flops
from orce.plan.trial.apart import Ended, apart
from orce.plan.trial.card import SHAPE, Card, choose
from orce.plan.trial.report import Report, Shape, machine
from orce.plan.trial.trial_check import SHARDED, Check

OVER = """
device: cpu
dtype: float32
gpus: 0
training: {micro_batch_tokens: 600, lora: {r: 4}}
engine: {name: transformers, batch_tokens: 150}
answers: {samples: 2}
sft: {batch_size: 4}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    (tmp_path / "over.yaml").write_text(OVER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCE_SPEED", "{}")  # the command sets it; afterwards it is as before
    return tmp_path


@pytest.mark.slow
def test_every_stage_is_checked_against_the_cpu_and_one_report_holds_all(tiny, folder):
    arguments = ["--model", tiny, "--shape", tiny, "--prompt", "60", "--seconds", "0.1", "--configfile", "over.yaml"]
    arguments += ["--sharded"]
    command = [sys.executable, "-m", "orce", "gpu-check", "--device", "cpu", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads((folder / "gpu-check.json").read_text())
    assert report["passed"] and report["machine"]["packages"] and report["shape"]["layers"] == 2
    checks = {one["name"]: one for one in report["checks"]}
    compared = {
        "sft",
        "conftuner",
        "dpo",
        SHARDED,
        "kill and resume",
        "reading",
        "sampling, transformers",
        "seeds, transformers",
    }
    assert {name for name, one in checks.items() if one["limit"] is not None} == compared
    assert all(checks[name]["value"] <= checks[name]["limit"] for name in compared)
    assert report["engines"]["transformers"]["start_seconds"] >= 0
    assert {"training, TFLOP/s", "reading, TFLOP/s", "generating, transformers, TFLOP/s"} <= report["speeds"].keys()
    assert done.stdout.count("passed  ") == len(checks)
    lines = done.stdout.splitlines()[-5:]
    assert [line.split()[0] for line in lines] == ["machine", "settings", "numbers", "speed", "verdict"]
    assert "8 of 8 within their limits" in lines[2] and lines[4].startswith("verdict   passed")


@pytest.mark.slow
def test_a_stage_that_fails_is_in_the_report_and_the_others_go_on(tiny, folder):
    config = yaml.safe_load((ROOT / "config.yaml").read_text()) | {"device": "cpu", "dtype": "float32"}
    config["training"]["lora"]["target_modules"] = ["nothing"]
    check = Check(typed(config), tiny, folder, ["transformers"])
    check.numbers()
    report = check.report(Shape("none", 0, 0), [], 0.0)
    found = {one.name: one for one in report.checks}
    assert not report.passed and "nothing" in found["sft"].note and not found["dpo"].passed
    assert found["sampling, transformers"].passed and found[SHARDED].note == "needs two GPUs; not checked"


@pytest.mark.slow
def test_two_processes_that_train_otherwise_than_one_are_told(tiny, folder):
    config = yaml.safe_load((ROOT / "config.yaml").read_text()) | {"device": "cpu", "dtype": "float32"}
    check = Check(typed(config), tiny, folder, ["transformers"], pair="")
    check.attempt("sft", lambda: check.losses("sft", on_cpu=False))
    log = folder / "sft" / "training_log.json"
    first, second = json.loads(log.read_text())
    for wrong, passes in ((1.0, True), (1.01, False)):
        log.write_text(json.dumps([first, second | {"loss": second["loss"] * wrong}]))
        check.attempt(SHARDED, check.sharded)
        assert check.results[-1].passed == passes, check.results[-1]


WITH_VLLM = """
import shutil
import sys
from pathlib import Path
import msgspec
import yaml
from safetensors.torch import load_file, save_file
from orce.config.schema import Config
from orce.plan.trial import models
from orce.plan.trial.trial_check import SHARDED, Check
from orce.plan.trial.report import Report, Shape, machine

paper, whole, work = sys.argv[1:]
config = msgspec.convert(yaml.safe_load(open(paper)) | {"device": "cpu", "dtype": "float32"}, Config)
check = Check(config, models.first_layers(whole, 4, Path(work, "small")), Path(work), ["vllm"])
check.attempt("sampling, vllm", lambda: check.sampling("vllm"))
check.attempt("LoRA, vllm", check.adapter)
adapter = Path(work, "strong")
zeroed = Path(shutil.copytree(adapter, Path(work, "zeroed"))) / "adapter_model.safetensors"
save_file({name: 0 * weight for name, weight in load_file(zeroed).items()}, zeroed)
check.attempt("zeroed", lambda: check.beside(adapter, zeroed.parent))
check.attempt("weak", lambda: check.beside(zeroed.parent, zeroed.parent))
open(f"{work}/report.json", "wb").write(msgspec.json.encode(check.report(Shape("none", 0, 0), [], 0.0)))
"""


@pytest.mark.slow
@pytest.mark.needs("numa")
def test_vllm_s_runner_its_start_and_an_adapter_beside_the_weights_are_checked(smollm2, folder):
    """In a process of its own, as on a user's machine: a check is a fork, and Snakemake's modules of other tests disturb vllm."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    arguments = [ROOT / "config.yaml", smollm2, folder]
    subprocess.run([sys.executable, "-c", WITH_VLLM, *map(str, arguments)], env=environment, check=True)
    report = json.loads((folder / "report.json").read_text())
    sampled, seeds, adapter, zeroed, weak = report["checks"]
    assert sampled["passed"] and seeds["passed"] and adapter["passed"], report["checks"]
    assert adapter["name"] == zeroed["name"] == "LoRA, vllm"
    assert not zeroed["passed"] and zeroed["value"] > zeroed["limit"], "an adapter that vllm does not apply is told"
    assert not weak["passed"] and "the adapter changes 0.00 of the statements" in weak["note"]
    assert report["engines"]["vllm"]["runner"] in ("V1", "V2") and report["engines"]["vllm"]["start_seconds"] > 0


def test_a_check_that_is_killed_is_a_result_and_leaves_nothing_behind():
    with pytest.raises(Ended, match="exit code -9"):
        apart(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(Ended, match="ZeroDivisionError: division by zero"):
        apart(lambda: 1 / 0)
    assert apart(lambda: os.getpid()) != os.getpid()


@pytest.mark.parametrize("visible", [1, 4, 8])
def test_one_gpu_is_taken_of_those_that_are_visible(visible, tmp_path):
    """On a node of several GPUs the trainer would split each batch, and vllm each model. A second one is kept for FSDP2."""
    devices = ",".join(map(str, range(visible)))
    script = "from orce.plan import gpu_check; import os; print(*gpu_check.take(2), os.environ['CUDA_VISIBLE_DEVICES'])"
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": devices,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(ROOT / "workflow"),
    }
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    leased = ["0"] if visible == 1 else ["0", "1"]
    assert done.stdout == f"{visible} {leased} 0\n"


def test_a_folder_without_room_for_the_weights_is_told_before_anything_is_written(tmp_path):
    with pytest.raises(
        BadInput, match=r"GB free, and the check writes .* set TMPDIR to another folder, or lower --layers"
    ):
        gpu_check.require_space(str(tmp_path), 1e18)


def test_the_page_says_what_is_chosen_for_each_gpu():
    sizes = flops.KNOWN[SHAPE]
    lines = ["| memory | capability | numbers | file | layers | with --quick |", "| --- " * 6 + "|"]
    for memory in (16, 24, 40, 80):
        for capability in (7.5, 8.0, 9.0):
            full, quick = (choose(Card("", memory, capability), sizes, short) for short in (False, True))
            files = full.preset or "config.yaml"
            lines.append(
                f"| {memory} GB | {capability} | {full.dtype} | {files} | {full.layers} of {sizes.layers} | {quick.layers} |"
            )
    begin, end = "<!-- choices: made by tests/test_gpu_check.py -->\n\n", "\n\n<!-- end -->"
    page = (ROOT / "docs" / "gpus.md").read_text()
    assert page.partition(begin)[2].partition(end)[0] == "\n".join(lines), "\n".join(lines)


def test_speeds_stand_beside_what_plan_assumes_of_the_card():
    """Training is assumed to reach 25 % of the peak, 989 TFLOP/s on an H100; of a card that is not in the table nothing is said."""
    h100, other = Card("NVIDIA H100 80GB HBM3", 85, 9.0), Card("GPU of tomorrow", 200, 13.0)
    speeds = {"training, TFLOP/s": 395.6, "generating, vllm, TFLOP/s": 98.9, "sft, seconds": 3.0}
    for card, line in {
        h100: "training 395.6 TFLOP/s (plan 247: 40% of the peak, not 25%), generating, vllm 98.9 TFLOP/s (plan 148: 10% of the "
        "peak, not 15%)",
        other: "training 395.6 TFLOP/s, generating, vllm 98.9 TFLOP/s",
        None: "training 395.6 TFLOP/s (plan 0.06), generating, vllm 98.9 TFLOP/s (plan 0.025)",
    }.items():
        report = Report(Shape("none", 0, 0), [], 1, True, machine(card), {"dtype": "bfloat16"}, [], {}, speeds)
        assert report.verdict().splitlines()[3] == f"speed     {line}"


def test_an_unknown_shape_is_named(folder, capsys):
    assert main(["gpu-check", "--device", "cpu", "--shape", "nope"]) == 2
    assert "--shape: 'nope' is not a folder, and the known shapes are" in capsys.readouterr().err
