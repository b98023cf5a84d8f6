"""Damaged files of a run: each step that reads one says so in one line, or the damaged part is made again.

The table, on a small finished run: each file with {flipped, cut, lines gone, empty, deleted} before one of its readers, and
flipped before each of the others. The command that a line names is then given, and the same step passes.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import dry_run
import finished_run
import pytest
import small_matrix
import yaml
from conftest import ARITHMETIC, ROOT, prompts_words
from finished_run import CELL, MODEL, PROMPTS, SFT, SPEED, STATED, TEST

from orce.__main__ import main
from orce.artefacts import files, store
from orce.errors import BadInput
from orce.reports.screen import rows_so_far

pytestmark = pytest.mark.slow

DATA = "results/arithmetic/prompts"
SPLIT = {name: f"{name}={DATA}/{name}.jsonl" for name in ("sft", "rl", "test")}
ASKED = {"task": ARITHMETIC, "label": "x", "model": MODEL, "engine": "transformers", "seed": 1}
SAMPLE = ASKED | {"samples": 2, "temperature": 1.0, "top_p": 1.0, "max_tokens": 4, "shots": 0}
TOPK = ASKED | {"method": "topk", "module": "topk", "options": {"k": 2, "max_tokens": 8, "shots": 0}}
NAMED = {"task": ARITHMETIC, "label": "x", "seed": 1}
DRAW = NAMED | {"model": MODEL, "candidates": 8, "temperature": 3.0}
LINGUISTIC = ASKED | {"method": "linguistic", "module": "linguistic", "options": {"max_tokens": 4}}
SCORED = {"task": ARITHMETIC, "label": "x", "model": MODEL, "shots": 0}
CALIBRATE = {"task": ARITHMETIC, "label": "x", "method": "sft+platt", "module": "platt", "below": ["sft"]}
COMBINE = {
    "task": ARITHMETIC, "label": "x", "method": "mix", "combination": "logistic",
    "below": ["p_true", "sft"], "unparsed_confidence": 0.5,
}  # fmt: skip
LABELS = {"labels": {}}
PAIRS = NAMED | {"reward": "sayself", "module": "sayself", "reference": "mean", "leave_one_out": False}
TAUGHT = SFT["stage"] | {"epochs": 1, "format_weight": 1.0, "spread": 0.1}
TUNE = SFT | {"method": "conftuner", "module": "conftuner", "stage": TAUGHT}
PREFERENCE = {key: value for key, value in SFT["stage"].items() if key != "target"} | {"beta": 0.1, "epochs": 1}
ALIGN = SFT | {"stage": PREFERENCE}
ONE = {
    "kind": "main", "dataset": "arithmetic", "models": ["small"], "methods": ["sft"],
    "rows": [["small", "sft", "SFT", False]],
}  # fmt: skip
TABLE = {
    "tables": {"one": ONE}, "order": ["one"], "models": {"small": {"label": "Small"}}, "tasks": {"arithmetic": ARITHMETIC},
}  # fmt: skip
PICTURED = {"dataset": "arithmetic", "model": "small", "label": "Small"}
DRAWN = {
    "cells": [PICTURED | {"methods": [["sft", "SFT"]]}], "unparsed_confidence": 0.5,
}  # fmt: skip


def argv(step: str, settings: dict | None = None, **flags) -> list[str]:
    words = [step, *(["--settings", json.dumps(settings)] if settings else [])]
    for key, value in flags.items():
        words += [f"--{key.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return [word for word in words if word]


SAMPLES, SURROGATE, WARM, SHARDS = CELL / "samples.jsonl", CELL / "surrogate.csv", CELL / "sft", CELL / "shards"
CANDIDATES, PREFERRED, ALIGNED = CELL / "candidates.jsonl", CELL / "pairs/sayself.jsonl", CELL / "dpo"
METRICS, STATEMENTS, BASE = WARM / "metrics.json", WARM / "confidences.jsonl", Path("results/models/small")
AGREED, LIKELIHOODS, EXTRA = CELL / "consistency/confidences.jsonl", CELL / "likelihoods.jsonl", WARM / "extra.json"
MEASURED, CALIBRATED = CELL / "p_true/confidences.jsonl", CELL / "sft+platt/confidences.jsonl"
COMBINED = CELL / "mix/confidences.jsonl"
FIT = CALIBRATED.with_name("fit.json")


def evaluated(confidences: Path) -> list[str]:
    made = {"out": confidences.with_name("metrics.json"), "extra": confidences.with_name("extra.json")}
    manifests = [CELL / "samples.manifest.json", WARM / "manifest.json"]
    options = finished_run.EVALUATE | {"seed": 1, "method": confidences.parent.name}
    return argv("evaluate", options, confidences=confidences, surrogate=SURROGATE, manifests=manifests, **made)


PAIRED = {"surrogate": SURROGATE, "prompts": SPLIT["rl"]}
STEPS = {
    "sample": argv("sample", SAMPLE, prompts=SPLIT["test"], out=SHARDS / "samples-0.jsonl"),
    "elicit": argv("elicit", TOPK, prompts=TEST, out=SHARDS / "topk-0.jsonl"),
    "elicit asked": argv("elicit", LINGUISTIC, prompts=TEST, samples=SAMPLES, out=SHARDS / "linguistic-0.jsonl"),
    "overlap": argv("overlap", train=[f"{DATA}/sft.jsonl", f"{DATA}/rl.jsonl"], test=TEST, out="results/arithmetic/overlap.json"),
    "surrogate": argv("surrogate", samples=SAMPLES, seed=1, out=SURROGATE),
    "sft": argv("sft", SFT, surrogate=SURROGATE, prompts=SPLIT["sft"], out=WARM),
    "train": argv("train", TUNE, surrogate=SURROGATE, prompts=[SPLIT["sft"], SPLIT["rl"]], out=CELL / "conftuner"),
    "candidates": argv("candidates", DRAW, **PAIRED, weights=WARM, out=SHARDS / "candidates-0.jsonl"),
    "gather": argv("gather", shards=SHARDS / "candidates-0.jsonl", out=CANDIDATES),
    "pairs": [
        *argv("pairs", PAIRS, **PAIRED, candidates=CANDIDATES, out=PREFERRED),
        *argv("--from-reference", manifest=store.manifest_path(PREFERRED)),
    ],
    "dpo": argv("dpo", ALIGN, pairs=PREFERRED, sft=WARM, out=ALIGNED),
    "state": argv("state", STATED | {"model": MODEL}, prompts=TEST, samples=SAMPLES, weights=WARM, out=SHARDS / "sft-0.jsonl"),
    "state dpo": argv("state", STATED | {"model": MODEL}, prompts=TEST, samples=SAMPLES, weights=ALIGNED, out=SHARDS / "orce-0.jsonl"),
    "derive own": argv("derive", task=ARITHMETIC, method="consistency", prompts=TEST, samples=SAMPLES, out=AGREED),
    "likelihoods": argv("likelihoods", SCORED, prompts=TEST, samples=SAMPLES, out=SHARDS / "likelihoods-0.jsonl"),
    "gather scored": argv("gather", shards=SHARDS / "likelihoods-0.jsonl", out=LIKELIHOODS),
    "derive": argv("derive", task=ARITHMETIC, method="p_true", prompts=TEST, samples=SAMPLES, likelihoods=LIKELIHOODS, out=MEASURED),
    "fit": argv("fit", CALIBRATE, fit_on=SPLIT["rl"], fit_confidences=AGREED, prompts=TEST, confidences=STATEMENTS, out=CALIBRATED, fit=FIT),
    "fit combined": argv("fit", COMBINE, fit_on=SPLIT["rl"], fit_confidences=[MEASURED, STATEMENTS], prompts=TEST, confidences=[MEASURED, STATEMENTS], out=COMBINED, fit=COMBINED.with_name("fit.json")),
    "metrics-csv": argv("metrics-csv", LABELS, metrics=METRICS, out="results/metrics.csv"),
    "gather stated": argv("gather", shards=SHARDS / "sft-0.jsonl", readout="stated", out=STATEMENTS),
    "evaluate": evaluated(STATEMENTS),
    "evaluate measured": evaluated(MEASURED),
    "evaluate calibrated": evaluated(CALIBRATED),
    "evaluate combined": evaluated(COMBINED),
    "table": argv("table", TABLE, metrics=METRICS, out="paper_tables"),
    "tables": argv("tables", TABLE, metrics=METRICS, out="paper_tables"),
    "figures": argv("figures", DRAWN, out="figures"),
    "compare": ["compare", str(CELL), "--methods", "sft", "consistency", "--resamples", "20"],
    "measure": ["measure", "asked.jsonl", "--judge", str(WARM), "--out", "scored.jsonl", "--device", "cpu"],
}  # fmt: skip

# What reads each file, and the steps that make it again once it is removed.
FILES = {
    f"{DATA}/sft.jsonl": (["overlap", "sft", "train"], ["prompts sft"]),
    f"{DATA}/rl.jsonl": (["candidates", "pairs", "fit", "fit combined"], ["prompts rl"]),
    TEST: (
        ["sample", "elicit", "overlap", "state", "derive own", "likelihoods", "derive", "fit", "fit combined"],
        ["prompts test"],
    ),
    SAMPLES: (["surrogate", "state", "derive own", "elicit asked", "likelihoods", "derive"], ["samples"]),
    store.manifest_path(SAMPLES): (["evaluate"], ["samples"]),
    SURROGATE: (["sft", "train", "candidates", "pairs", "evaluate"], ["surrogate"]),
    SHARDS / "candidates-0.jsonl": (["gather"], ["candidates"]),
    SHARDS / "sft-0.jsonl": (["gather stated"], ["state"]),
    SHARDS / "likelihoods-0.jsonl": (["gather scored"], ["likelihoods"]),
    LIKELIHOODS: (["derive"], ["gather scored"]),
    AGREED: (["fit"], ["derive own"]),
    MEASURED: (["evaluate measured", "fit combined"], ["derive"]),
    COMBINED: (["evaluate combined"], ["fit combined"]),
    CALIBRATED: (["evaluate calibrated"], ["fit"]),
    CANDIDATES: (["pairs"], ["gather"]),
    PREFERRED: (["dpo"], ["pairs"]),
    WARM / "adapter_model.safetensors": (["candidates", "state", "dpo", "measure"], ["sft"]),
    WARM / "adapter_config.json": (["candidates", "state", "dpo", "measure"], ["sft"]),
    WARM / "tokenizer.json": (["state"], ["sft"]),
    WARM / "manifest.json": (["candidates", "state", "dpo", "evaluate", "measure"], ["sft"]),
    ALIGNED / "adapter_model.safetensors": (["state dpo"], ["dpo"]),
    ALIGNED / "adapter_config.json": (["state dpo"], ["dpo"]),
    BASE / "model.safetensors": (["sample", "state", "sft", "likelihoods"], ["convert-model"]),
    BASE / "config.json": (["sample", "state"], ["convert-model"]),
    STATEMENTS: (["evaluate", "compare", "fit", "fit combined", "figures"], ["gather stated"]),
    METRICS: (["table", "tables", "metrics-csv"], ["evaluate"]),
    EXTRA: (["metrics-csv"], ["evaluate"]),
}


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


def call(words: list[str]) -> tuple[int, list[str]]:
    """Exit code and the lines on standard error of a step."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()), mock.patch.dict(os.environ):
        os.environ["ORCE_SPEED"] = json.dumps(SPEED)
        code = main(words)
    return code, said.getvalue().splitlines()


def refused(step: str, path) -> str:
    """The one line that a step says of a file, as its last."""
    code, said = call(STEPS[step])
    assert code == 2 and [line for line in said if str(path) in line] == said[-1:], said
    return said[-1]


def make(step: str) -> None:
    """Run one of STEPS, or what the run's fixture did in its place."""
    if step.startswith("prompts"):
        split = step.split()[1]
        words = prompts_words(PROMPTS, f"{DATA}/{split}.jsonl", split)
    elif step == "samples":  # as a gather of shards would
        finished_run.write_samples()
        return
    elif step == "convert-model":
        shutil.rmtree(BASE)
        shutil.copytree("converted", BASE)
        return
    else:
        words = STEPS[step]
    code, said = call(words)
    assert code == 0, said


MADE = (  # state and candidates twice: a gather forgets the chunks of its shards
    "overlap", "sft", "state", "gather stated", "evaluate", "candidates", "gather", "pairs", "dpo",
    "state", "state dpo", "candidates", "derive own", "table", "tables", "likelihoods",
    "gather scored", "derive", "fit", "fit combined",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(finished, small, tmp_path_factory):
    """The finished run with every stage of ORCE, and its base model as a conversion leaves it."""
    root = tmp_path_factory.mktemp("whole") / "run"
    shutil.copytree(finished, root)
    with contextlib.chdir(root):
        store.write_manifest(BASE / "manifest.json", store.folder_digests(BASE))
        shutil.copytree(BASE, "converted")
        for step in MADE:
            make(step)
        Path("asked.jsonl").write_text('{"question": "What is 2 * 3?", "answer": "6"}\n')
    return root


@pytest.fixture
def run(whole, monkeypatch):
    """The finished run as the current folder; what the test damages or makes is put back afterwards."""
    monkeypatch.chdir(whole)
    kept = whole.with_name("kept")
    if not kept.exists():
        shutil.copytree(whole, kept)
    yield whole
    put_back(kept, whole)


def put_back(kept: Path, folder: Path) -> None:
    """Make a folder what its copy is: a file is the same if it has the copy's size and time of change."""
    now, then = ({path.relative_to(root) for path in root.rglob("*")} for root in (folder, kept))
    for path in sorted(now - then, reverse=True):
        (folder / path).rmdir() if (folder / path).is_dir() else (folder / path).unlink()
    for path in sorted(then):
        if (kept / path).is_dir():
            (folder / path).mkdir(exist_ok=True)
        elif path not in now or stamp(folder / path) != stamp(kept / path):
            shutil.copy2(kept / path, folder / path)


def stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


CELLS = [
    (str(path), kind, reader)
    for path, (readers, _) in FILES.items()
    for reader in readers
    for kind in (DAMAGE if reader == readers[0] else ["flipped"])
]
CURED = {(str(path), readers[0]): makers for path, (readers, makers) in FILES.items()}


def shown(value) -> str:
    return str(value).removeprefix("results/")


@pytest.mark.parametrize(("path", "kind", "reader"), CELLS, ids=shown)
def test_damage_is_named_in_one_line_and_removed_by_what_it_says(run, path, kind, reader):
    damage(path, kind)
    code, said = call(STEPS[reader])
    cure = re.search(r"; to make it again: (rm .*), then the same snakemake command$", said[-1] if said else "")
    if kind == "deleted":  # a missing input is the step's own error, and Snakemake makes it
        assert (path, reader) in PASSES or (code == 2 and (path in said[-1] or reader == "compare")), said
    else:
        assert code == 2 and cure and [line for line in said if path in line] == said[-1:], said
    if cure:
        assert shlex.split(cure[1])[1] in (path, str(Path(path).with_name("manifest.json")))
        subprocess.run(cure[1], shell=True, check=True)
    if (path, reader) in CURED:
        for step in CURED[path, reader]:
            make(step)
        make(reader)


# Reports about what there is: without a file they tell what else there is.
PASSES = {(str(STATEMENTS), "figures")}


def test_the_parameters_of_a_calibration_have_a_manifest(run):
    assert store.verify(FIT) == FIT
    damage(FIT, "flipped")
    with pytest.raises(BadInput, match=r"fit\.json: changed since it was written"):
        store.verify(FIT)


def elsewhere(path: Path) -> list[Path]:
    """Where a file of the same form stands: for another model, data set, method, reward, shard or split."""
    inside = path.relative_to("results/arithmetic")
    others = [Path("results/worldfacts") / inside]
    if inside.parts[0] == "small":
        others.append(Path("results/arithmetic/other", *inside.parts[1:]))
    return others + SIBLINGS.get(path, [])


SIBLINGS = {  # in the same cell
    Path(TEST): [Path(DATA) / "rl.jsonl"],
    Path(DATA) / "sft.jsonl": [Path(DATA) / "rl.jsonl"],
    PREFERRED: [CELL / "pairs/sc.jsonl", CELL / "round2/sayself/pairs/sayself.jsonl"],
    CANDIDATES: [CELL / "round2/sc/candidates.jsonl"],
    SHARDS / "sft-0.jsonl": [SHARDS / "vanilla-0.jsonl", SHARDS / "sft-1.jsonl"],
    SHARDS / "candidates-0.jsonl": [SHARDS / "candidates-1.jsonl"],
    STATEMENTS: [CELL / "vanilla/confidences.jsonl", CELL / "sft-from-other/confidences.jsonl"],
    METRICS: [CELL / "vanilla/metrics.json"],
    EXTRA: [CELL / "vanilla/extra.json"],
    WARM: [ALIGNED, CELL / "dpo-nrd"],
    ALIGNED: [WARM, CELL / "dpo-nrd", CELL / "round2/sc/start"],
}


def sealed_alone(path: Path) -> bool:
    """Whether a file has its own manifest, where weights have the one of their folder."""
    if path.name.endswith("manifest.json"):
        return False
    return path in (STATEMENTS, METRICS, EXTRA) or path.parent not in (WARM, ALIGNED, BASE)


READ = {Path(path): readers[0] for path, (readers, _) in FILES.items() if sealed_alone(Path(path))}
SWAPS = [
    (path, other, reader)
    for path, reader in (READ | {WARM: "state", ALIGNED: "state dpo"}).items()
    for other in elsewhere(path)
]


@pytest.mark.parametrize(("path", "other", "reader"), SWAPS, ids=shown)
def test_a_file_of_another_cell_is_named_in_one_line(run, path, other, reader):
    """The file and its manifest agree, and its bytes are those that belong here: only the place tells."""
    manifest = path / "manifest.json" if path.is_dir() else store.manifest_path(path)
    store.write_manifest(manifest, store.read_manifest(manifest) | {"file": str(other)})
    named = manifest if path.is_dir() or reader == "evaluate" and path == SAMPLES else path
    line = refused(reader, path)
    assert line.startswith(f"orce {reader.split()[0]}: {named}: was made as {other}")
    assert "to make it again: rm" in line


@pytest.mark.parametrize(("path", "reader"), READ.items(), ids=shown)
def test_a_file_without_a_manifest_is_named_in_one_line(run, path, reader):
    store.manifest_path(path).unlink()
    gone = f"{path}: its manifest {store.manifest_path(path).name} is gone; to make it again: rm"
    assert gone in refused(reader, path)


def test_a_file_of_ones_own_needs_no_manifest(run):
    """A step by hand, on copies outside results/."""
    mine = Path("mine")
    mine.mkdir()
    for path in (SAMPLES, STATEMENTS, SURROGATE):
        shutil.copy(path, mine)
    assert call(argv("surrogate", samples=mine / SAMPLES.name, seed=1, out=mine / "mine.csv"))[0] == 0
    options = finished_run.EVALUATE | {"seed": 1}
    mine_too = {"confidences": mine / STATEMENTS.name, "surrogate": mine / SURROGATE.name}
    code, said = call(argv("evaluate", options, **mine_too, out=mine / "metrics.json", extra=mine / "extra.json"))
    assert code == 0, said


@pytest.mark.parametrize(("change", "told"), [
    (lambda records: [*records, records[0]], ", line 21: id '{}' stands in line 1 already"),
    (lambda records: records[1:], ": no line for id '{}' of {}, and 1 of 20 test ids have none"),
    (lambda records: [records[0] | {"id": "x"}], ", line 1: id 'x' has no test row in {1}"),
], ids=["doubled", "missing", "foreign"])  # fmt: skip
def test_every_test_question_is_evaluated_once(run, change, told):
    records = files.read_jsonl(STATEMENTS)
    store.write(STATEMENTS, change(records))
    said = f"{STATEMENTS}{told.format(records[0]['id'], SURROGATE)}"
    assert said in refused("evaluate", STATEMENTS)


def test_a_file_made_from_other_inputs_than_there_are_is_refused(run):
    """Samples of the same cell, drawn again, under readings of the old ones."""
    store.write(SAMPLES, files.read_jsonl(SAMPLES)[::-1])
    told = f"{SURROGATE}: was made from another {SAMPLES} than there is now"
    assert told in refused("evaluate", SURROGATE)


def test_shards_of_two_settings_are_not_joined(run):
    for shard, seed in enumerate((1, 2)):
        drawn = argv("candidates", DRAW | {"seed": seed}, **PAIRED, weights=WARM, shard=f"{shard}/2")
        assert call([*drawn, "--out", str(SHARDS / f"candidates-{shard}.jsonl")])[0] == 0
    code, said = call(argv("gather", shards=[SHARDS / f"candidates-{shard}.jsonl" for shard in (0, 1)], out=CANDIDATES))
    assert code == 2 and "candidates-1.jsonl: was made with other settings than" in said[-1]


def test_numbers_of_changed_confidences_are_shown_while_the_run_goes_on_and_make_no_table(run):
    store.write(STATEMENTS, files.read_jsonl(STATEMENTS)[::-1])
    assert any(line.startswith(f"  {Path(METRICS).parent.name} ") for line in rows_so_far(CELL))
    assert f"{METRICS}: was made from another {STATEMENTS}" in refused("table", METRICS)


@pytest.mark.parametrize(("step", "out", "kind"), [
    *(("state", "sft-0.jsonl", kind) for kind in DAMAGE), ("candidates", "candidates-0.jsonl", "flipped"),
])  # fmt: skip
def test_damaged_chunks_are_made_again(run, step, out, kind):
    before = (SHARDS / out).read_bytes()
    (SHARDS / out).unlink()
    damage(min((SHARDS / ".partial").glob(f"{out}.*/*.jsonl")), kind)
    code, said = call(STEPS[step])
    assert code == 0 and (SHARDS / out).read_bytes() == before
    assert any("done again" in line for line in said) or kind == "deleted", said


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_record_of_a_training_trains_again(run, kind):
    before = (WARM / "adapter_model.safetensors").read_bytes()
    made = (WARM / "manifest.json").read_bytes()
    (record,) = (path for path in (CELL / ".partial").glob("sft-*.json") if path.read_bytes() == made)
    damage(record, kind)
    (WARM / "manifest.json").unlink()
    make("sft")
    store.verify_folder(WARM)
    assert (WARM / "adapter_model.safetensors").read_bytes() == before


class Killed(Exception):
    pass


OFTEN = SFT | {"training": SFT["training"] | {"save_steps": 10}}
AGAIN = argv("sft", OFTEN, surrogate=SURROGATE, prompts=SPLIT["sft"], out=CELL / "again")


@pytest.fixture(scope="module")
def killed(whole, tmp_path_factory) -> Path:
    """What a training leaves, outside the run, that died at step 25 of 40, with checkpoints of steps 10 and 20."""
    from orce.training import common

    def kill(self, args, state, control, **kwargs):
        if state.global_step == 25:
            raise Killed

    with contextlib.chdir(whole):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(common.Report, "on_step_end", kill, raising=False)
            call(AGAIN)
        (left,) = (CELL / ".partial").glob("again-*")
        return Path(shutil.move(left, tmp_path_factory.mktemp("killed")))


@pytest.mark.parametrize(("name", "kind"), [
    *(("adapter_model.safetensors", kind) for kind in DAMAGE), ("optimizer.pt", "flipped"), ("trainer_state.json", "cut"),
])  # fmt: skip
def test_a_training_goes_on_without_a_damaged_checkpoint(run, killed, name, kind):
    left = shutil.copytree(killed, CELL / ".partial" / killed.name)
    damage(left / "checkpoints" / "checkpoint-20" / name, kind)
    code, said = call(AGAIN)
    assert code == 0 and any("an incomplete checkpoint, or changed since it was written" in line for line in said), said
    assert (CELL / "again/adapter_model.safetensors").read_bytes() == (WARM / "adapter_model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def workflow(small, tmp_path_factory) -> Path:
    """A finished run of Snakemake: agreement and a warm start, on twelve questions."""
    folder = tmp_path_factory.mktemp("workflow")
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    demo = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    config["datasets"] = small_matrix.questions()
    config["models"] = {"small": {"label": "Small", "source": {"path": small}}}
    table = {"kind": "main", "dataset": "mmlu", "models": ["small"], "methods": ["consistency", "sft"]}
    config["tables"] = {"one": table}
    for key in ("engine", "resources"):
        config[key] |= demo[key]
    config["training"] |= {"lora": finished_run.LORA, "checkpointing": False, "gpus": 0}
    config |= {"paper_tables": ["one"], "device": "cpu", "dtype": "float32", "gpus": 0}
    config["answers"] |= {"samples": 2, "shards": 1, "max_tokens": 2}
    config["confidence"] |= {"shards": 1, "candidates": 4, "temperature": 1.0}
    config["sft"] = finished_run.STAGE | {"epochs": 1}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    code, said = snakemake(folder)
    assert code == 0, said
    return folder


ARGUMENTS = ["--snakefile", ROOT / "Snakefile", "--cores", "2", "--", "paper_tables"]


def snakemake(folder) -> tuple[int, str]:
    command = [Path(sys.executable).with_name("snakemake"), *ARGUMENTS]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


HERE = Path("results/mmlu/small")
STORIES = [  # damaged, how, removed so that it is read again, the step that reads it
    (HERE / "samples.jsonl", "flipped", [HERE / "surrogate.csv"], "surrogate"),
    (HERE / "sft/adapter_config.json", "deleted", [HERE / "sft/confidences.jsonl"], "state"),
]  # fmt: skip


def numbers(folder) -> dict:
    """The metrics, without the seconds that a training took."""
    found = json.loads((folder / HERE / "sft" / "metrics.json").read_text())
    return {key: value for key, value in found.items() if key != "provenance"}


@pytest.mark.parametrize(("path", "kind", "removed", "step"), STORIES, ids=[str(story[0]) for story in STORIES])
def test_snakemake_names_damage_and_the_same_command_works_after_the_cure(workflow, path, kind, removed, step):
    before = numbers(workflow)
    damage(workflow / path, kind)
    for gone in removed:
        (workflow / gone).unlink()
    code, said = snakemake(workflow)
    lines = {line for line in said.splitlines() if line.startswith(f"orce {step}: ")}
    assert code != 0 and "Traceback" not in said and len(lines) == 1, said
    (command,) = re.findall(r"to make it again: (rm .*), then the same snakemake command", lines.pop())
    subprocess.run(command, shell=True, check=True, cwd=workflow)
    code, said = snakemake(workflow)
    assert code == 0, said
    assert numbers(workflow) == before
    assert "Nothing to be done" in dry_run.snakemake(workflow, *ARGUMENTS)[1]
