"""The workflow on a real SLURM: four GPUs shared out, one job killed, one preempted, and the tables of a local run."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm
import yaml
from conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.needs("slurm")]
SNAKEMAKE = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(ROOT / "Snakefile")]
PROFILE = ["--workflow-profile", str(ROOT / "workflow" / "profiles" / "slurm")]
# What a SLURM without an accounting database needs, and what saves a test of short jobs from waiting.
HERE = ["--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "4"]
SECONDS = 400  # a run that hangs ends here


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm.running(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture(scope="module")
def speaking(smollm2, tmp_path_factory) -> str:
    """Folder of a random two-layer Llama that answers with a letter, at times the right one, and tells digits apart."""
    import torch
    from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("speaking") / "model"
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), initializer_range=1.0, **shape, **ends))
    with torch.no_grad():
        model.lm_head.weight.zero_()
        for said, scale in (("0123456789", 0.5), ("ABCD", 5.0)):
            model.lm_head.weight[tokenizer.convert_tokens_to_ids([*said])] = scale * torch.randn(len(said), 32)
    model.generation_config = GenerationConfig(**ends)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def settings(speaking) -> dict:
    """The paper's configuration cut to one model and a few questions; its jobs ask for a GPU and compute on the CPU."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    source = {"path": str(ROOT / "tests" / "data" / "mmlu")}
    splits = {name: {"from": "test", "size": size} for name, size in {"sft": 16, "rl": 16, "test": 8}.items()}
    config["datasets"] = {"mmlu": {"task": "mmlu", "source": source, "splits": splits}}
    config["models"] = {"random": {"label": "Random", "source": {"path": speaking}}}
    config["tables"] = {"mmlu": {"kind": "main", "dataset": "mmlu", "models": ["random"]}}
    config["paper_tables"] = ["mmlu"]
    config |= {
        "device": "cpu",
        "dtype": "float32",
        "gpus": 1,
        "resources": {"mem_mb": 1000, "runtime": 10, "threads": 1},
    }
    config["engine"] |= {"name": "transformers", "batch_size": 16}
    config["answers"] |= {"samples": 8, "max_tokens": 1, "shards": 5}  # one more than there are GPUs
    config["confidence"]["candidates"] = 4
    config["training"] |= {"gpus": 1, "checkpointing": False, "save_steps": 10}
    for section, stage in ((config, "sft"), (config, "dpo"), (config["methods"], "conftuner")):
        section[stage] |= {"epochs": 1, "batch_size": 4, "micro_batch_size": 4}
    config["methods"]["conftuner"]["epochs"] = 20  # long enough to be caught at it
    config["methods"] |= {"topk": {"k": 2, "max_tokens": 4}, "cot": {"max_tokens": 4}}
    config["evaluation"]["bootstrap"] = 100
    return config


@contextlib.contextmanager
def snakemake(folder: Path, settings: dict, environment, *arguments) -> Iterator[subprocess.Popen]:
    """A run in a new folder, in the background; with the block it ends, and all that it started here."""
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    words = [*SNAKEMAKE, *arguments, "--", "paper_tables"]
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
            self.last_words = (self.folder / "results/logs/train/mmlu-random-conftuner.log").read_text()

    def log(self, job: dict) -> str:
        """What a job has said so far, from SLURM's own log of it."""
        found = list(self.folder.glob(f".snakemake/slurm_logs/*/*/{job['JobId']}.log"))
        return found[0].read_text() if found else ""


def rule(job: dict) -> str:
    return re.match(r"rule_(\w+?)_wildcards", job["Comment"]).group(1)


@pytest.fixture(scope="module")
def runs(cluster, settings, tmp_path_factory):
    """(story of the run on the cluster, folder of a local run) of one configuration."""
    folder = tmp_path_factory.mktemp("runs")
    # Two pretended devices: nothing looks whether they exist.
    devices = os.environ | {"CUDA_VISIBLE_DEVICES": "0,1"}
    keep = "--slurm-keep-successful-logs"
    with (
        snakemake(folder / "local", settings, devices, "--cores", "2", "--resources", "gpu=2") as local,
        snakemake(folder / "cluster", settings, cluster.environment, *PROFILE, *HERE, keep) as remote,
    ):
        story = Story(cluster, folder / "cluster")
        story.watch(remote)
        for name, process in (("cluster", remote), ("local", local)):
            assert process.wait(timeout=SECONDS) == 0, (folder / name / "out.txt").read_text()[-6000:]
    return story, folder / "local"


def test_the_whole_workflow_finishes_and_only_what_needs_a_gpu_is_a_job(runs):
    story, _ = runs
    for name in ("mmlu.tex", "tables.tex", "comparison.csv", "tables.html", "tables.pdf"):
        assert (story.folder / "paper_tables" / name).stat().st_size > 200
    assert {"sample_shard", "sft", "train", "dpo", "state_shard"} <= {rule(job) for job in story.jobs}
    assert {job["TresPerJob"] for job in story.jobs} == {"gres:gpu:1"}


def test_four_jobs_run_at_once_each_on_a_gpu_of_its_own(runs, cluster):
    story, _ = runs
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


def test_a_cancelled_job_is_submitted_again_with_twice_the_memory(runs):
    story, _ = runs
    first, second = (job for job in story.jobs if job["Comment"] == story.cancelled["Comment"])
    assert (first["JobState"], second["JobState"]) == ("CANCELLED", "COMPLETED")
    assert (first["MinMemoryNode"], second["MinMemoryNode"]) == ("62.50G", "125G")  # 64000 and 128000 MB
    assert "orce: ended by SIGTERM" in story.log(first)


def test_a_preempted_training_goes_on_from_the_step_at_which_it_was_stopped(runs):
    story, _ = runs
    (job,) = (job for job in story.jobs if job["JobId"] == story.preempted["JobId"])
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1")
    step = re.search(r"stopped by SIGTERM after step (\d+)", story.last_words).group(1)
    log = (story.folder / "results/logs/train/mmlu-random-conftuner.log").read_text()
    assert re.search(rf"resuming from \S+/checkpoint-{step}\n", log)


def test_the_tables_are_byte_for_byte_those_of_a_local_run(runs):
    story, local = runs
    names = sorted(path.name for path in (local / "paper_tables").iterdir())
    assert names == sorted(path.name for path in (story.folder / "paper_tables").iterdir())
    for name in names:
        assert (story.folder / "paper_tables" / name).read_bytes() == (local / "paper_tables" / name).read_bytes(), name


def test_a_stopped_slurm_leaves_no_process(tmp_path):
    with slurm.running(tmp_path) as other:
        other.command("sbatch", "--mem=100", f"--output={tmp_path}/job.log", "--wrap", "srun sleep 600")
        end = time.monotonic() + 20
        while not any(process.name() == "sleep" for process in other.processes()) and time.monotonic() < end:
            time.sleep(0.2)
        assert {"munged", "slurmctld", "slurmd", "sleep"} <= {process.name() for process in other.processes()}
    assert other.processes() == []
