"""A dataset, a prompted method, a trained method and a reward of one's own, by the words of docs/extending.md."""

import re
import subprocess
import sys
from pathlib import Path

import dry_run
import pytest
import yaml
from conftest import ROOT

from orce.artefacts import files
from orce.runtime import modules

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "extending.md").read_text()
# The page's configuration on a small model and two cores.
SMALL = """
device: cpu
dtype: float32
gpus: 0
engine: {name: transformers, batch_tokens: 2048}
answers: {samples: 4, max_tokens: 1}
confidence: {temperature: 2.0}
training: {gpus: 0, checkpointing: false, lora: {last_layers: 1}}
sft: {epochs: 1, batch_size: 4}
dpo: {epochs: 1, batch_size: 4}
evaluation: {bootstrap: 100}
resources: {mem_mb: 2000, runtime: 60, threads: 1}
"""
METHODS = ["vanilla", "consistency", "percent", "lead", "right", "sft", "orce", "orce-brier"]


# The page's command with the small model's configuration after the page's.
ARGUMENTS = ["--snakefile", ROOT / "Snakefile", "--cores", "2", "--configfile", "mine.yaml", "small.yaml"]


@pytest.fixture(scope="module")
def folder(letters, tmp_path_factory):
    """A folder with the files of the page as they stand there."""
    root = tmp_path_factory.mktemp("mine")
    blocks = re.findall(r"^```\w+\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for name, text in blocks:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    assert {name for name, _ in blocks} == {
        "my/larger.py", "my/percent.py", "my/lead.py", "my/right_or_wrong.py", "my/brier.py", "mine.yaml"
    }  # fmt: skip
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    config["models"]["llama3-8b"]["source"] = {"path": letters}
    (root / "config.yaml").write_text(yaml.safe_dump(config))
    (root / "small.yaml").write_text(SMALL)
    return root


@pytest.fixture(scope="module")
def finished(folder):
    command = [Path(sys.executable).with_name("snakemake"), *ARGUMENTS]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return folder


def test_the_table_has_a_row_for_each(finished):
    tex = (finished / "paper_tables" / "mine.tex").read_text()
    for label in ("Percent", "Lead", "SFT on correctness", "Brier reward", "Consistency", "ORCE"):
        assert label in tex
    cell = finished / "results" / "larger" / "llama3-8b"
    assert sorted(path.parent.name for path in cell.glob("*/metrics.json")) == sorted(METHODS)


def test_the_settings_of_the_config_reach_the_training(finished):
    manifest = files.read_json(finished / "results/larger/llama3-8b/right/manifest.json")
    assert (manifest["settings"]["stage"]["right"], manifest["settings"]["stage"]["epochs"]) == (95, 1)


def test_the_reward_chooses_the_pairs(finished):
    cell = finished / "results" / "larger" / "llama3-8b"
    correct = {row["id"]: row["correct"] for row in files.read_jsonl(cell / "candidates.jsonl")}
    for pair in files.read_jsonl(cell / "pairs" / "brier.jsonl"):
        chosen, rejected = (int(pair[side][0]["content"].split()[-1]) for side in ("chosen", "rejected"))
        assert (chosen > rejected) == correct[pair["id"]]


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("my/percent.py", "LABEL = (", "percent.py, line 1: "),
        ("my/percent.py", "LABEL, KIND = 'x', 'prompted'\n", "my/percent.py: no prompt; a prompted method has prompt, read"),
        ("my/percent.py", "LABEL, KIND = 'x', 'polled'\n", "KIND is 'polled'; a method is prompted, measured, stated, fitted"),
        ("my/right_or_wrong.py", "LABEL, KIND = 'x', 'stated'\n", "no WEIGHTS; a stated method without a training"),
        ("my/brier.py", "LABEL = 'x'\n", "my/brier.py: no reward; a reward has LABEL, reward"),
        ("my/brier.py", "1 / 0\n", "my/brier.py, line 1: ZeroDivisionError"),
    ],
)  # fmt: skip
def test_a_broken_module_ends_the_run_before_its_first_job(folder, path, text, message):
    whole = (folder / path).read_text()
    (folder / path).write_text(text)
    try:
        modules.imported.cache_clear()  # a process of its own has read no module yet
        code, said = dry_run.snakemake(folder, *ARGUMENTS)
    finally:
        (folder / path).write_text(whole)
    assert code != 0 and message in said and "Job stats" not in said
