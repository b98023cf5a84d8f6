"""Before the first job of a run: the GPUs that were asked for are there, and no other Snakemake runs in the folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import dry_run
import pytest
from conftest import ARITHMETIC, ROOT

from orce.artefacts import files
from orce.errors import BadInput
from orce.runtime import preflight

pytestmark = pytest.mark.slow

PROGRAM = str(Path(sys.executable).with_name("snakemake"))
OPTIONS = ["--snakefile", str(ROOT / "Snakefile"), "--cores", "1"]
CHEAP = "results/numbers/prompts/test.jsonl"
NUMBERS = f"""
datasets:
  numbers: {{task: {ARITHMETIC}, source: {{size: 20}}, splits: {{test: {{from: test}}}}, confidence_from: mmlu}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    (tmp_path / "cpu.yaml").write_text("device: cpu\ngpus: 0\ntraining: {gpus: 0}\n" + NUMBERS)
    (tmp_path / "two.yaml").write_text("training: {gpus: 2}\n")
    (tmp_path / "bin").mkdir()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def showing(folder, gpus) -> dict:
    """The environment on a machine whose nvidia-smi lists so many GPUs."""
    smi = folder / "bin" / "nvidia-smi"
    smi.write_text("#!/bin/sh\nprintf '" + "".join(f"{i}\\n" for i in range(gpus)) + "'\n")
    smi.chmod(0o755)
    return os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def run(folder, *arguments):
    """(exit code, everything said) of Snakemake on a machine without a GPU."""
    command, environment = [PROGRAM, *OPTIONS, *arguments], showing(folder, 0)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("gpus", "arguments", "message"),
    [
        (0, ["--resources", "gpu=4"], "a job needs 1 GPU and this machine shows 0 (nvidia-smi); run it where there are"),
        (0, [], "a job needs 1 GPU and this machine shows 0 (nvidia-smi); run it where there are"),
        (2, ["--resources", "gpu=4"], "--resources gpu=4, but this machine shows 2 (nvidia-smi); give it gpu=2"),
        (1, ["--configfile", "two.yaml"], "a job needs 2 GPUs and this machine shows 1 (nvidia-smi); run it where"),
        (4, ["--resources", "gpu=0"], "--resources gpu=0, but a job needs 1 GPU; give it gpu=1 or more, or lower gpus"),
        (4, ["--configfile", "two.yaml", "--resources", "gpu=1"], "--resources gpu=1, but a job needs 2 GPUs; give it"),
    ],
)  # fmt: skip
def test_gpus_that_are_not_there_are_missed_before_the_first_job(folder, gpus, arguments, message):
    here = showing(folder, gpus)
    code, said = dry_run.refused(folder, *OPTIONS, *arguments, "--", "paper_tables", environment=here)
    assert code == 1
    assert sum(message in line for line in said.splitlines()) == 1, said
    assert "Traceback" not in said and "Execute" not in said
    assert not (folder / "results").exists()


def test_a_plan_needs_no_gpu(folder):
    arguments = [*OPTIONS, "--resources", "gpu=4", "--", "paper_tables"]
    assert dry_run.snakemake(folder, *arguments, environment=showing(folder, 0))[0] == 0


def test_jobs_that_need_no_gpu_run_without_one(folder):
    code, said = run(folder, "--configfile", "cpu.yaml", "--resources", "gpu=4", "--", CHEAP)
    assert code == 0, said
    assert (folder / CHEAP).exists()


def test_a_cluster_has_gpus_that_this_machine_does_not_show(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    preflight.gpus([{"gpu": 2, "gpus_wanted": 2}], None, local=False)
    with pytest.raises(BadInput, match="a job needs 2 GPUs"):
        preflight.gpus([{"gpu": 2, "gpus_wanted": 2}], None, local=True)
    with pytest.raises(BadInput, match="gpu=1, but a job needs 2 GPUs"):
        preflight.gpus([{"gpu": 1, "gpus_wanted": 2}], 1, local=False)


HOLD = "import sys; from orce.runtime import preflight; preflight.alone(); print('alone', flush=True); sys.stdin.read()"


def test_a_second_snakemake_in_the_folder_is_refused_until_the_first_ends_however_it_ends(folder):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    first = subprocess.Popen([sys.executable, "-c", HOLD], cwd=folder, env=environment, **pipes)
    assert first.stdout.readline() == "alone\n"
    code, said = run(folder, "--configfile", "cpu.yaml", "--", CHEAP)
    assert code == 1
    assert f"another Snakemake runs in {folder} (process {first.pid}); wait for it, or end it first" in said
    assert not (folder / CHEAP).exists()
    first.send_signal(signal.SIGKILL)
    first.communicate()
    code, said = run(folder, "--configfile", "cpu.yaml", "--", CHEAP)
    assert code == 0, said


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (CHEAP, "this run waits for it and goes on from what it leaves"),
        ("results/numbers/big/samples.jsonl", "which this run does not make; to stop it: kill "),
    ],
)
def test_jobs_that_outlived_their_snakemake_are_named(folder, out, message):
    sleep = [sys.executable, "-c", "import time; time.sleep(600)", "orce", "sample", "--out", out]
    orphan = subprocess.Popen(sleep, cwd=folder, env=os.environ | {"ORCE_SPEED": "{}"})
    try:
        code, said = run(folder, "--configfile", "cpu.yaml", "--", CHEAP)
    finally:
        orphan.kill()
        orphan.wait()
    assert code == 0, said
    assert f"process {orphan.pid} of an earlier run is still at work on {out} (sample)" in said and message in said


def test_under_a_scheduler_a_run_refuses_to_wait_for_a_job_of_an_earlier_one(tmp_path, monkeypatch):
    """A job that waited for the lock would use up its time limit, and then its retries."""
    monkeypatch.chdir(tmp_path)
    planned = ["results/mmlu/small/shards/samples-0.jsonl", "results/mmlu/small/sft/manifest.json"]
    chunks, training = Path("results/mmlu/small/shards/.partial"), Path("results/mmlu/small/.partial/sft-0a.lock")
    (chunks / "samples-0.jsonl.0a").mkdir(parents=True)
    training.parent.mkdir(parents=True)
    for path in (chunks / "samples-0.jsonl.0a" / "lock", training):
        preflight.unlocked(planned)
        with files.alone(path), pytest.raises(BadInput, match=rf"{path} is being written by .*process {os.getpid()}"):
            preflight.unlocked(planned)
