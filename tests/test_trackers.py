"""training.report_to: what an experiment tracker gets is what the training logs, and it changes nothing else."""

import importlib.util
import json

import finished_run
import pytest
from conftest import ROOT

from orce import stages
from orce.artefacts import files, store
from orce.config import check as configuration
from orce.config import read, settings
from orce.errors import BadInput


def config(**training):
    found = read.mapping(ROOT / "config.yaml")
    found["training"] |= training
    return found


def test_trackers_reach_the_trainings_without_a_changed_setting():
    plain, tracked = (configuration.check(config(**over)) for over in ({}, {"report_to": ["tensorboard"]}))
    assert stages.of("sft", plain, "mmlu", "qwen3-8b") == stages.of("sft", tracked, "mmlu", "qwen3-8b")
    assert settings.speed(tracked)["training"] == settings.speed(plain)["training"] | {"report_to": ["tensorboard"]}
    assert "report_to" not in settings.speed(plain)["training"]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_one_line(name, monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    tracked = configuration.check(config(report_to=[name]))
    with pytest.raises(BadInput, match=f"training.report_to: {name} is not installed; pip install {name}"):
        configuration.data(tracked)
    with pytest.raises(BadInput, match="training.report_to.0: 'comet' is not one of"):
        configuration.check(config(report_to=["comet"]))


@pytest.mark.slow
def test_tensorboard_has_every_step_of_the_log_and_the_weights_are_the_same(finished, tmp_path, monkeypatch):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", exc_type=ImportError)
    monkeypatch.chdir(finished)
    monkeypatch.setenv("ORCE_SPEED", json.dumps({"training": {"report_to": ["tensorboard"]}}))
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "elsewhere")
    monkeypatch.setattr("orce.training.common.TENSORBOARD", str(tmp_path / "tensorboard"))
    options = finished_run.SFT | {"label": "sft arithmetic/small"}
    asked = "sft=results/arithmetic/prompts/sft.jsonl"
    out = tmp_path / "sft"
    finished_run.step("sft", options, surrogate=finished_run.CELL / "surrogate.csv", prompts=asked, out=out)
    (folder,) = (tmp_path / "tensorboard").iterdir()
    assert folder.name == "sft-arithmetic-small"
    read = events.EventAccumulator(str(folder))
    read.Reload()
    logged = json.loads((out / "training_log.json").read_text())
    found = [(one.step, pytest.approx(one.value, rel=1e-5)) for one in read.Scalars("train/loss")]
    assert [(one["step"], one["loss"]) for one in logged] == found and len(found) > 10
    sha = [store.read_manifest(one / "manifest.json")["sha256"] for one in (out, finished_run.CELL / "sft")]
    assert sha[0] == sha[1]
    assert files.read_json(out / "manifest.json")["settings"]["label"] == "sft arithmetic/small"
