"""Frozen lower layers: training from their kept states is training as if they ran in every step."""

import json
import re

import msgspec
import pytest
import torch
from conftest import ROOT
from peft import get_peft_model
from safetensors.torch import load_file

from orce.llm import language_model
from orce.llm.chat import statement
from orce.records import Pair
from orce.runtime import modules
from orce.stage_settings import Lora
from orce.training import common, dpo, frozen, sft, tokenized_brier
from orce.training.steps import FamilySampler

LORA = {"r": 4, "alpha": 8, "dropout": 0.0, "target_modules": ["q_proj", "v_proj", "down_proj"], "last_layers": 1}


def settings_for(folder: str, **training) -> dict:
    stage = {
        "epochs": 3, "learning_rate": 5e-3, "batch_size": 4, "warmup_ratio": 0.0,
        "scheduler": "cosine", "weight_decay": 0.0, "beta": 0.1, "format_weight": 1.0, "rank_weight": 1.0, "answers": 8,
    }  # fmt: skip
    plain = {"method": "lora", "lora": LORA, "shared_prefix": True, "checkpointing": False, "save_steps": 100}
    model = {"source": {"path": folder}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}
    return {
        "label": "test", "model": model, "training": plain | training, "stage": stage, "method": "conftuner", "seed": 7,
    }  # fmt: skip


def prompt(i):
    # Three openings, so that batches share beginnings of different lengths.
    return [{"role": "user", "content": f"Judge {('this', 'this sum', 'it')[i % 3]}. {'what is ' * (i % 4)}{i} + {i}"}]


SFT_EXAMPLES = [{"prompt": prompt(i), "percent": 100 * (i % 2)} for i in range(10)]
BRIER_EXAMPLES = [{"prompt": prompt(i), "correct": i % 3 > 0} for i in range(10)]
KAPPAS = [{"prompt": prompt(i), "kappa": (i * 3 % 10) / 10} for i in range(10)]
PAIRS = [
    Pair(
        id=str(i), prompt=prompt(i), chosen=[{"content": statement(90 - i)}], rejected=[{"content": statement(10 * i)}]
    )
    for i in range(8)
]


def trainer_for(which, settings, work):
    """The trainer of a stage, made as its `train` makes it."""
    made = {}

    def keep(trainer, *_):
        made["trainer"] = trainer
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(common, "fit", keep)
        run(which, settings, work)
    return made["trainer"]


def run(which, settings, folder):
    if which == "sft":
        sft.train(SFT_EXAMPLES, settings, folder / which)
    elif which == "conftuner":
        tokenized_brier.train(BRIER_EXAMPLES, settings, folder / which)
    elif which == "ordered":
        modules.from_file(str(ROOT / "evidence/methods/ordered.py")).train(KAPPAS, settings, folder / which)
    else:
        dpo.train(PAIRS, settings, folder / "sft", folder / "sft", folder / which)


def gradients(trainer, rows):
    """Loss and gradients of a step, by way of the trainer's own collator and preparation."""
    trainer.model.zero_grad()
    loss = trainer.training_step(trainer.model, trainer.data_collator([trainer.train_dataset[i] for i in rows]))
    return loss.item(), torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])


@pytest.mark.parametrize(
    ("which", "shared_prefix"),
    [
        ("sft", True),
        pytest.param("conftuner", True, marks=pytest.mark.slow),
        pytest.param("ordered", True, marks=pytest.mark.slow),
        pytest.param("dpo", True, marks=pytest.mark.slow),
        pytest.param("sft", False, marks=pytest.mark.slow),
        pytest.param("dpo", False, marks=pytest.mark.slow),
    ],
)
def test_a_step_is_the_same_however_it_is_cut(tiny, tmp_path, which, shared_prefix, monkeypatch):
    """Loss and gradients of a step in one part, and in parts of a few examples, packed or on TRL's padded rows."""
    settings = settings_for(tiny, shared_prefix=shared_prefix, lora=LORA | {"last_layers": None})
    settings["stage"] |= {"batch_size": 8}
    if which == "dpo":
        run("sft", settings, tmp_path)
    results = []
    for tokens in (10_000, 60 if shared_prefix else 300):
        monkeypatch.setenv("ORCE_SPEED", json.dumps({"training": {"micro_batch_tokens": tokens}}))
        trainer = trainer_for(which, settings, tmp_path / str(tokens) if which != "dpo" else tmp_path)
        with torch.no_grad():
            draw = torch.Generator().manual_seed(1)
            for parameter in trainer.model.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
        step = trainer.data_collator([trainer.train_dataset[i] for i in range(8)])
        results.append((len(step["parts"]), *gradients(trainer, range(8))))
    (parts, loss, gradient), (more_parts, cut_loss, cut_gradient) = results
    assert parts == 1 and more_parts >= 2
    assert cut_loss == pytest.approx(loss, rel=1e-5)
    assert (cut_gradient - gradient).norm() < 1e-5 * gradient.norm() and gradient.norm() > 1e-3


def test_a_grouped_epoch_keeps_questions_about_one_passage_together_and_differs_from_the_next():
    prompts = [[1, 2, *range(100 * (i % 5), 100 * (i % 5) + 60), 1000 + i] for i in range(20)]
    sampler = FamilySampler(prompts, seed=3)
    epochs = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
    assert epochs[0] == epochs[2] != epochs[1]
    for order in epochs:
        assert sorted(order) == list(range(20))
        assert all(len({i % 5 for i in order[at : at + 4]}) == 1 for at in range(0, 20, 4))


def count_calls(module, calls):
    module.register_forward_hook(lambda *_: calls.append(1))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["sft", "conftuner", "dpo"])
def test_loss_and_gradients_are_those_of_the_whole_model(family, tmp_path, which):
    settings = settings_for(family)
    if which == "dpo":
        run("sft", settings, tmp_path)
    trainer = trainer_for(which, settings, tmp_path)
    with torch.no_grad():  # away from the start, where LoRA's B is zero and so is A's gradient
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    calls = []
    count_calls(frozen.base_model(trainer.model).model.layers[0].self_attn, calls)
    for rows in ([3, 0, 6], [5, 2, 1, 7], [4]):
        whole_loss, whole = gradients(trainer, rows)
        assert calls
        with frozen.computed_once(trainer, tmp_path / "states.bin", "test"):
            calls.clear()
            loss, gradient = gradients(trainer, rows)
            assert not calls  # the lower layers did not run
        assert loss == pytest.approx(whole_loss, rel=1e-4)
        assert (gradient - whole).norm() < 1e-4 * whole.norm()
        assert whole.norm() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_whole_training_takes_the_same_steps(family, tmp_path, monkeypatch, checkpointing, capfd):
    settings = settings_for(family, checkpointing=checkpointing)
    results = []
    for share in (0, frozen.SHARE):
        monkeypatch.setattr(frozen, "SHARE", share)
        folder = tmp_path / str(share)
        run("sft", settings, folder)
        log = json.loads((folder / "sft" / "training_log.json").read_text())
        results.append(([entry["loss"] for entry in log], load_file(folder / "sft" / "adapter_model.safetensors")))
    said = capfd.readouterr().err
    assert re.search(r"the lower 2 layers run in every step: their states would take 0.00 GB, more than half of", said)
    assert re.search(r"the lower 2 layers run once: their states take 0.00 GB; .* GB are free in", said)
    (losses, weights), (kept_losses, kept_weights) = results
    assert kept_losses == pytest.approx(losses, rel=1e-4)
    assert weights.keys() == kept_weights.keys()
    for name, weight in weights.items():
        assert (weight - kept_weights[name]).norm() < 1e-3 * weight.norm()


@pytest.mark.slow
def test_the_layers_are_back_in_place_and_no_states_are_left_behind(tiny, tmp_path):
    trainer = trainer_for("sft", settings_for(tiny), tmp_path)
    rows, collate = trainer.train_dataset, trainer.data_collator.collate
    with frozen.computed_once(trainer, tmp_path / "states.bin", "test"):
        assert trainer.data_collator.collate is not collate
    assert trainer.data_collator.collate is collate and trainer.train_dataset is rows
    assert not any("forward" in vars(layer) for layer in frozen.base_model(trainer.model).model.layers)
    run("sft", settings_for(tiny), tmp_path)
    assert not list(tmp_path.glob("**/states.bin"))[1:]  # only the one made above


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("all layers are trained", {"lora": LORA | {"last_layers": None}}),
        ("all weights are trained", {"method": "full"}),
        ("TRL's own loss runs on padded rows", {"shared_prefix": False}),
    ],
)
def test_every_layer_runs_where_nothing_can_be_kept(tiny, tmp_path, why, change):
    trainer = trainer_for("sft", settings_for(tiny, **change), tmp_path)
    assert frozen.reusable_layers(trainer) == 0, why


@pytest.mark.slow
def test_a_single_epoch_keeps_nothing(tiny, tmp_path):
    settings = settings_for(tiny)
    settings["stage"] |= {"epochs": 1}
    assert frozen.reusable_layers(trainer_for("sft", settings, tmp_path)) == 0
    assert frozen.reusable_layers(trainer_for("sft", settings_for(tiny), tmp_path)) == 1


def test_attention_dropout_below_keeps_nothing(tiny):
    lm = language_model.load(settings_for(tiny)["model"], trainable=True)
    model = get_peft_model(lm.model, common.lora_config(msgspec.convert(LORA, Lora), 2))
    assert frozen.frozen_layers(model) == 1
    lm.model.config.attention_dropout = 0.1
    assert frozen.frozen_layers(model) == 0
