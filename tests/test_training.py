"""Training: losses by hand and by others' formulas, steps however they are cut, and resuming after a kill."""

import json
import math
import os
import shutil
import signal
import sys
from copy import copy
from pathlib import Path

import finished_run
import numpy as np
import pytest
import torch
from conftest import ROOT, program, training_settings
from safetensors.torch import load_file

from orce import stages
from orce.artefacts import files, store
from orce.artefacts.records import Pair, Realised
from orce.config.check import read_config
from orce.errors import BadInput
from orce.judge.reader import TransformersReader
from orce.llm import language_model
from orce.llm.chat import expected, statement, to_percent
from orce.runtime import modules
from orce.settings.stage import parse_training_job
from orce.stages import candidates
from orce.stages import sft as sft_step
from orce.stages.pairs import add_reference_logprobs
from orce.training import common, dpo, sft, tokenized_brier
from orce.training.steps import FamilySampler, PackedTrainer


@pytest.fixture
def settings(model_settings):
    return training_settings(model_settings)


@pytest.fixture(scope="module")
def warm(tiny, tmp_path_factory) -> Path:
    """A warm start over the tiny model, to read only."""
    return warm_start(tiny, tmp_path_factory.mktemp("warm"))


def warm_start(tiny, folder: Path) -> Path:
    model = {"source": {"path": tiny}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}
    sft.train(SFT_EXAMPLES, training_settings(model), folder / "sft")
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
ORDERED = str(ROOT / "evidence/methods/ordered.py")


def run(which, settings, folder, warm):
    """A training as its step starts it, into folder / which; DPO from a warm start."""
    if which == "sft":
        sft.train(SFT_EXAMPLES, settings, folder / which)
    elif which == "dpo":
        dpo.train(PAIRS, settings, warm, warm, folder / which)
    elif which == "ordered":
        modules.from_file(ORDERED).train(KAPPAS, settings, folder / which)
    else:
        tokenized_brier.train(BRIER_EXAMPLES, settings, folder / which)


def log_of(folder) -> list[dict]:
    return json.loads((folder / "training_log.json").read_text())


def adapter(folder) -> dict:
    return load_file(folder / "adapter_model.safetensors")


def equal(one: dict, other: dict) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def trainer_for(which, settings, folder, warm):
    """The trainer of a stage, made as its `train` makes it, with an adapter whose weights are not zero."""
    made = {}

    def keep(trainer, *_):
        made["trainer"] = trainer
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(common, "fit", keep)
        run(which, settings, folder, warm)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made["trainer"].model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    return made["trainer"]


def step(trainer):
    """The loss and gradients of a step on eight examples."""
    loss = trainer.training_step(trainer.model, {"rows": trainer.rows[:8]})
    return loss.item(), torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])


def same(one, other) -> bool:
    (loss, gradient), (other_loss, other_gradient) = one, other
    near = (gradient - other_gradient).norm() < 1e-5 * gradient.norm()
    return other_loss == pytest.approx(loss, rel=1e-5) and near and gradient.norm() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("which", ["sft", "conftuner", "ordered", "dpo"])
def test_a_step_is_the_same_however_it_is_cut(settings, warm, tmp_path, which, monkeypatch):
    """Loss and gradients in one part, in parts of a few examples, and where memory is short at the first two tries."""
    settings["stage"] |= {"batch_size": 8, "rank_weight": 1.0, "answers": 8}
    trainer = trainer_for(which, settings, tmp_path, warm)
    assert len(trainer.micro_batches(trainer.rows[:8])) == 1
    whole = step(trainer)
    trainer.model.zero_grad()
    trainer.budget = 60
    assert len(trainer.micro_batches(trainer.rows[:8])) >= 2
    assert same(whole, step(trainer))
    trainer.model.zero_grad()
    trainer.budget, loss = 4096, trainer.part_loss
    tries = []

    def failing(model, inputs):
        tries.append(trainer.budget)
        if len(tries) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return loss(model, inputs)

    monkeypatch.setattr(trainer, "part_loss", failing)
    assert same(whole, step(trainer))
    assert tries[:3] == [4096, 2048, 1024]


@pytest.mark.slow
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


@pytest.mark.slow
def test_training_lowers_the_loss_leaves_a_whole_folder_and_what_has_ended_is_not_done_again(tmp_path, settings):
    """Snakemake, killed before, deletes the manifest as that of an unfinished job."""
    out = tmp_path / "sft"
    sft.train(SFT_EXAMPLES, settings, out)
    assert log_of(out)[-1]["loss"] < log_of(out)[0]["loss"]
    facts = json.loads((out / "manifest.json").read_text())
    assert facts["examples"] == 16 and list(facts["sha256"]) == ["adapter_model.safetensors"]
    assert (out / "tokenizer.json").exists()
    assert [path.suffix for path in (tmp_path / ".partial").iterdir()] == [".json"]
    manifest, weights = (out / "manifest.json").read_bytes(), out / "adapter_model.safetensors"
    trained = weights.stat()
    (out / "manifest.json").unlink()
    sft.train(SFT_EXAMPLES, settings, out)
    assert (out / "manifest.json").read_bytes() == manifest
    assert os.path.samestat(weights.stat(), trained)
    (out / "manifest.json").unlink()
    weights.write_bytes(b"others")
    sft.train(SFT_EXAMPLES, settings, out)
    assert files.file_digest(weights) in manifest.decode()
    assert not [path for path in files.partial_folder(out).iterdir() if path.is_dir()]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_warm_start_of_no_epochs_states_what_the_base_model_states_and_can_be_aligned(settings, tmp_path, method):
    settings["training"]["method"] = method
    none = settings | {"stage": settings["stage"] | {"epochs": 0}}
    sft.train(SFT_EXAMPLES, none, tmp_path / "sft")
    manifest = json.loads((tmp_path / "sft" / "manifest.json").read_text())
    assert manifest["steps"] == 0 and manifest["loss"] is None
    read = [
        TransformersReader(language_model.load(settings["model"], weights)).read([prompt(3)], state_text=False)
        for weights in (None, str(tmp_path / "sft"))
    ]
    assert read[0][0].logprobs.tolist() == read[1][0].logprobs.tolist()
    dpo.train(PAIRS, settings, tmp_path / "sft", tmp_path / "sft", tmp_path / "dpo")
    assert log_of(tmp_path / "dpo")[-1]["loss"] < log_of(tmp_path / "dpo")[0]["loss"]
    for folder in ("sft", "dpo"):
        assert (tmp_path / folder / "model.safetensors").exists() == (method == "full")
    language_model.load(settings["model"], str(tmp_path / "dpo"))


class Killed(Exception):
    pass


def run_to_its_third_step(which, settings, folder, warm) -> None:
    """A training that is killed then, and has published nothing."""

    def killed(self, args, state, control, **kwargs):
        if state.global_step == 3:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(common.Report, "on_step_end", killed, raising=False)
        run(which, settings, folder, warm)
    assert not (folder / which).exists()


def check_resuming(which, settings, folder, warm) -> None:
    """A training that is killed goes on to the weights of a straight one."""
    run(which, settings, folder / "straight", warm)
    run_to_its_third_step(which, settings, folder / "again", warm)
    run(which, settings, folder / "again", warm)
    assert equal(adapter(folder / "straight" / which), adapter(folder / "again" / which))


@pytest.mark.slow
@pytest.mark.parametrize("layers", [None, 1])
@pytest.mark.parametrize("which", ["sft", "dpo", "conftuner"])
def test_a_killed_training_resumes_to_the_same_weights(settings, warm, tmp_path, which, layers):
    """With all layers adapted, and with the last one alone: what is below it is computed anew."""
    settings["training"]["lora"]["last_layers"] = layers
    if layers:
        warm = tmp_path / "warm"
        sft.train(SFT_EXAMPLES, settings, warm)
    check_resuming(which, settings, tmp_path, warm)


def last_layer(settings, **stage) -> dict:
    """Settings of an adapter in the last of the tiny model's two layers."""
    settings["training"]["lora"]["last_layers"] = 1
    return settings | {"stage": settings["stage"] | stage}


LAYER_0 = "model.layers.0.self_attn.q_proj"


def test_a_step_of_the_warm_start_is_the_same_with_the_frozen_layers_computed_before(settings, tmp_path):
    """The quick one of the test below."""
    trainer = trainer_for("sft", last_layer(settings), tmp_path, None)
    frozen = common.compute_frozen_layers(trainer)
    steps = []
    for trainer.frozen in (None, frozen):
        trainer.model.zero_grad()
        steps.append(step(trainer))
    assert same(*steps)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "checkpointing"), [("float32", False), ("bfloat16", True)])
@pytest.mark.parametrize("which", ["sft", "dpo", "conftuner"])
def test_a_step_is_the_same_with_the_frozen_layers_computed_before(settings, tmp_path, which, dtype, checkpointing):
    """Loss and gradients, in one part and in several, of prompts that share passages too."""
    settings = last_layer(settings, batch_size=8) | {"model": settings["model"] | {"dtype": dtype}}
    sft.train(SFT_EXAMPLES, settings, tmp_path / "warm")
    trainer = trainer_for(which, settings, tmp_path, tmp_path / "warm")
    if checkpointing:
        trainer.model.gradient_checkpointing_enable()
    passage = list(range(1000, 1060))
    for row in trainer.rows[1:4]:
        row.prompt_ids[1:1] = passage
    frozen, calls = common.compute_frozen_layers(trainer), []
    trainer.model.get_base_model().get_submodule(LAYER_0).register_forward_hook(lambda *_: calls.append(1))
    for budget in (4096, 150):
        found = []
        for trainer.frozen in (None, frozen):
            trainer.budget = budget
            trainer.model.zero_grad()
            calls.clear()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                found.append(step(trainer))
            assert bool(calls) == (trainer.frozen is None)
        assert same(*found)


@pytest.mark.slow
def test_frozen_layers_are_computed_once_where_it_saves_something_and_memory_allows(
    settings, tmp_path, monkeypatch, capfd
):
    frozen = "1 of 2 layers are frozen"
    expected = {
        "once": f"{frozen}: computed once for 16 examples",
        "every": f"{frozen}, and computed in every step: their states of 16 examples would take",
        "single": "",
    }
    for folder, said in expected.items():
        limit, epochs = 1000 if folder == "every" else 2**30, 1 if folder == "single" else 2
        monkeypatch.setattr(common, "KEPT_BYTES", limit)
        run("sft", last_layer(settings, epochs=epochs), tmp_path / folder, None)
        shown = capfd.readouterr().err
        assert said in shown and ("frozen" in shown) == bool(said)
    losses = [[entry["loss"] for entry in log_of(tmp_path / folder / "sft")] for folder in ("once", "every")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_cudnns_attention_is_off():
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def poison_second_step(monkeypatch, trainer: type) -> None:
    """Let a gradient of a trainer's second step be NaN."""
    step, calls = trainer.training_step, []

    def poisoned(self, model, *args, **kwargs):
        loss = step(self, model, *args, **kwargs)
        calls.append(loss)
        if len(calls) == 2:
            next(weight for weight in model.parameters() if weight.grad is not None).grad.view(-1)[0] = torch.nan
        return loss

    monkeypatch.setattr(trainer, "training_step", poisoned)


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_ends_the_training_unwritten(settings, tmp_path, monkeypatch):
    poison_second_step(monkeypatch, PackedTrainer)
    where = r"step 2, examples [\d, ]+ of \d+"
    said = "grad_norm is nan; nothing is written; set a lower learning_rate"
    with pytest.raises(BadInput, match=f"{where}: {said}"):
        run("sft", settings, tmp_path, None)
    assert not [*tmp_path.rglob("*.safetensors")]


@pytest.mark.slow
def test_weights_that_the_last_update_broke_are_not_published(settings, tmp_path, monkeypatch):
    def broken(self, args, state, control, model, **kwargs):
        if state.global_step == state.max_steps:
            next(weight for weight in model.parameters() if weight.requires_grad).data.view(-1)[0] = torch.inf

    monkeypatch.setattr(common.Report, "on_step_end", broken, raising=False)
    said = r"step \d+, the last: weights \(\S+lora_A\S+\) are not finite; nothing is written"
    with pytest.raises(BadInput, match=said):
        run("sft", settings, tmp_path, None)
    assert not [*tmp_path.rglob("*.safetensors")]


@pytest.mark.slow
def test_a_training_out_of_memory_resumes_in_smaller_parts(settings, tmp_path, monkeypatch):
    step, calls = PackedTrainer.step, []

    def short(self, model, parts, terms):
        calls.append(self.budget)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return step(self, model, parts, terms)

    monkeypatch.setattr(PackedTrainer, "step", short)
    settings["training"]["save_steps"] = 1
    run("sft", settings, tmp_path / "straight", None)
    budget, half = calls[0], calls[-1]
    assert half == budget // 2
    calls.clear()
    run_to_its_third_step("sft", settings, tmp_path / "again", None)
    seen = len(calls)
    run("sft", settings, tmp_path / "again", None)
    assert {*calls[seen:]} == {half}
    assert equal(adapter(tmp_path / "straight/sft"), adapter(tmp_path / "again/sft"))


@pytest.mark.slow
def test_an_adapter_stays_apart_where_merging_rounds_off_a_tenth_of_it(settings, warm, tmp_path):
    """In bfloat16; the manifest of its training has both distances."""
    settings["model"]["dtype"] = "bfloat16"
    run("sft", settings, tmp_path, None)
    facts = store.read_manifest(tmp_path / "sft/manifest.json")
    assert facts["log_odds"]["trained"] > 0 and facts["log_odds"]["merged"] > 0
    for merged in (0.0009, 0.0011):
        distances = {"log_odds": {"trained": 0.01, "merged": merged}}
        store.write_manifest(tmp_path / "sft/manifest.json", facts | distances)
        read = language_model.load(settings["model"], str(tmp_path / "sft")).model
        assert any("lora_" in name for name, _ in read.named_parameters()) == (merged > 0.001)
    assert "log_odds" not in store.read_manifest(warm / "manifest.json"), "which is in float32"


@pytest.mark.slow
@pytest.mark.parametrize("which", ["sft", "dpo"])
def test_losses_and_gradients_are_the_same_bits_without_pefts_cast_of_inputs(settings, warm, tmp_path, which):
    mixed = settings | {"model": settings["model"] | {"dtype": "bfloat16"}}
    trainer = trainer_for(which, mixed, tmp_path, warm)
    with torch.autocast("cpu", torch.bfloat16):
        loss, gradients = step(trainer)
        trainer.model.zero_grad()
        for module in trainer.model.modules():
            if hasattr(module, "cast_input_dtype_enabled"):
                assert not module.cast_input_dtype_enabled
                module.cast_input_dtype_enabled = True
        again, same = step(trainer)
    assert loss == again and torch.equal(gradients, same)


def test_probabilities_that_are_not_finite_are_never_stated(model_settings):
    lm = language_model.load(model_settings, None)
    next(lm.model.parameters()).data.fill_(torch.nan)
    said = "the confidence LLM's probabilities are not finite numbers; its weights are broken"
    with pytest.raises(BadInput, match=said):
        TransformersReader(lm, 4096).state([prompt(1)])


@pytest.mark.slow
def test_a_training_ended_by_sigterm_keeps_its_step_and_resumes_to_the_same_weights(
    settings, warm, tmp_path, monkeypatch, capfd
):
    def sigterm(self, args, state, control, **kwargs):
        if state.global_step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(common.Report, "on_step_begin", sigterm, raising=False)
        sft.train(SFT_EXAMPLES, settings, tmp_path / "again")
    assert ended.value.code == 143
    assert "stopped by SIGTERM after step 3" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not (tmp_path / "again").exists()
    sft.train(SFT_EXAMPLES, settings, tmp_path / "again")
    assert "checkpoint-3" in capfd.readouterr().err
    assert equal(adapter(warm), adapter(tmp_path / "again"))


def pair_of_its_length(i) -> Pair:
    """Others prefer the opposite, so that a model of few steps learns some of them only."""
    better, worse = (90, 10) if i % 2 else (10, 90)
    asked = [{"role": "user", "content": f"Is {'so ' * (i + 1)}right?"}]
    return Pair(id=str(i), prompt=asked, chosen=turn(better), rejected=turn(worse))


@pytest.mark.slow
def test_the_rewards_in_the_log_are_means_over_the_pairs_of_a_step_however_it_is_cut(
    settings, warm, tmp_path, monkeypatch
):
    """As TRL's: of seven pairs every share is a number of sevenths, whatever the sizes of the micro-batches."""
    settings["stage"] |= {"batch_size": 7, "epochs": 3}
    logs = []
    for tokens, sizes in ((4096, [7]), (180, [6, 1]), (100, [3, 2, 2])):
        out = tmp_path / str(tokens)
        monkeypatch.setenv("ORCE_SPEED", json.dumps({"training": {"micro_batch_tokens": tokens}}))
        cut, seen = dpo.DpoTrainer.micro_batches, []

        def noted(trainer, rows, cut=cut, seen=seen):
            parts = cut(trainer, rows)
            seen.append([len(part["reference"]) for part in parts])
            return parts

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dpo.DpoTrainer, "micro_batches", noted)
            dpo.train([*map(pair_of_its_length, range(7))], settings, warm, warm, out)
        assert seen == [sizes] * 3
        logs.append([(entry["rewards/accuracies"], entry["rewards/margins"]) for entry in log_of(out)])
    right = [7 * accuracy for accuracy, _ in logs[0]]
    assert right == [0, pytest.approx(round(right[1])), pytest.approx(round(right[2]))]
    assert 0 < right[1] < 7, "a case that could not tell a mean of means from a mean"
    for cut_smaller in logs[1:]:
        assert np.array(cut_smaller) == pytest.approx(np.array(logs[0]), rel=1e-3, abs=1e-6)


def drawn_by(settings, folder, in_training=False):
    """PAIRS with the log-probabilities, of the model in `folder`, that the steps before keep.

    in_training: in the arithmetic of training, as of candidates that are drawn for several rounds.
    """
    lm = language_model.load(settings["model"], str(folder), merged=not in_training)
    reader = TransformersReader(lm)
    percents = [[int(side[0]["content"].split()[-1]) for side in (pair.chosen, pair.rejected)] for pair in PAIRS]
    chunk = [Realised(id=pair.id, prompt=pair.prompt, kappa=0.5, correct=True) for pair in PAIRS]
    prompts = [pair.prompt for pair in PAIRS]
    readings = reader.read(prompts, state_text=False, sample=lambda i, _: percents[i])
    drawn = [candidates.make_candidate(*one) for one in zip(chunk, readings, strict=True)]
    if in_training:
        candidates.add_reference(drawn, chunk, reader, settings["model"]["dtype"])
    pairs = [copy(pair) for pair in PAIRS]
    add_reference_logprobs(pairs, drawn)
    return pairs


@pytest.mark.slow
def test_the_reference_of_the_pairs_is_the_live_one_or_refused(settings, warm, tmp_path):
    pairs = drawn_by(settings, warm)
    lm = common.trainable(parse_training_job(settings), str(warm))
    data = dpo.rows(lm, pairs)
    kept, live = dpo.with_reference(lm, data, pairs, 4, "test", "float32"), dpo.reference_logprobs(lm, data, 4, "test")
    for one, other in zip(kept, live, strict=True):
        assert one.reference == pytest.approx(other.reference, abs=1e-4)
    for name, given in (("kept", pairs), ("live", PAIRS)):
        dpo.train(given, settings, warm, warm, tmp_path / name)
    logs, weights = ([of(tmp_path / name) for name in ("kept", "live")] for of in (log_of, adapter))
    assert logs[0][0]["rewards/margins"] == pytest.approx(0, abs=1e-4)
    assert [entry["loss"] for entry in logs[0]] == pytest.approx([entry["loss"] for entry in logs[1]], abs=1e-4)
    for name, weight in weights[0].items():
        assert (weight - weights[1][name]).norm() < 1e-3 * weight.norm()
    pairs[0].ref_chosen_logps += 0.01
    with pytest.raises(BadInput, match="ref_chosen_logps .* were sampled from other weights"):
        dpo.train(pairs, settings, warm, warm, tmp_path / "other")


@pytest.mark.slow
def test_in_bfloat16_the_reference_is_computed_once_for_all_pairs_and_rounds(settings, warm, tmp_path, capfd):
    """In the arithmetic of training, from which a reader's differs: of such pairs a training computes it anew."""
    settings = settings | {"model": settings["model"] | {"dtype": "bfloat16"}}
    pairs, live = drawn_by(settings, warm, in_training=True), "test reference] 12/12"
    dpo.train(pairs, settings, warm, warm, tmp_path / "kept")
    said = capfd.readouterr().err
    assert "test check of the reference] 12/12" in said and live not in said
    dpo.train(PAIRS, settings, warm, warm, tmp_path / "live")
    assert live in capfd.readouterr().err
    for pair in pairs:
        pair.ref_chosen_logps += 0.1
    dpo.train(pairs, settings, warm, warm, tmp_path / "read")
    assert live in capfd.readouterr().err
    losses = [[entry["loss"] for entry in log_of(tmp_path / name)] for name in ("kept", "live", "read")]
    assert losses[0][0] == pytest.approx(math.log(2), abs=5e-5), "it starts at the reference"
    assert losses[0] == pytest.approx(losses[1], abs=1e-3) and losses[1] == losses[2]
    pairs[0].ref_rejected_logps -= 2
    with pytest.raises(BadInput, match="were sampled from other weights"):
        dpo.train(pairs, settings, warm, warm, tmp_path / "other")


@pytest.mark.slow
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


def losses_of_one_and_two_processes(train: str, examples, settings, folder, **environment):
    """The losses of a training in one process and in two. train: code that names it."""
    (folder / "task.json").write_text(json.dumps([examples, settings]))
    code = f"import json, sys\n{train}(*json.load(open('task.json')), sys.argv[1])\n"
    (folder / "both.py").write_text(code)
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "workflow")}
    launch = "-m torch.distributed.run --standalone --nproc-per-node 2 --redirects 3 --log-dir logs"
    for out, starter in (("one", ""), ("two", launch)):
        words = [sys.executable, *starter.split(), "both.py", out]
        program(*words, cwd=folder, check=True, **environment)
    assert len(sorted(folder.glob("logs/**/stderr.log"))) == 2
    return [[entry["loss"] for entry in log_of(folder / out)] for out in ("one", "two")]


@pytest.mark.slow
def test_two_processes_add_a_loss_of_the_order_of_all_examples_of_a_step(settings, tmp_path):
    """Whichever process they are in; the path for several GPUs, on the CPU."""
    settings["stage"] |= {"batch_size": 8, "rank_weight": 1.0, "answers": 8}
    train = f"from orce.runtime import modules\nmodules.from_file({ORDERED!r}).train"
    speed = json.dumps({"training": {"micro_batch_tokens": 100}})  # work for both
    one, two = losses_of_one_and_two_processes(train, KAPPAS, settings, tmp_path, ORCE_SPEED=speed)
    assert two == pytest.approx(one, rel=1e-4) and len(one) == 4


@pytest.mark.slow
def test_two_equal_runs_save_the_same_bytes(finished, tmp_path):
    """peft keeps target_modules as a set, whose order differs from process to process."""
    shutil.copytree(finished, tmp_path / "run")
    settings = json.dumps(finished_run.SFT | {"stage": finished_run.STAGE | {"epochs": 0}})
    read = ["--surrogate", finished_run.CELL / "surrogate.csv", "--prompts", "sft=results/arithmetic/prompts/sft.jsonl"]
    saved = []
    for seed in ("1", "2"):
        words = [sys.executable, "-m", "orce", "sft", "--settings", settings, *read, "--out", f"again{seed}"]
        program(*words, cwd=tmp_path / "run", check=True, PYTHONHASHSEED=seed)
        made = tmp_path / "run" / f"again{seed}"
        saved.append({path.name: path.read_bytes() for path in made.iterdir() if path.name != "manifest.json"})
    assert "adapter_config.json" in saved[0]
    assert saved[0] == saved[1]


def taught(monkeypatch, target, pairs):
    """The percents that the step asks the training for."""
    found = []
    monkeypatch.setattr(stages, "read_realised", lambda *_: pairs)
    monkeypatch.setattr(sft, "train", lambda examples, options, out: found.extend(examples))
    config = read_config([str(ROOT / "config.yaml")])
    config.sft.target = target
    sft_step.run(stages.pick_settings("sft", config, "mmlu", "llama3-8b"), "s.csv", {}, "sft")
    return [one["percent"] for one in found]


@pytest.mark.parametrize("target, percents", [("kappa", [0, 25, 100]), ("reversed", [100, 75, 0])])
def test_the_warm_start_is_taught_kappa_or_its_opposite(monkeypatch, target, percents):
    pairs = [Realised(id="", prompt=[], kappa=kappa, correct=kappa < 0.5) for kappa in (0.0, 0.25, 1.0)]
    assert taught(monkeypatch, target, pairs) == percents


@pytest.mark.parametrize(("kappa", "percent"), [(0, 0), (0.125, 13), (0.375, 38), (0.5, 50), (1 / 3, 33), (1, 100)])
def test_kappa_is_stated_as_the_nearest_percent_halves_up(kappa, percent):
    assert to_percent(kappa) == percent


def test_an_expectation_is_over_the_part_of_the_mass_that_is_there():
    some = np.full(101, -np.inf)
    some[[20, 60]] = np.log([0.1, 0.3])
    assert expected(some) == pytest.approx(0.5)


def test_the_tokenized_brier_score_is_the_mean_squared_distance_under_the_renormalised_distribution():
    probabilities = torch.full((2, 101), 1e-30)
    probabilities[0, 100], probabilities[0, 50] = 0.3, 0.1  # three quarters at 1.00, one quarter at 0.50
    probabilities[1, 20] = 0.2
    right = 0.25 * 0.5**2
    assert tokenized_brier.tokenized_brier(probabilities[:1].log(), torch.tensor([1.0])).item() == pytest.approx(right)
    both = tokenized_brier.tokenized_brier(probabilities.log(), torch.tensor([1.0, 0.0])).item()
    assert both == pytest.approx((right + 0.2**2) / 2)
