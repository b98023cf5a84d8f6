"""The workflow on a real SLURM of four GPUs: its Snakemake dies, a job is cancelled, the node crashes, a training is
preempted, a job runs out of time; and the tables are those of a local run."""

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
ALIVE = ("PENDING", "RUNNING", "COMPLETING")
SECONDS = 1200  # a run that hangs ends here; three minutes are usual


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm.running(tmp_path_factory.mktemp("slurm")) as running:
        yield running


JOBS = {"mem_mb": 1000, "runtime": None, "threads": 1}
CLUSTER = {"gpus": 1, "training": {"gpus": 1}, "answers": {"shards": 2}, "resources": JOBS}


class Story:
    """The small matrix on the cluster, in the background, and what befalls it: each of `disturbances` once, the first of them first."""

    def __init__(self, cluster: slurm.Slurm, folder: Path, model: str):
        self.cluster, self.folder = cluster, folder
        small_matrix.write(folder, *small_matrix.configuration(model))
        (folder / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER))
        options = [*PROFILE, *HERE, "--slurm-keep-successful-logs", "--configfile", "small.yaml", "cluster.yaml"]
        self.words = [*small_matrix.SNAKEMAKE, *options, "--", "paper_tables"]
        self.met: dict[str, dict] = {}  # the job that each disturbance met
        self.waited = False  # whether a job ever waited for one of the four GPUs
        self.last_words = None  # of the preempted training
        self.resumed: set[str] = set()  # steps that a training has gone on from
        self.limit = ""  # of the job whose time is up
        self.refused = None  # exit code of the Snakemake that met jobs of the one that died
        self.seen: set[Path] = set()  # checkpoints of the training that the Snakemake that died left
        self.disturbances = [self.lose_submit_host, self.cancel, self.preempt, self.stop_the_clock, self.crash]
        self.start()

    def start(self) -> None:
        kept = {"cwd": self.folder, "env": self.cluster.environment, "stderr": subprocess.STDOUT}
        with open(self.folder / "out.txt", "a") as out:
            self.process = subprocess.Popen(self.words, stdout=out, start_new_session=True, **kept)

    def end(self) -> None:
        """Kill its Snakemake, and all that it started here."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def watch(self) -> None:
        end = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            jobs = self.cluster.jobs()
            running = [job for job in jobs if job["JobState"] == "RUNNING"]
            self.waited |= len(running) == 4 and any(job["JobState"] == "PENDING" for job in jobs)
            self.listen()
            self.disturb([job for job in running if "[lease]" in self.log(job)])
            time.sleep(0.3)
        self.listen()
        self.jobs = self.cluster.jobs()

    def disturb(self, running: list[dict]) -> None:
        for disturbance in self.disturbances if self.met else self.disturbances[:1]:
            for job in running:
                if disturbance.__name__ not in self.met and disturbance(job):
                    self.met[disturbance.__name__] = job
                    return

    def listen(self) -> None:
        """What the training says of its resumption; when the node crashes, its next run overwrites its log."""
        self.resumed.update(re.findall(r"resuming from \S+/checkpoint-(\d+)\n", self.training_says()))

    def training_says(self) -> str:
        log = self.folder / "results/logs/train/mmlu-small-conftuner.log"
        return log.read_text() if log.exists() else ""

    def checkpoints(self) -> set[Path]:
        return set(self.folder.glob("results/*/*/.partial/conftuner-*/checkpoints/checkpoint-*"))

    def lose_submit_host(self, job: dict) -> bool:
        """kill -9 to Snakemake, whose jobs hang. The next one starts when these are cancelled, and not before."""
        if rule(job) != "train" or not self.checkpoints():
            return False
        self.end()
        left_over = {job["JobId"] for job in self.cluster.jobs()}
        self.cluster.command("scancel", "--signal=STOP", "--full", job["JobId"])
        self.start()
        self.refused = self.process.wait(timeout=SECONDS)
        self.cluster.command("scancel", *left_over)
        while any(self.cluster.job(number)["JobState"] in ALIVE for number in left_over):
            time.sleep(0.3)
        self.seen = self.checkpoints()
        self.start()
        return True

    def cancel(self, job: dict) -> bool:
        if rule(job) not in ("candidates", "state") or "starting the" not in self.log(job):
            return False
        self.cluster.command("scancel", job["JobId"])
        return True

    def preempt(self, job: dict) -> bool:
        if rule(job) != "train" or not self.checkpoints() - self.seen:
            return False
        self.cluster.command("scontrol", "requeue", job["JobId"])
        while self.cluster.job(job["JobId"])["JobState"] in ("RUNNING", "COMPLETING"):
            time.sleep(0.1)
        self.last_words = self.training_says()
        return True

    def stop_the_clock(self, job: dict) -> bool:
        """A job that hangs until its time is up, in a second: of a limit in minutes the least would be one."""
        others = [met["Comment"] for met in self.met.values()]
        if "cancel" not in self.met or rule(job) != "state" or job["Comment"] in others:
            return False
        self.cluster.command("scontrol", "update", f"JobId={job['JobId']}", "EndTime=now+1")
        self.limit = self.cluster.job(job["JobId"])["TimeLimit"]  # in whole minutes from the job's start
        self.cluster.command("scancel", "--signal=STOP", "--full", job["JobId"])
        return True

    def crash(self, job: dict) -> bool:
        """The node fails while the job that ran out of time is at work again."""
        timed = self.met.get("stop_the_clock", job)
        if job["Comment"] != timed["Comment"] or job["JobId"] == timed["JobId"]:
            return False
        self.listen()
        self.cluster.crash_node()
        return True

    def log(self, job: dict) -> str:
        """What a job has said so far, from SLURM's own log of it."""
        found = list(self.folder.glob(f".snakemake/slurm_logs/*/*/{job['JobId']}.log"))
        return found[0].read_text() if found else ""

    def after(self, name: str) -> list[dict]:
        """The jobs of what a disturbance met, from that one on."""
        met = self.met[name]
        return [job for job in self.jobs if job["Comment"] == met["Comment"] and int(job["JobId"]) >= int(met["JobId"])]


def rule(job: dict) -> str:
    return re.match(r"rule_(\w+?)_wildcards", job["Comment"]).group(1)


@pytest.fixture(scope="module")
def story(cluster, letters, tmp_path_factory) -> Iterator[Story]:
    story = Story(cluster, tmp_path_factory.mktemp("cluster"), letters)
    try:
        story.watch()
        assert story.process.wait(timeout=SECONDS) == 0, (story.folder / "out.txt").read_text()[-6000:]
        yield story
    finally:
        story.end()


def test_everything_befell_the_run_and_the_whole_workflow_finishes(story):
    assert set(story.met) == {disturbance.__name__ for disturbance in story.disturbances}
    for name in ("main.tex", "tables.tex", "comparison.csv", "tables.html", "tables.pdf"):
        assert (story.folder / "paper_tables" / name).stat().st_size > 200
    assert {"sample", "sft", "train", "dpo", "state"} <= {rule(job) for job in story.jobs}
    assert {job["TresPerJob"] for job in story.jobs} == {"gres:gpu:1"}


def test_four_jobs_run_at_once_each_on_a_gpu_of_its_own(story, cluster):
    last = {run["JobId"]: run for run in cluster.record()}  # a requeued job's second run: its log is of that one
    spans = []
    for run in last.values():
        if "[lease]" in (log := story.log(run)):  # not cancelled while it waited
            device = re.search(r"\[lease\] GPU (\d+), as given", log)[1]
            spans.append((run["StartTime"], run["EndTime"], device))
    # SLURM's times have the resolution of a second, and an end makes room for a start.
    at_work = [[device for start, end, device in spans if start <= moment < end] for moment, _, _ in spans]
    assert max(map(len, at_work)) == 4
    assert all(sorted(devices) == sorted(set(devices)) for devices in at_work)
    assert {device for _, _, device in spans} == {"0", "1", "2", "3"}
    assert story.waited


def test_cancelled_jobs_and_those_out_of_time_get_more_at_their_next_run(story):
    first, second = story.after("cancel")
    assert (first["JobState"], second["JobState"]) == ("CANCELLED", "COMPLETED")
    assert (first["MinMemoryNode"], second["MinMemoryNode"]) == ("62.50G", "125G")  # 64000 and 128000 MB
    assert "orce: ended by SIGTERM" in story.log(first)
    first, second = story.after("stop_the_clock")
    assert (first["JobState"], second["JobState"]) == ("TIMEOUT", "COMPLETED")
    assert (first["TimeLimit"], second["TimeLimit"]) == (story.limit, "01:00:00")  # as set; twice the least of a job
    assert story.limit in ("00:01:00", "00:02:00")
    assert "DUE TO TIME LIMIT" in story.log(first)
    (job,) = story.after("crash")
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1")
    assert story.refused == 1
    assert "is being written by a job of an earlier run" in (story.folder / "out.txt").read_text()


def test_a_preempted_training_goes_on_from_the_step_at_which_it_was_stopped(story):
    (job,) = story.after("preempt")
    assert job["JobState"] == "COMPLETED"
    step = re.search(r"stopped by SIGTERM after step (\d+)", story.last_words).group(1)
    assert step in story.resumed


def test_the_tables_are_byte_for_byte_those_of_a_local_run(story, straight):
    ours, theirs = (small_matrix.published(folder) for folder in (story.folder, straight))
    tables = {name for name in ours | theirs if name.startswith("paper_tables/")}
    assert tables and [name for name in sorted(tables) if ours.get(name) != theirs.get(name)] == []
