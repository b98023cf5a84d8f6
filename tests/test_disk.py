"""Disks that are full or cannot be written: one line with the file's name, nothing half-written, finished chunks kept.

A real disk of 64 kB, mounted where only the test's own processes see it.
"""

import json
import re
import sys

import needs
import pytest
from conftest import ARITHMETIC, PROGRAMS, ROOT, program, training_settings

pytestmark = pytest.mark.needs("mounts")

PYTHON = f"PYTHONPATH={ROOT / 'workflow'} {sys.executable}"
QUESTIONS = {
    "task": ARITHMETIC, "source": {}, "splits": {"test": {"from": "train"}}, "dataset": "a", "seed": 1, "tests": [],
}  # fmt: skip
FREEZE = f"{PYTHON} -m orce prompts --settings @settings.json --split test --out disk/p.jsonl --manifest disk/p.json"


def on_a_small_disk(folder, script):
    """Standard output and error of a shell script in whose folder `disk` is a file system of 64 kB."""
    (folder / "disk").mkdir()
    (folder / "settings.json").write_text(json.dumps(QUESTIONS))
    done = program(*needs.mounting(), "sh", "-c", f"mount -t tmpfs -o size=64k none disk\n{script}", cwd=folder)
    return done.stdout.split(), done.stderr


FULL = "No space left on device; make room and start again: what is finished is kept\n"


# Room for the file, and none for its manifest.
LARGER = """sed -i 's/"source": {}/"source": {"size": 200}/' settings.json"""
FILLED = f"{FREEZE}; size=$(stat -c %s disk/p.jsonl); rm disk/*"
FILLED += "; head -c $((65536 - (size + 4095) / 4096 * 4096)) /dev/zero > disk/fill"


@pytest.mark.parametrize(("before", "said", "left"), [
    (":", rf"orce prompts: disk/p.jsonl: {FULL}", []),
    (f"{LARGER}; {FILLED}", rf"(?s:.*)orce prompts: disk/p.json: {FULL}", ["fill"]),
    ("mount -o remount,ro disk", r"orce prompts: disk/.*p.jsonl.*: Read-only file system\n", []),
], ids=["full", "full for the manifest", "not to be written"])  # fmt: skip
def test_a_full_disk_is_named_and_leaves_nothing_half_written(before, said, left, tmp_path):
    out, err = on_a_small_disk(tmp_path, f"{before}; {FREEZE}; echo $?; ls -A disk")
    assert re.fullmatch(said, err) and out == ["2", *left]


def test_chunks_that_were_finished_before_the_disk_was_full_are_kept(tmp_path):
    run = f"{PYTHON} {PROGRAMS} chunks disk/out.jsonl; echo rc $?; ls disk"
    out, err = on_a_small_disk(tmp_path, f"{run}; mount -o remount,size=4m disk; {run}; wc -l < disk/out.jsonl")
    assert re.fullmatch(rf"disk/.partial/out.jsonl.tag/\S+: {FULL}", err)
    before, after = ["0", "4", "8", "12", "16"], ["16", "20", "24", "28", "32", "36", "40"]
    assert out == [*before, "rc", "1", *after, "rc", "0", "out.jsonl", "40"]


@pytest.mark.slow
def test_a_training_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(tmp_path, model_settings):
    lora = {"r": 2, "alpha": 4, "target_modules": ["q_proj"], "last_layers": 1}
    settings = training_settings(model_settings, lora, {"save_steps": 1}, learning_rate=1e-3)
    (tmp_path / "training.json").write_text(json.dumps(settings))
    run = f"{PYTHON} {PROGRAMS} training training.json"
    # too small for a first checkpoint, for a second; enough
    trained = [f"mount -o remount,size={size} disk; {run} disk/sft; echo $?" for size in ("16k", "80k", "99m")]
    whole = f"{run} whole; echo $?; sha256sum */*/*.safetensors whole/*.safetensors"
    out, err = on_a_small_disk(tmp_path, "; ".join([*trained, whole]))
    first, second = re.findall(rf"^disk/.partial/(\S+): {FULL}", err, re.MULTILINE)
    assert first == second and out[:4] == ["1", "1", "0", "0"] and out[4] == out[6]
