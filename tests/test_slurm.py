"""The workflow on a real SLURM: four GPUs shared out, one job killed, one preempted, and the tables of a local run."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm
import small_matrix
import yaml
from conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.needs("slurm")]
PROFILE = ["--workflow-profile", str(ROOT / "workflow" / "profiles" / "slurm")]
# What a SLURM without an accounting database needs, and what saves a test of short jobs from waiting.
HERE = ["--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "4"]
SECONDS = 1200  # a run that hangs ends here; two minutes are usual


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm.running(tmp_path_factory.mktemp("slurm")) as running:
        yield running


# Jobs that ask for a GPU and compute on the CPU. At the start six are ready, two more than there are GPUs.
CLUSTER = {
    "gpus": 1,
    "training": {"gpus": 1},
    "answers": {"shards": 2},
    "resources": {"mem_mb": 1000, "runtime": 10, "threads": 1},
}


@contextlib.contextmanager
def snakemake(folder: Path, model: str, environment) -> Iterator[subprocess.Popen]:
    """The small matrix on the cluster, in the background; with the block it ends, and all that it started here."""
    small_matrix.write(folder, *small_matrix.configuration(model))
    (folder / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER))
    options = [*PROFILE, *HERE, "--slurm-keep-successful-logs", "--configfile", "small.yaml", "cluster.yaml"]
    words = [*small_matrix.SNAKEMAKE, *options, "--", "paper_tables"]
    with open(folder / "out.txt", "w") as out:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Story:
    """A run on the cluster in which one job is cancelled and another one preempted while they work."""

    def __init__(self, cluster: slurm.Slurm, folder: Path):
        self.cluster, self.folder = cluster, folder
        self.cancelled = self.preempted = self.last_words = None
        self.waited = False  # whether a job ever waited for one of the four GPUs

    def watch(self, process: subprocess.Popen) -> None:
        end = time.monotonic() + SECONDS
        while process.poll() is None and time.monotonic() < end:
            jobs = self.cluster.jobs()
            running = [job for job in jobs if job["JobState"] == "RUNNING"]
            self.waited |= len(running) == 4 and any(job["JobState"] == "PENDING" for job in jobs)
            for job in running:
                self.disturb(job)
            time.sleep(0.3)
        self.jobs = self.cluster.jobs()

    def disturb(self, job: dict) -> None:
        if self.cancelled is None and "starting the engine" in self.log(job):
            self.cluster.command("scancel", job["JobId"])
            self.cancelled = job
        checkpoints = "results/*/*/.partial/conftuner-*/checkpoints/checkpoint-*"
        if self.preempted is None and rule(job) == "train" and any(self.folder.glob(checkpoints)):
            self.cluster.command("scontrol", "requeue", job["JobId"])
            self.preempted = job
            while self.cluster.job(job["JobId"])["JobState"] in ("RUNNING", "COMPLETING"):
                time.sleep(0.1)
            self.last_words = (self.folder / "results/logs/train/mmlu-small-conftuner.log").read_text()

    def log(self, job: dict) -> str:
        """What a job has said so far, from SLURM's own log of it."""
        found = list(self.folder.glob(f".snakemake/slurm_logs/*/*/{job['JobId']}.log"))
        return found[0].read_text() if found else ""


def rule(job: dict) -> str:
    return re.match(r"rule_(\w+?)_wildcards", job["Comment"]).group(1)


@pytest.fixture(scope="module")
def story(cluster, letters, tmp_path_factory) -> Story:
    folder = tmp_path_factory.mktemp("cluster")
    with snakemake(folder, letters, cluster.environment) as run:
        story = Story(cluster, folder)
        story.watch(run)
        assert run.wait(timeout=SECONDS) == 0, (folder / "out.txt").read_text()[-6000:]
    return story


def test_the_whole_workflow_finishes_and_only_what_needs_a_gpu_is_a_job(story):
    for name in ("main.tex", "tables.tex", "comparison.csv", "tables.html", "tables.pdf"):
        assert (story.folder / "paper_tables" / name).stat().st_size > 200
    assert {"sample_shard", "sft", "train", "dpo", "state_shard"} <= {rule(job) for job in story.jobs}
    assert {job["TresPerJob"] for job in story.jobs} == {"gres:gpu:1"}


def test_four_jobs_run_at_once_each_on_a_gpu_of_its_own(story, cluster):
    last = {run["JobId"]: run for run in cluster.record()}  # a requeued job's second run: its log is of that one
    spans = [(run["StartTime"], run["EndTime"], device(story.log(run))) for run in last.values()]
    assert max(len(at_work(spans, start)) for start, _, _ in spans) == 4
    assert story.waited
    for start, _, _ in spans:
        devices = [device for _, _, device in at_work(spans, start)]
        assert sorted(devices) == sorted(set(devices))
    assert {device for _, _, device in spans} == {"0", "1", "2", "3"}


def at_work(spans, moment: str) -> list:
    """What runs at a moment; SLURM's times have the resolution of a second, and an end makes room for a start."""
    return [span for span in spans if span[0] <= moment < span[1]]


def device(log: str) -> str:
    return re.search(r"\[lease\] GPU (\d+), as given", log).group(1)


def test_a_cancelled_job_is_submitted_again_with_twice_the_memory(story):
    first, second = (job for job in story.jobs if job["Comment"] == story.cancelled["Comment"])
    assert (first["JobState"], second["JobState"]) == ("CANCELLED", "COMPLETED")
    assert (first["MinMemoryNode"], second["MinMemoryNode"]) == ("62.50G", "125G")  # 64000 and 128000 MB
    assert "orce: ended by SIGTERM" in story.log(first)


def test_a_preempted_training_goes_on_from_the_step_at_which_it_was_stopped(story):
    (job,) = (job for job in story.jobs if job["JobId"] == story.preempted["JobId"])
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1")
    step = re.search(r"stopped by SIGTERM after step (\d+)", story.last_words).group(1)
    log = (story.folder / "results/logs/train/mmlu-small-conftuner.log").read_text()
    assert re.search(rf"resuming from \S+/checkpoint-{step}\n", log)


def test_the_tables_are_byte_for_byte_those_of_a_local_run(story, straight):
    names = sorted(path.name for path in (straight / "paper_tables").iterdir())
    assert names == sorted(path.name for path in (story.folder / "paper_tables").iterdir())
    for name in names:
        assert (story.folder / "paper_tables" / name).read_bytes() == (straight / "paper_tables" / name).read_bytes(), (
            name
        )


def test_a_stopped_slurm_leaves_no_process(tmp_path):
    with slurm.running(tmp_path) as other:
        other.command("sbatch", "--mem=100", f"--output={tmp_path}/job.log", "--wrap", "srun sleep 600")
        end = time.monotonic() + 20
        while not any(process.name() == "sleep" for process in other.processes()) and time.monotonic() < end:
            time.sleep(0.2)
        assert {"munged", "slurmctld", "slurmd", "sleep"} <= {process.name() for process in other.processes()}
    assert other.processes() == []
