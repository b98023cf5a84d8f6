"""A GPU's arithmetic on the CPU: bfloat16 weights, adapters in float32, autocast, recomputation, several micro-batches."""

import json

import pytest
import torch
from safetensors.torch import load_file

from orce.judging.distribution import value_logprobs, value_trie
from orce.judging.reader import TransformersReader
from orce.llm import language_model
from orce.llm.chat import prompt_ids, statement
from orce.llm.trie import node_logprobs, pack
from orce.records import Pair
from orce.training import common, dpo, sft, tokenized_brier

pytestmark = pytest.mark.slow

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TRAININGS = ("sft", "dpo", "conftuner")
LOSS, READ, STATED = 0.02, 0.3, 1.0  # of the losses; log-probabilities; percent


def prompt(i):
    return [{"role": "user", "content": f"Is it right?\n\nQuestion: {'what is ' * (i % 3)}{i} + {i}?\nAnswer: {2 * i}"}]


def turn(percent):
    return [{"role": "assistant", "content": statement(percent)}]


SFT = [{"prompt": prompt(i), "percent": 11 + 5 * i} for i in range(16)]  # of two digits: equally many tokens
PAIRS = [Pair(id=str(i), prompt=prompt(i), chosen=turn(90 - 5 * i), rejected=turn(12 + 5 * i)) for i in range(16)]


def settings_of(model: dict, dtype: str, checkpointing: bool) -> dict:
    stage = {
        "epochs": 2, "learning_rate": 5e-3, "batch_size": 8, "warmup_ratio": 0.0,
        "scheduler": "cosine", "weight_decay": 0.0, "beta": 0.1, "format_weight": 1.0,
    }  # fmt: skip
    lora = {"r": 4, "alpha": 8, "dropout": 0.0, "target_modules": LINEAR, "last_layers": None}
    training = {
        "method": "lora", "lora": lora, "shared_prefix": True, "checkpointing": checkpointing, "save_steps": 100,
    }  # fmt: skip
    model = model | {"dtype": dtype}
    return {"label": "test", "model": model, "training": training, "stage": stage, "method": "conftuner", "seed": 7}


def train(which: str, settings: dict, folder) -> list[float]:
    """The losses of a training, step by step; the adapter is left in folder / which."""
    out = folder / which
    if which == "sft":
        sft.train(SFT, settings, out)
    elif which == "conftuner":
        examples = [{"prompt": one["prompt"], "correct": one["percent"] > 50} for one in SFT]
        tokenized_brier.train(examples, settings, out)
    else:
        none = settings | {"stage": settings["stage"] | {"epochs": 0}}
        sft.train(SFT, none, folder / "start")
        dpo.train(PAIRS, settings, folder / "start", folder / "start", out)
    return [entry["loss"] for entry in json.loads((out / "training_log.json").read_text())]


# name of a variant: dtype, recomputation, tokens of a micro-batch
VARIANTS = {"plain": ("float32", False, 4096), "parts": ("float32", True, 100), "gpu": ("bfloat16", True, 100)}


@pytest.fixture(scope="module")
def tiny_model(tiny) -> dict:
    return {"source": {"path": tiny}, "device": "cpu", "template_kwargs": {}}


@pytest.fixture(scope="module", params=TRAININGS)
def trained(request, tiny_model, tmp_path_factory) -> dict:
    """A kind of training in three variants: each one's folder, its losses, and what its first layer did."""
    found = {}
    for name, (*variant, tokens) in VARIANTS.items():
        folder, seen = tmp_path_factory.mktemp(name), {"outputs": set(), "runs": 0}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ORCE_SPEED", json.dumps({"training": {"micro_batch_tokens": tokens}}))
            patch.setattr(common.StopAtSigterm, "on_train_begin", watching(seen))
            losses = train(request.param, settings_of(tiny_model, *variant), folder)
        found[name] = {"folder": folder / request.param, "losses": losses, "seen": seen}
    return found


def watching(seen: dict):
    """A callback that notes the types of the first layer's weights and outputs, and how often it runs."""

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        layer = next(module for name, module in model.named_modules() if name.endswith("layers.0"))
        projection = layer.self_attn.q_proj
        seen["base"], seen["adapter"] = projection.base_layer.weight.dtype, projection.lora_A["default"].weight.dtype
        layer.register_forward_pre_hook(lambda *_: seen.update(runs=seen["runs"] + 1))
        projection.register_forward_hook(lambda *call: seen["outputs"].add(call[-1].dtype))

    return on_train_begin


def weights(one: dict) -> dict:
    return load_file(one["folder"] / "adapter_model.safetensors")


def test_a_training_in_bfloat16_has_the_losses_of_float32(trained):
    plain, gpu = trained["plain"], trained["gpu"]
    assert plain["seen"] == {"outputs": {torch.float32}, "runs": 4, "base": torch.float32, "adapter": torch.float32}
    runs = gpu["seen"].pop("runs")
    assert gpu["seen"] == {"outputs": {torch.bfloat16}, "base": torch.bfloat16, "adapter": torch.float32}
    assert runs >= 16  # two epochs of two steps of two micro-batches or more, each forward and once more backward
    assert gpu["losses"] == pytest.approx(plain["losses"], rel=LOSS)
    assert {weight.dtype for weight in weights(gpu).values()} == {torch.float32}


def test_micro_batches_and_recomputation_change_no_step(trained):
    assert trained["parts"]["losses"] == pytest.approx(trained["plain"]["losses"], rel=1e-4)
    parts = weights(trained["parts"])
    for name, weight in weights(trained["plain"]).items():
        assert (weight - parts[name]).norm() < 1e-2 * weight.norm()


@torch.no_grad()
def policy_values(lm, prompts) -> torch.Tensor:
    """log P of the 101 values as a training computes them: the adapter apart, under autocast."""
    trie = value_trie(lm.tokenizer)
    ids = [prompt_ids(lm.tokenizer, one, lm.template_kwargs) for one in prompts]
    with torch.autocast("cpu", torch.bfloat16):
        return value_logprobs(node_logprobs(lm.model, pack(ids, [trie] * len(ids))).view(len(ids), -1), trie)


def test_what_is_read_is_what_the_policy_says(trained, tiny_model):
    settings, folder = tiny_model | {"dtype": "bfloat16"}, str(trained["gpu"]["folder"])
    prompts = [one["prompt"] for one in SFT]
    judge = language_model.load(settings, folder)
    assert judge.model.dtype == torch.bfloat16
    read = torch.tensor([one.logprobs.tolist() for one in TransformersReader(judge).read(prompts, state_text=False)])
    said = policy_values(language_model.load(settings, folder, trainable=True), prompts)
    assert (read - said).abs().max() < READ
    means = [one.softmax(-1) @ torch.arange(101.0) for one in (read, said)]
    assert (means[0] - means[1]).abs().max() < STATED
