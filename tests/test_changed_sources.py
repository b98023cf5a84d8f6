"""Data, weights and modules of a user's own, replaced under the same path: what is planned again, and when nothing is."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, cases, own_config, typed
from test_bad_input import call
from test_workflow import job_counts

from orce import stages
from orce.artefacts import files
from orce.config import picking
from orce.settings.stage import to_mapping

pytestmark = pytest.mark.slow

ROWS = ["consistency", "topk", "sft", "orce", "mine", "taught", "orce-mine", "measured", "asked", "sft+bent"]


@pytest.fixture(scope="module")
def planned_once(small, tmp_path_factory) -> Path:
    """A folder with the files and Snakemake's records of a run over sources of the user's own."""
    folder = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "tests" / "data" / "mmlu", folder / "data")
    shutil.copytree(small, folder / "model")
    (folder / "my").mkdir()
    for name, text in cases("own_sources"):
        (folder / "my" / name).write_text(text)
    known = {"task": "my/task.py", "source": {"path": "data"}}
    splits = {name: {"from": "test", "size": 8} for name in ("sft", "rl", "test")}
    fit = known | {"confidence_from": "own", "splits": {"test": {"from": "validation", "size": 8}}}
    own = {"mine": "my/sampled.py", "taught": {"module": "my/trained.py"}}
    own |= {name: f"my/{name}.py" for name in ("measured", "asked", "bent")}
    models = {"local": {"label": "Local", "source": {"path": "model"}}}
    spec = known | {"splits": splits, "calibrate_on": "fit"}
    config = own_config("own", spec, models, ROWS, methods=own, rewards={"mine": "my/reward.py"})
    config["datasets"]["fit"] = fit
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with contextlib.chdir(folder):
        for listed in re.findall(r"Missing output files: ([^;\n]+)", plan()):
            for path in map(Path, listed.split(", ")):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("{}")
        assert snakemake("--touch", "-F")[0] == 0
    return folder


@pytest.fixture
def folder(planned_once, monkeypatch):
    monkeypatch.chdir(planned_once)
    monkeypatch.setenv("ORCE_KEEP", "1")  # its files are empty: no seal says what made them
    return planned_once


def snakemake(*words) -> tuple[int, str]:
    files.fingerprint.cache_clear()  # a process of its own knows nothing yet
    return call(["snakemake", "--cores", "1", *words, "--", "paper_tables"])


def plan() -> str:
    code, said = snakemake("-n")
    assert code == 0, said
    return said


def test_sources_that_are_untouched_or_only_touched_plan_nothing(folder):
    assert "Nothing to be done" in plan()
    for path in [*folder.glob("data/**/*"), *folder.glob("model/*"), *folder.glob("my/*.py")]:
        os.utime(path)
    (folder / "data" / ".hidden").write_text("an editor's")
    assert "Nothing to be done" in plan()


@pytest.mark.parametrize(("path", "again"), cases("changed_sources"))
def test_a_replaced_source_plans_what_depends_on_it_though_it_keeps_its_times(folder, path, again):
    place = folder / path
    kept = place.read_bytes() if place.exists() else b""
    times = place.stat() if kept else folder.stat()
    place.write_bytes(kept[:-1] + b" ")  # another content, of the same length
    os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert place.read_bytes() != kept
    try:
        said = plan()
        assert set(job_counts(said)) == {*again} if again else "Nothing to be done" in said
        assert not again or f'"{path.split("/")[0]}' in said, "the plan names the source"
    finally:
        place.write_bytes(kept) if kept else place.unlink()


def test_the_digest_of_a_big_file_is_noted_and_its_content_decides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake").mkdir()
    big, data = tmp_path / "model.safetensors", bytes(files.BIG + 1)
    big.write_bytes(data)
    times = big.stat().st_atime_ns, big.stat().st_mtime_ns
    first = files.cached_sha256(big)
    (note,) = files.KNOWN.iterdir()
    assert first in note.read_text()
    big.write_bytes(data[:-1] + b"1")
    os.utime(big, ns=times)
    assert files.cached_sha256(big) == files.file_digest(big) != first
    big.write_bytes(data)
    assert files.cached_sha256(big) == first


def test_settings_without_local_sources_are_what_they_were():
    """Ids of the hub have no digest: who uses them has nothing to run again."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    for step in ("sample", "sft", "dpo", "candidates"):
        found = stages.pick_settings(step, typed(config), "mmlu", "llama3-8b")
        assert picking.with_contents(found) == to_mapping(found)
