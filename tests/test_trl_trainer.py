"""`training.trainer: trl`: whole trainings by TRL's own SFTTrainer and DPOTrainer, beside this project's."""

import json

import pytest
import torch
import yaml
from conftest import ROOT, training_settings
from test_training import (
    SFT_EXAMPLES,
    adapter,
    check_resuming,
    log_of,
    losses_of_one_and_two_processes,
    poison_second_step,
    run,
    warm_start,
)

from orce.artefacts import store
from orce.config import check
from orce.errors import BadInput
from orce.training import sft, stock

pytestmark = pytest.mark.slow
KINDS = pytest.mark.parametrize("which", ["sft", "dpo"])


@pytest.fixture
def settings(model_settings):
    return training_settings(model_settings)


@pytest.fixture
def by_trl(settings):
    return settings | {"training": settings["training"] | {"trainer": "trl"}}


@pytest.fixture(scope="module")
def warm(tiny, tmp_path_factory):
    """By this project's trainer."""
    return warm_start(tiny, tmp_path_factory.mktemp("warm"))


@KINDS
@pytest.mark.parametrize("tokens", [4096, 200])
def test_a_training_by_trl_ends_where_the_packed_one_does(settings, by_trl, warm, tmp_path, monkeypatch, which, tokens):
    """In one micro-batch a step, and in several."""
    monkeypatch.setenv("ORCE_SPEED", json.dumps({"training": {"micro_batch_tokens": tokens}}))
    run(which, settings, tmp_path / "packed", warm)
    run(which, by_trl, tmp_path / "trl", warm)
    packed, trl = (tmp_path / name / which for name in ("packed", "trl"))
    assert len(log_of(trl)) == len(log_of(packed)) > 3
    for ours, theirs in zip(log_of(packed), log_of(trl), strict=True):
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-4)
        assert theirs["learning_rate"] == ours["learning_rate"]
    moved = 0.0
    for name, weight in adapter(packed).items():
        assert torch.allclose(adapter(trl)[name], weight, atol=2e-4), name
        moved += weight.abs().sum().item()
    assert moved > 1
    assert store.read_manifest(trl / "manifest.json")["settings"]["training"]["trainer"] == "trl"
    assert not (trl / "ref").exists()


@KINDS
def test_a_killed_training_by_trl_resumes_to_the_same_weights(by_trl, warm, tmp_path, which):
    check_resuming(which, by_trl, tmp_path, warm)


@KINDS
def test_a_gradient_that_is_not_finite_ends_a_training_by_trl(by_trl, warm, tmp_path, monkeypatch, which):
    poison_second_step(monkeypatch, stock.Stock)
    with pytest.raises(BadInput, match="step 2: grad_norm is nan; nothing is written; set a lower learning_rate"):
        run(which, by_trl, tmp_path, warm)
    assert not [*tmp_path.rglob("*.safetensors")]


def test_two_processes_train_by_trl_as_one(by_trl, tmp_path):
    train = "from orce.training import sft\nsft.train"
    one, two = losses_of_one_and_two_processes(train, SFT_EXAMPLES, by_trl, tmp_path)
    assert two == pytest.approx(one, rel=1e-4)


def test_a_training_by_trl_that_has_no_memory_says_that_it_cuts_nothing_anew(by_trl, tmp_path, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("transformers.Trainer.compute_loss", full)
    monkeypatch.setattr("trl.SFTTrainer.compute_loss", full)
    with pytest.raises(BadInput, match="out of memory: TRL's trainers do not cut a step anew; lower training.micro"):
        sft.train(SFT_EXAMPLES, by_trl, tmp_path / "sft")


@pytest.mark.parametrize("key", [{"grouped": True}, {"kernels": "liger"}])
def test_trls_trainers_are_refused_with_what_they_do_not_know(key):
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    config["training"] |= {"trainer": "trl"} | key
    with pytest.raises(BadInput, match="training.trainer: TRL's trainers know neither grouped nor kernels"):
        check.check(config)
