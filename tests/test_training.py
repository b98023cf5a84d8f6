"""Training: steps however they are cut, resuming after a kill, what is refused, and whole trainings by TRL's own trainers."""

import itertools
import json
import math
import os
import signal
from pathlib import Path
from unittest import mock

import pytest
import torch
from conftest import ROOT, cases, on_cpu, training_settings
from plain_models import losses_of
from safetensors.torch import load_file
from two_processes import killed_at_its_third_step

from orce.artefacts import files, store
from orce.artefacts.records import Pair
from orce.errors import BadInput
from orce.judge.reader import TransformersReader
from orce.llm import language_model
from orce.llm.chat import statement
from orce.llm.engines.transformers import Engine
from orce.llm.reading import Scorer
from orce.runtime import modules
from orce.training import common, dpo, sft, tokenized_brier
from orce.training.steps import FamilySampler, PackedTrainer


@pytest.fixture
def settings(model_settings):
    return training_settings(model_settings)


@pytest.fixture(scope="module")
def warm(tiny, tmp_path_factory) -> Path:
    """A warm start over the tiny model, to read only."""
    folder = tmp_path_factory.mktemp("warm")
    run("sft", training_settings(on_cpu(path=tiny)), folder)
    return folder / "sft"


def prompt(i):
    text = f"Judge the answer.\n\nQuestion: {'what is ' * (i % 3)}{i} + {i}?\nAnswer: {2 * i}"
    return [{"role": "user", "content": text}]


def turn(percent):
    return [{"role": "assistant", "content": statement(percent)}]


SFT_EXAMPLES = [{"prompt": prompt(i), "percent": 100 * (i % 2)} for i in range(16)]
SIDES = [(prompt(i), turn(90 - 80 * (i % 2)), turn(10 + 90 * (i % 2))) for i in range(12)]
PAIRS = [Pair(id=str(i), prompt=asked, chosen=better, rejected=worse) for i, (asked, better, worse) in enumerate(SIDES)]
BRIER_EXAMPLES = [{"prompt": prompt(i), "correct": i % 3 > 0} for i in range(10)]
KAPPAS = [{"prompt": prompt(i), "kappa": (i * 3 % 10) / 10} for i in range(16)]
SHORT = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def run(which, settings, folder, warm=None):
    """A training as its step starts it, into folder / which; DPO from a warm start. "sft trl": by TRL's trainer."""
    kind, *trainer = which.split()
    if trainer:
        settings = settings | {"training": settings["training"] | {"trainer": trainer[0]}}
    if kind == "sft":
        sft.train(SFT_EXAMPLES, settings, folder / which)
    elif kind == "dpo":
        dpo.train(PAIRS, settings, warm, warm, folder / which)
    elif kind == "ordered":
        modules.from_file(str(ROOT / "evidence/methods/ordered.py")).train(KAPPAS, settings, folder / which)
    else:
        tokenized_brier.train(BRIER_EXAMPLES, settings, folder / which)


def equal_weights(*folders) -> bool:
    one, other = (load_file(folder / "adapter_model.safetensors") for folder in folders)
    return all(torch.equal(one[name], other[name]) for name in one)


def trainer_for(which, settings, folder, warm=None):
    """The trainer of a stage, made as its `train` makes it, with an adapter whose weights are not zero."""
    with mock.patch.object(common, "fit", side_effect=InterruptedError) as fit, pytest.raises(InterruptedError):
        run(which, settings, folder, warm)
    trainer = fit.call_args.args[0]
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    return trainer


def step(trainer):
    """The loss and gradients of a step on eight examples."""
    trainer.model.zero_grad()
    loss = trainer.training_step(trainer.model, {"rows": trainer.rows[:8]})
    return loss.item(), torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])


def same(one, other) -> bool:
    (loss, gradient), (other_loss, other_gradient) = one, other
    near = (gradient - other_gradient).norm() < 1e-5 * gradient.norm()
    return other_loss == pytest.approx(loss, rel=1e-5) and near and gradient.norm() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("which", ["sft", "conftuner", "ordered", "dpo"])
def test_a_step_is_the_same_however_it_is_cut(settings, warm, tmp_path, which):
    """Loss and gradients in one part, in parts of a few examples, and where memory is short at the first two tries."""
    settings["stage"] |= {"batch_size": 8, "rank_weight": 1.0, "answers": 8}
    trainer = trainer_for(which, settings, tmp_path, warm)
    assert len(trainer.micro_batches(trainer.rows[:8])) == 1
    whole = step(trainer)
    trainer.budget = 60
    assert len(trainer.micro_batches(trainer.rows[:8])) >= 2
    assert same(whole, step(trainer))
    trainer.budget, outcomes = 4096, itertools.chain([SHORT, SHORT], itertools.repeat(mock.DEFAULT))
    with mock.patch.object(trainer, "part_loss", wraps=trainer.part_loss, side_effect=outcomes):
        assert same(whole, step(trainer))
    assert trainer.budget == 1024


def test_a_grouped_epoch_keeps_questions_about_one_passage_together_and_differs_from_the_next():
    prompts = [[1, 2, *range(100 * (i % 5), 100 * (i % 5) + 60), 1000 + i] for i in range(20)]
    sampler = FamilySampler(prompts, seed=3)
    epochs = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
        assert sorted(epochs[-1]) == list(range(20))
        assert all(len({i % 5 for i in epochs[-1][at : at + 4]}) == 1 for at in range(0, 20, 4))
    assert epochs[0] == epochs[2] != epochs[1]


@pytest.mark.slow
def test_a_training_leaves_a_whole_folder_and_what_has_ended_is_not_done_again(tmp_path, settings):
    """Snakemake, killed before, deletes the manifest as that of an unfinished job."""
    out = tmp_path / "sft"
    run("sft", settings, tmp_path)
    assert list(store.read_manifest(out / "manifest.json")["sha256"]) == ["adapter_model.safetensors"]
    assert (out / "tokenizer.json").exists()
    assert [path.suffix for path in (tmp_path / ".partial").iterdir()] == [".json"]
    manifest, weights = (out / "manifest.json").read_bytes(), out / "adapter_model.safetensors"
    trained = weights.stat()
    (out / "manifest.json").unlink()
    run("sft", settings, tmp_path)
    assert (out / "manifest.json").read_bytes() == manifest
    assert os.path.samestat(weights.stat(), trained)
    (out / "manifest.json").unlink()
    weights.write_bytes(b"others")
    run("sft", settings, tmp_path)
    assert files.file_digest(weights) in manifest.decode()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_warm_start_of_no_epochs_states_what_the_base_model_states_and_can_be_aligned(settings, tmp_path, method):
    settings["training"]["method"] = method
    run("sft", settings | {"stage": settings["stage"] | {"epochs": 0}}, tmp_path)
    manifest = store.read_manifest(tmp_path / "sft" / "manifest.json")
    assert manifest["steps"] == 0 and manifest["loss"] is None
    base, warm = (
        TransformersReader(language_model.load(settings["model"], weights)).read([prompt(3)], state_text=False)[0]
        for weights in (None, str(tmp_path / "sft"))
    )
    assert base.logprobs.tolist() == warm.logprobs.tolist()
    run("dpo", settings, tmp_path, tmp_path / "sft")
    assert losses_of(tmp_path / "dpo")[-1] < losses_of(tmp_path / "dpo")[0]
    for folder in ("sft", "dpo"):
        assert (tmp_path / folder / "model.safetensors").exists() == (method == "full")
    language_model.load(settings["model"], str(tmp_path / "dpo"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "layers"),
    [("sft", None), ("sft", 1), ("dpo", 1), ("conftuner", 1), ("sft trl", None), ("dpo trl", None)],
)
def test_a_killed_training_resumes_to_the_same_weights(settings, tmp_path, which, layers):
    """With all layers adapted, and with the last one alone: what is below it is computed anew."""
    settings["training"]["lora"]["last_layers"] = layers
    if "dpo" in which:
        run("sft", settings, tmp_path)
    run(which, settings, tmp_path / "straight", tmp_path / "sft")
    with killed_at_its_third_step():
        run(which, settings, tmp_path / "again", tmp_path / "sft")
    assert not (tmp_path / "again" / which).exists()
    run(which, settings, tmp_path / "again", tmp_path / "sft")
    assert equal_weights(tmp_path / "straight" / which, tmp_path / "again" / which)


def last_layer(settings, **stage) -> dict:
    """Settings of an adapter in the last of the tiny model's two layers."""
    settings["training"]["lora"]["last_layers"] = 1
    return settings | {"stage": settings["stage"] | stage}


@pytest.mark.parametrize(("which", "dtype", "checkpointing"), [
    ("sft", "float32", False),
    pytest.param("sft", "bfloat16", True, marks=pytest.mark.slow),
    pytest.param("dpo", "float32", True, marks=pytest.mark.slow),
    pytest.param("dpo", "bfloat16", False, marks=pytest.mark.slow),
    pytest.param("conftuner", "bfloat16", True, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_step_is_the_same_with_the_frozen_layers_computed_before(settings, tmp_path, which, dtype, checkpointing):
    """Loss and gradients, in one part and in several, of prompts that share passages too."""
    settings = last_layer(settings, batch_size=8) | {"model": settings["model"] | {"dtype": dtype}}
    if which == "dpo":
        run("sft", settings, tmp_path)
    trainer = trainer_for(which, settings, tmp_path / "made", tmp_path / "sft")
    if checkpointing:
        trainer.model.gradient_checkpointing_enable()
    for row in trainer.rows[1:4]:
        row.prompt_ids[1:1] = range(1000, 1060)  # a passage
    frozen, calls = common.compute_frozen_layers(trainer), []
    below = trainer.model.get_base_model().get_submodule("model.layers.0.self_attn.q_proj")
    below.register_forward_hook(lambda *_: calls.append(1))
    for trainer.budget in (4096, 150):
        found = []
        for trainer.frozen in (None, frozen):
            calls.clear()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                found.append(step(trainer))
            assert bool(calls) == (trainer.frozen is None)
        assert same(*found)


@pytest.mark.slow
def test_frozen_layers_are_computed_once_where_it_saves_something_and_memory_allows(
    settings, tmp_path, monkeypatch, capfd
):
    frozen, every = "1 of 2 layers are frozen", "and computed in every step: their states of 16 examples would take"
    for folder, limit, epochs, said in (
        ("once", 2**30, 2, f"{frozen}: computed once for 16 examples"),
        ("every", 1000, 2, f"{frozen}, {every}"),
        ("single", 2**30, 1, ""),
    ):
        monkeypatch.setattr(common, "KEPT_BYTES", limit)
        run("sft", last_layer(settings, epochs=epochs), tmp_path / folder)
        shown = capfd.readouterr().err
        assert said in shown and ("frozen" in shown) == bool(said)
    once, every_step = (losses_of(tmp_path / folder / "sft") for folder in ("once", "every"))
    assert once == pytest.approx(every_step, rel=1e-4)


def test_cudnns_attention_is_off():
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.slow
@pytest.mark.parametrize(("which", "event", "said"), cases("not_finite"))
def test_a_gradient_or_a_last_weight_that_is_not_finite_ends_the_training_unwritten(
    settings, warm, tmp_path, which, event, said
):
    def broken(self, args, state, control, model, **kwargs):
        weight = next(weight for weight in model.parameters() if weight.requires_grad)
        if event == "on_step_begin" and state.global_step == 1:
            weight.grad = torch.full_like(weight, torch.nan)  # to which the step adds its own
        if event == "on_step_end" and state.global_step == state.max_steps:
            weight.data.view(-1)[0] = torch.inf

    with mock.patch.object(common.Report, event, broken), pytest.raises(BadInput, match=said):
        run(which, settings, tmp_path, warm)
    assert not [*tmp_path.rglob("*.safetensors")]


@pytest.mark.slow
def test_a_training_out_of_memory_resumes_in_smaller_parts(settings, tmp_path, monkeypatch):
    step, calls = PackedTrainer.step, []

    def short(self, model, parts, terms):
        calls.append(self.budget)
        if len(calls) == 2:
            raise SHORT
        return step(self, model, parts, terms)

    monkeypatch.setattr(PackedTrainer, "step", short)
    settings["training"]["save_steps"] = 1
    run("sft", settings, tmp_path / "straight")
    half = calls[-1]
    assert half == calls[0] // 2
    calls.clear()
    with killed_at_its_third_step():
        run("sft", settings, tmp_path / "again")
    seen = len(calls)
    run("sft", settings, tmp_path / "again")
    assert {*calls[seen:]} == {half}
    assert equal_weights(tmp_path / "straight/sft", tmp_path / "again/sft")


@pytest.mark.slow
def test_an_adapter_stays_apart_where_merging_rounds_off_a_tenth_of_it(settings, warm, tmp_path):
    """In bfloat16; the manifest of its training has both distances."""
    settings["model"]["dtype"] = "bfloat16"
    run("sft", settings, tmp_path)
    facts = store.read_manifest(tmp_path / "sft/manifest.json")
    assert facts["log_odds"]["trained"] > 0 and facts["log_odds"]["merged"] > 0
    for merged in (0.0009, 0.0011):
        distances = {"log_odds": {"trained": 0.01, "merged": merged}}
        store.write_manifest(tmp_path / "sft/manifest.json", facts | distances)
        read = language_model.load(settings["model"], str(tmp_path / "sft")).model
        assert any("lora_" in name for name, _ in read.named_parameters()) == (merged > 0.001)
    assert "log_odds" not in store.read_manifest(warm / "manifest.json"), "which is in float32"


@pytest.mark.slow
def test_losses_and_gradients_are_the_same_bits_without_pefts_cast_of_inputs(settings, tmp_path):
    settings["model"]["dtype"] = "bfloat16"
    trainer = trainer_for("sft", settings, tmp_path)
    with torch.autocast("cpu", torch.bfloat16):
        loss, gradients = step(trainer)
        for module in trainer.model.modules():
            if hasattr(module, "cast_input_dtype_enabled"):
                assert not module.cast_input_dtype_enabled
                module.cast_input_dtype_enabled = True
        again, cast = step(trainer)
    assert loss == again and torch.equal(gradients, cast)


def test_probabilities_that_are_not_finite_are_never_stated(model_settings):
    lm = language_model.load(model_settings, None)
    next(lm.model.parameters()).data.fill_(torch.nan)
    said = "the model's logits are not finite numbers; its weights are broken"
    reader, sampled = TransformersReader(lm, 4096), (Engine(lm).generate, 2, 1.0, 4, [0])
    for asked, *more in (sampled, (Scorer(lm).logprobs, [["No."]]), (reader.state,), (reader.state, True)):
        with pytest.raises(BadInput, match=said):
            asked([prompt(1)], *more)


@pytest.mark.slow
def test_a_training_ended_by_sigterm_keeps_its_step_and_resumes_to_the_same_weights(settings, warm, tmp_path, capfd):
    def sigterm(self, args, state, control, **kwargs):
        if state.global_step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with mock.patch.object(common.Report, "on_step_begin", sigterm), pytest.raises(SystemExit) as ended:
        run("sft", settings, tmp_path)
    assert ended.value.code == 143
    assert "stopped by SIGTERM after step 3" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    run("sft", settings, tmp_path)
    assert "checkpoint-3" in capfd.readouterr().err
    assert equal_weights(warm, tmp_path / "sft")


def test_soft_labels_and_their_order_are_those_by_hand():
    """evidence/methods: 4 of 16 answers right make the posterior Beta(5, 13); equal means cost ln 2, a wrong order more."""
    soft, ordered = (modules.from_file(str(ROOT / f"evidence/methods/{name}.py")) for name in ("soft", "ordered"))
    beta = torch.distributions.Beta(5.0, 13.0).log_prob(torch.linspace(0, 1, 101).clamp(0.0025, 0.9975)).exp()
    for module in (soft, ordered):
        assert module.targets(torch.tensor([0.25]), 16)[0] == pytest.approx(beta / beta.sum(), abs=1e-5)
    kappa, stated = torch.tensor([0.9, 0.5, 0.1]), [(90, 50, 10), (50, 50, 50), (10, 50, 90)]
    logprobs = [20 * torch.nn.functional.one_hot(torch.tensor(one), 101).float() for one in stated]
    right, level, wrong = (float(ordered.disorder(one, kappa)) for one in logprobs)
    assert right < level < wrong and level == pytest.approx(math.log(2), abs=1e-3)
    assert float(ordered.disorder(logprobs[0], torch.full([3], 0.5))) == 0


@pytest.mark.slow
@pytest.mark.parametrize("which", ["sft", "dpo"])
@pytest.mark.parametrize("tokens", [4096, 140])
def test_a_training_by_trl_ends_where_the_packed_one_does(settings, warm, tmp_path, monkeypatch, which, tokens):
    """In one micro-batch a step, and in several, here of different sizes: DPO's rewards in the log are means over all pairs."""
    monkeypatch.setenv("ORCE_SPEED", json.dumps({"training": {"micro_batch_tokens": tokens}}))
    packed, trl = tmp_path / which, tmp_path / f"{which} trl"
    with mock.patch.object(dpo, "outcome", wraps=dpo.outcome) as outcome:
        for folder in (packed, trl):
            run(folder.name, settings, tmp_path, warm)
    sizes = {len(call.args[0]) for call in outcome.call_args_list}
    assert len(sizes) == (0 if which == "sft" else 1 if tokens == 4096 else 2)
    logs = [json.loads((folder / "training_log.json").read_text()) for folder in (packed, trl)]
    assert len(logs[0]) > 3
    for ours, theirs in zip(*logs, strict=True):
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-4)
        assert theirs["learning_rate"] == ours["learning_rate"]
        for name in ("rewards/accuracies", "rewards/margins") if which == "dpo" else ():
            assert theirs[name] == pytest.approx(ours[name], rel=1e-3, abs=1e-6)
    ours, theirs = (load_file(folder / "adapter_model.safetensors") for folder in (packed, trl))
    for name, weight in ours.items():
        assert torch.allclose(theirs[name], weight, atol=2e-4), name
    assert sum(weight.abs().sum() for weight in ours.values()) > 1
    ours, theirs = (store.read_manifest(folder / "manifest.json") for folder in (packed, trl))
    assert theirs["settings"]["training"]["trainer"] == "trl"
    assert theirs["cost"]["step_tokens"] >= ours["cost"]["step_tokens"], "of a step, and padded"
    assert not (trl / "ref").exists()


@pytest.mark.slow
def test_a_training_by_trl_that_has_no_memory_says_that_it_cuts_nothing_anew(settings, tmp_path):
    full = mock.patch("trl.SFTTrainer.compute_loss", side_effect=SHORT)
    said = "out of memory: TRL's trainers do not cut a step anew; lower training.micro"
    with full, pytest.raises(BadInput, match=said):
        run("sft trl", settings, tmp_path)
