"""Names that a shell would obey: the checkout's folder, a package, the path of a task. All stay plain arguments."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import dry_run
import pytest
import small_matrix
import yaml
from conftest import ROOT

NAME = 'it\'s a "test" {x}; $(touch pwned) `touch pwned` | tee pwned & 模型 *?[a] %s \\n #'
LABEL = "</script><script>alert(1)</script> {x} $x$ \\input{/etc/passwd} .. raw:: html _a_ |b| `c`"
pytestmark = pytest.mark.slow
SNAKEMAKE = Path(sys.executable).with_name("snakemake")


def snakemake(folder, *arguments, snakefile=None):
    """(exit code, everything said)."""
    command = [SNAKEMAKE, "--snakefile", snakefile or folder / "Snakefile", "--cores", "2", *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path):
    """A copy of what a run needs, in a folder with that name."""
    folder = tmp_path / NAME
    shutil.copytree(ROOT / "workflow", folder / "workflow", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "profiles", folder / "profiles")
    for name in ("Snakefile", "config.yaml"):
        shutil.copy(ROOT / name, folder)
    return folder


def made_by_injection(*folders):
    return [path for folder in folders for path in folder.rglob("pwned*")]


def test_a_whole_run_in_a_folder_with_such_a_name(checkout, tiny, tmp_path):
    model = small_matrix.letter_model(tiny, checkout / "my model; touch pwned")
    small_matrix.write(checkout, *small_matrix.configuration(model))
    config = yaml.safe_load((checkout / "config.yaml").read_text())
    config["tables"]["main"]["methods"] = {"consistency": "Consistency", "cot": LABEL, "orce": "ORCE"}
    config["models"]["small"]["label"] = LABEL
    (checkout / "config.yaml").write_text(yaml.safe_dump(config))
    code, said = snakemake(checkout, "--configfile", "small.yaml", "--", "all")
    assert code == 0, said[-6000:]
    assert (checkout / "paper_tables" / "tables.pdf").read_bytes().startswith(b"%PDF")
    logs = [path.parent.name for path in (checkout / "results" / "logs").rglob("*.log")]
    assert {
        "prompts", "sample", "elicit", "surrogate", "sft", "candidates", "pairs", "dpo", "state", "derive", "evaluate",
    } <= {*logs}  # fmt: skip
    assert made_by_injection(checkout, tmp_path) == []
    code, said = snakemake(checkout, "--configfile", "small.yaml", "--report", "report.html", "--", "all")
    assert code == 0, said[-3000:]
    report = (checkout / "report.html").read_text()
    assert "<script>alert" not in report and "root:x:0" not in report


@pytest.mark.parametrize("name", ["a:b", "a\nb", os.fsdecode(b"a\xffb")], ids=["colon", "line break", "no UTF-8"])
def test_a_folder_that_no_path_variable_can_hold_is_refused(name, tmp_path):
    folder = tmp_path / name
    folder.mkdir()
    for part in ("Snakefile", "config.yaml", "workflow", "profiles"):
        os.symlink(ROOT / part, folder / part)
    (folder / "Snakefile").unlink()
    shutil.copy(ROOT / "Snakefile", folder)
    code, said = snakemake(folder, "-n", "--", "paper_tables")
    assert code != 0 and len(re.findall("cannot stand in the name of a folder", said)) == 1, said
    assert "Traceback" not in said


HOSTILE = 'a\'b | touch pwned; $(touch pwned) {x} "c"'


def command_of(said: str, step: str) -> list[str]:
    """The arguments of a step, as the shell that runs the printed command would see them."""
    line = next(line for line in said.splitlines() if f"python -m orce {step}" in line)
    return shlex.split(line.partition(" 2>&1 | tee ")[0])


def test_a_package_and_a_file_are_one_argument_each(tmp_path):
    over = {"models": {"llama3-8b": {"source": {"package": HOSTILE, "file": HOSTILE}}}}
    shutil.copy(ROOT / "config.yaml", tmp_path)
    (tmp_path / "over.yaml").write_text(yaml.safe_dump(over))
    target = "results/models/llama3-8b/manifest.json"
    arguments = ("--configfile", "over.yaml", "-p", "--", target)
    code, said = snakemake(tmp_path, *arguments, snakefile=ROOT / "Snakefile")
    assert code != 0
    words = command_of(said, "convert-model")
    assert words[words.index("--package") + 1] == HOSTILE and words[words.index("--file") + 1] == HOSTILE
    assert f"orce convert-model: package {HOSTILE!r} is not installed" in said
    assert made_by_injection(tmp_path) == []


def test_a_task_and_data_under_such_paths(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(ROOT / "tests" / "data" / "mmlu", folder / HOSTILE)
    shutil.copy(ROOT / "config.yaml", folder)
    task = f"{HOSTILE}/task.py"
    (folder / task).write_text("from orce.tasks import get\nfrom orce.tasks.choice import *\nload = get('mmlu').load\n")
    splits = {"test": {"from": "test", "size": 3}}
    over = {"datasets": {"mmlu": {"task": task, "source": {"path": HOSTILE}, "splits": splits}}}
    (folder / "over.yaml").write_text(yaml.safe_dump(over))
    arguments = ("--configfile", "over.yaml", "--", "results/mmlu/prompts/test.jsonl")
    code, said = snakemake(folder, *arguments, snakefile=ROOT / "Snakefile")
    assert code == 0, said[-3000:]
    cell = ("-p", "--configfile", "over.yaml", "--", "results/mmlu/llama3-8b/consistency/confidences.jsonl")
    words = command_of(dry_run.snakemake(folder, "--snakefile", ROOT / "Snakefile", "--cores", "2", *cell)[1], "derive")
    assert words[words.index("--task") + 1] == task
    assert made_by_injection(tmp_path) == []
