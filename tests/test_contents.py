"""Damaged files of a run: each step that reads one says so in one line, or the damaged part is made again.

The table, on a small run of every stage by the commands that Snakemake plans: each file with {flipped, cut, lines gone, empty,
deleted} before one of its readers, and flipped before each of the others. The command that a line names is then given, and the
same step passes.
"""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import dry_run
import finished_run
import pytest
import small_matrix
from conftest import ARITHMETIC, cases, own_config, program
from dry_run import called
from finished_run import CELL

from orce.__main__ import main
from orce.artefacts import files, store
from orce.errors import BadInput
from orce.reports.screen import rows_so_far

pytestmark = pytest.mark.slow

SAMPLES, SURROGATE, WARM = CELL / "samples.jsonl", CELL / "surrogate.csv", CELL / "sft"
STATEMENTS, METRICS, WEIGHTS = WARM / "confidences.jsonl", WARM / "metrics.json", WARM / "adapter_model.safetensors"
STATED, SAMPLED = "state shards/0/sft/confidences.jsonl", "candidates shards/0/candidates.jsonl"
SFT, ESTIMATED, EVALUATED = "sft sft/manifest.json", "surrogate surrogate.csv", "evaluate sft/metrics.json"
# A file, or a folder of weights, whose files have one seal; the steps that read it; the one that makes it; and where others of the
# same form stand: for another model, data set, method, reward, shard or split.
SEALED = [case for case in cases("sealed_files") if "others" in case]
FILES = [case for case in cases("sealed_files") if Path(case["file"]).suffix]


def flipped(data: bytes) -> bytes:
    """One character changed, so that JSON stays valid: true to false, a digit to another; or one bit of weights."""
    if b"\0" in data:
        middle = len(data) * 3 // 4
        return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    if b"true" in data:
        return data.replace(b"true", b"false", 1)
    place = max(i for i, character in enumerate(data) if chr(character).isdigit())
    return data[:place] + (b"1" if data[place : place + 1] != b"1" else b"2") + data[place + 1 :]


def lines_gone(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:-2]) if len(lines) > 3 else data[: len(data) // 3] + data[len(data) // 2 :]


DAMAGE = {
    "flipped": flipped, "cut": lambda data: data[: len(data) * 2 // 3], "lines gone": lines_gone,
    "empty": lambda data: b"", "deleted": None,
}  # fmt: skip


def damage(path, kind: str) -> None:
    path, change = Path(path), DAMAGE[kind]
    data = path.read_bytes()
    path.unlink()  # the name alone: a shard shares its bytes with its chunks
    if change is not None:
        assert change(data) != data
        path.write_bytes(change(data))


def refused(words: list[str], path) -> str:
    """The one line that a step says of a file, as its last."""
    code, said = called(main, words)
    *_, last = said.splitlines()
    assert code == 2 and [line for line in said.splitlines() if str(path) in line] == [last], said
    return last


def make(words: list[str]) -> int:
    """A step; but the model is there, and it has given some right answers."""
    out = Path(words[words.index("--out") + 1]) if "--out" in words else Path()
    if words[0] == "convert-model":
        shutil.copytree("converted", out.parent, dirs_exist_ok=True)
        store.write_manifest(out, store.folder_digests(out.parent))
    elif words[0] == "sample":
        finished_run.write_samples(out, [word for word in words if "/prompts/" in word])
    else:
        code, said = called(main, words)
        assert code == 0, said
    return 0


def shown(value) -> str:
    """A file or another parameter of a test, without what all files have in their paths."""
    path = value["file"] if isinstance(value, dict) else str(value)
    return path.removeprefix(f"{CELL}/").removeprefix("results/arithmetic/").removeprefix("results/")


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory) -> tuple[Path, dict[str, list[str]]]:
    """A run of every stage of ORCE: its folder, and the words of each step by its name and what it makes."""
    rows = ["consistency", "topk", "linguistic", "p_true", "sft", "sft+platt", "mix", "conftuner", "orce"]
    own, validation = {"task": ARITHMETIC, "source": {}}, {"test": {"from": "validation", "size": 8}}
    models = {"small": {"label": "Small", "source": {"package": "small", "file": "small.gguf"}}}
    stage = {"learning_rate": 2e-2, "batch_size": 4, "epochs": 2}
    sections = {
        "answers": {"samples": 4, "max_tokens": 4}, "confidence": {"shards": 2, "temperature": 3.0},
        "engine": {"name": "transformers", "batch_tokens": 512}, "evaluation": {"bootstrap": 50},
        "sft": stage, "dpo": stage | {"rounds": 1, "accept": "all"}, "training": {"lora": finished_run.LORA, "save_steps": 2},
        "methods": {"mix": {"of": ["p_true", "sft"], "fit": "logistic"}, "linguistic": {"max_tokens": 4}},
    }  # fmt: skip
    spec = own | {"splits": finished_run.SPLITS, "calibrate_on": "fit"}
    config = own_config("arithmetic", spec, models, rows, **sections)
    config["datasets"]["fit"] = own | {"confidence_from": "arithmetic", "splits": validation}
    config["methods"]["conftuner"] |= stage
    root = tmp_path_factory.mktemp("whole")
    shutil.copytree(small, root / "converted")
    (root / "asked.jsonl").write_text('{"question": "What is 2 * 3?", "answer": "6"}\n')
    with mock.patch.object(dry_run, "main", make):
        planned = dry_run.make(root, config, "all")
    by_hand = (
        f"compare {CELL} --methods sft consistency --resamples 20",
        f"measure asked.jsonl --judge {WARM} --out o.jsonl --device cpu",
    )
    steps = {f"{one.stage} {shown(one.out)}": one.words for one in planned}
    return root, steps | {line.split()[0]: line.split() for line in by_hand}


@pytest.fixture
def steps(whole, tmp_path, monkeypatch):
    """The words of each step of the run, of which the current folder is a copy."""
    root, words = whole
    monkeypatch.chdir(shutil.copytree(root, tmp_path / "run"))
    return words


@pytest.mark.parametrize(("case", "kind", "reader"), [
    (case, kind, reader)
    for case in FILES
    for reader in case["readers"]
    for kind in (DAMAGE if reader == case["readers"][0] else ["flipped"])
], ids=shown)  # fmt: skip
def test_damage_is_named_in_one_line_and_removed_by_what_it_says(steps, case, kind, reader):
    path = case["file"]
    damage(path, kind)
    last = refused(steps[reader], path)
    cure = re.search(r"; to make it again: (rm .*), then the same snakemake command$", last)
    assert cure or kind == "deleted", last  # a missing input is the step's own error, and Snakemake makes it
    if cure:
        assert shlex.split(cure[1])[1] in (path, str(Path(path).with_name("manifest.json")))
        subprocess.run(cure[1], shell=True, check=True)
    if reader == case["readers"][0]:
        make(steps[case["maker"]])
        make(steps[reader])


@pytest.mark.parametrize(("case", "other"), [(case, other) for case in SEALED for other in case["others"]], ids=shown)
def test_a_file_of_another_cell_is_named_in_one_line(steps, case, other):
    """The file and its manifest agree, and its bytes are those that belong here: only the place tells."""
    path, reader = Path(case["file"]), case["readers"][0]
    manifest = store.manifest_path(path)
    store.write_manifest(manifest, store.read_manifest(manifest) | {"file": other})
    line = refused(steps[reader], path)
    assert line.startswith(f"orce {reader.split()[0]}: {manifest if path.is_dir() else path}: was made as {other}")
    assert "to make it again: rm" in line


@pytest.mark.parametrize("case", [case for case in SEALED if Path(case["file"]).suffix], ids=shown)
def test_a_file_without_a_manifest_is_named_in_one_line(steps, case):
    manifest = store.manifest_path(case["file"])
    manifest.unlink()
    gone = f"{case['file']}: its manifest {manifest.name} is gone; to make it again: rm"
    assert gone in refused(steps[case["readers"][0]], case["file"])


def test_a_file_of_ones_own_needs_no_manifest_and_the_parameters_of_a_calibration_have_one(steps):
    """A step by hand, on copies outside results/."""
    shutil.copytree(CELL, "mine")
    for manifest in Path("mine").rglob("*.manifest.json"):
        manifest.unlink()
    for step in (ESTIMATED, EVALUATED):
        make([word if "manifest" in word else word.replace(str(CELL), "mine") for word in steps[step]])
    fit = CELL / "sft+platt/fit.json"
    assert store.verify(fit) == fit
    damage(fit, "flipped")
    with pytest.raises(BadInput, match=r"fit\.json: changed since it was written"):
        store.verify(fit)


def test_a_file_of_other_inputs_is_refused_and_shown_while_the_run_goes_on(steps):
    """Confidences in another order, and samples of the same cell, drawn again."""
    store.write(STATEMENTS, files.read_jsonl(STATEMENTS)[::-1])
    assert any(line.startswith(f"  {METRICS.parent.name} ") for line in rows_so_far(CELL))
    assert f"{METRICS}: was made from another {STATEMENTS}" in refused(steps["table paper_tables"], METRICS)
    store.write(SAMPLES, files.read_jsonl(SAMPLES)[::-1])
    told = f"{SURROGATE}: was made from another {SAMPLES} than there is now"
    assert told in refused(steps[EVALUATED], SURROGATE)


def test_shards_of_two_settings_are_not_joined(steps):
    words = steps["candidates shards/1/candidates.jsonl"]
    place = words.index("--settings") + 1
    settings = json.dumps(json.loads(words[place]) | {"seed": 2})
    make([*words[:place], settings, *words[place + 1 :]])
    told = refused(steps["gather candidates.jsonl"], "shards/1/candidates.jsonl")
    assert "1/candidates.jsonl: was made with other settings than" in told


@pytest.mark.parametrize(("step", "kind"), [*((STATED, kind) for kind in DAMAGE), (SAMPLED, "flipped")])
def test_damaged_chunks_are_made_again(steps, step, kind):
    out = CELL / step.split()[1]
    make(steps[step])
    before = out.read_bytes()
    out.unlink()
    damage(min((out.parent / ".partial").glob(f"{out.name}.*/*.jsonl")), kind)
    code, said = called(main, steps[step])
    assert code == 0 and out.read_bytes() == before
    assert "done again" in said or kind == "deleted", said


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_record_of_a_training_trains_again(steps, kind):
    before, made = WEIGHTS.read_bytes(), (WARM / "manifest.json").read_bytes()
    (record,) = (path for path in (CELL / ".partial").glob("sft-*.json") if path.read_bytes() == made)
    damage(record, kind)
    (WARM / "manifest.json").unlink()
    make(steps[SFT])
    store.verify_folder(WARM)
    assert WEIGHTS.read_bytes() == before


@pytest.mark.parametrize(("name", "kind"), [
    *((WEIGHTS.name, kind) for kind in DAMAGE), ("optimizer.pt", "flipped"), ("trainer_state.json", "cut"),
])  # fmt: skip
def test_a_training_goes_on_without_a_damaged_checkpoint(steps, name, kind):
    """It dies at step 5 of 8, with checkpoints of steps 2 and 4."""
    from orce.training import common

    def kill(self, args, state, control, **kwargs):
        assert state.global_step < 5, "killed"

    again = [word.replace(f"{WARM}/", f"{CELL}/again/") for word in steps[SFT]]
    with mock.patch.object(common.Report, "on_step_end", kill), pytest.raises(AssertionError, match="killed"):
        main(again)
    (left,) = (CELL / ".partial").glob("again-*")
    damage(left / "checkpoints" / "checkpoint-4" / name, kind)
    code, said = called(main, again)
    assert code == 0 and "an incomplete checkpoint, or changed since it was written" in said, said
    assert (CELL / "again" / WEIGHTS.name).read_bytes() == WEIGHTS.read_bytes()


HERE = Path("results/mmlu/small")
WANTED = [HERE / "sft/confidences.jsonl", HERE / "sft/metrics.json"]
FINISH = [*small_matrix.SNAKEMAKE, "--cores", "2", "--configfile", "small.yaml", "--", *WANTED]


@pytest.mark.parametrize(("path", "kind", "removed", "step"), [
    (HERE / "samples.jsonl", "flipped", HERE / "surrogate.csv", "surrogate"),
    (HERE / "sft/adapter_config.json", "deleted", HERE / "sft/confidences.jsonl", "state"),
], ids=shown)  # fmt: skip
def test_snakemake_names_damage_and_the_same_command_works_after_the_cure(
    straight, tmp_path, path, kind, removed, step
):
    """Of a finished run; one file is removed, so that the damaged one is read again."""
    folder = shutil.copytree(straight, tmp_path / "run")

    def numbers() -> dict:
        """The metrics, without the seconds that a training took."""
        return files.read_json(folder / FINISH[-1]) | {"provenance": None}

    before = numbers()
    damage(folder / path, kind)
    (folder / removed).unlink()
    done = program(*FINISH, cwd=folder)
    said = done.stdout + done.stderr
    lines = {line for line in said.splitlines() if line.startswith(f"orce {step}: ")}
    assert done.returncode != 0 and "Traceback" not in said and len(lines) == 1, said
    (command,) = re.findall(r"to make it again: (rm .*), then the same snakemake command", lines.pop())
    subprocess.run(command, shell=True, check=True, cwd=folder)
    done = program(*FINISH, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert numbers() == before
    assert "Nothing to be done" in dry_run.snakemake(folder, *FINISH[1:])[1]
