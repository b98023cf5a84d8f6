"""What other model families bring along: sliding windows, missing chat templates, and the wrong end of a turn."""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from conftest import random_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from orce.__main__ import main
from orce.artefacts import files
from orce.errors import BadInput
from orce.judging.reader import TransformersReader
from orce.llm import engines, language_model
from orce.llm.chat import statement
from orce.llm.kv_cache import KVCache
from orce.records import Pair
from orce.training import common, dpo, sft, tokenized_brier

TEMPLATES = Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
WINDOW = 24
# Mistral's layers all have the window; every second of Gemma 3's here; Qwen3's from the first if it is switched on.
WINDOWED = {
    "Mistral": {"sliding_window": WINDOW},
    "Gemma3": {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    "Qwen3": {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 0},
}
LONG = [[{"role": "user", "content": "How sure are you of this? " * 5}]]
TOO_LONG = f"its layers attend to a sliding window of {WINDOW} tokens, and prompt and completion take "


@pytest.fixture(params=[pytest.param(name, marks=() if name == "Gemma3" else pytest.mark.slow) for name in WINDOWED])
def windowed(request, tiny, shared) -> str:
    """Folder of a two-layer model with a sliding window of WINDOW tokens, to read only."""

    def make(folder: Path) -> None:
        config = getattr(transformers, request.param + ("TextConfig" if request.param == "Gemma3" else "Config"))
        tokenizer, model = AutoTokenizer.from_pretrained(tiny), getattr(transformers, request.param + "ForCausalLM")
        more = {"num_hidden_layers": 2, "head_dim": 8} | WINDOWED[request.param]
        random_model(config, model, tokenizer, seed=2, **more).save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return str(shared(f"windowed-{request.param}", make))


def settings_of(folder) -> dict:
    return {"source": {"path": str(folder)}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}


def training_settings(folder) -> dict:
    stage = {
        "epochs": 1, "learning_rate": 5e-3, "batch_size": 1, "warmup_ratio": 0.0,
        "scheduler": "cosine", "weight_decay": 0.0, "beta": 0.1, "format_weight": 1.0, "target": "kappa",
    }  # fmt: skip
    lora = {"r": 4, "alpha": 8, "dropout": 0.0, "target_modules": ["q_proj"], "last_layers": None}
    training = {"method": "lora", "lora": lora, "shared_prefix": True, "checkpointing": False, "save_steps": 2}
    return {"label": "test", "model": settings_of(folder), "training": training, "stage": stage, "seed": 7}


def test_a_prompt_as_long_as_the_window_is_computed_as_the_model_does(windowed):
    model = AutoModelForCausalLM.from_pretrained(windowed, dtype=torch.float32).eval()
    prompts = [list(range(5, 5 + WINDOW - 1)), [5, 6, 7, 50]]
    cache = KVCache(model, prompts)
    (following, _) = cache.extend([1, 1], [40, 41], [1, 1], torch.ones(2, 1, dtype=torch.bool))
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([[*prompts[0], 40]])).logits[0]
    assert torch.allclose(cache.logits[0], expected[-2], atol=1e-4)
    assert torch.allclose(following, expected[-1], atol=1e-4)
    with pytest.raises(BadInput, match=TOO_LONG + str(WINDOW + 1)):
        cache.extend_branches([[(42, 2, [0])], [(43, 2, [0])]])


@pytest.mark.slow
def test_prompts_longer_than_the_window_are_refused_before_any_is_computed(windowed):
    settings = settings_of(windowed)
    with pytest.raises(BadInput, match=f"{TOO_LONG}.* set engine.name to vllm"):
        engines.longest(settings | {"name": "transformers"}, LONG, 12)  # what the steps ask before they load a model
    assert engines.longest(settings | {"name": "transformers"}, [], 12) is None
    lm = language_model.load(settings)
    lm.model.forward = None  # whoever computes fails otherwise
    reader, engine = TransformersReader(lm), engines.get("transformers").Engine(lm)
    short = [{"role": "user", "content": "?"}]
    prompts = [short, *LONG]
    for refused in (reader.read, lambda prompts: engine.generate(prompts, 1, 0.0, 9, [0, 0])):
        with pytest.raises(BadInput, match=TOO_LONG):
            refused(prompts)


@pytest.mark.slow
def test_training_refuses_what_its_packed_rows_would_compute_without_the_window(windowed, tmp_path):
    settings, prompt = training_settings(windowed), LONG[0]
    pair = Pair(id="", prompt=prompt, chosen=[{"content": statement(90)}], rejected=[{"content": statement(10)}])
    plain = settings | {"stage": settings["stage"] | {"epochs": 0}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "check_lengths", lambda *_: None)
        sft.train([{"prompt": prompt, "percent": 9}], plain, tmp_path / "start")
    for train in (
        lambda: sft.train([{"prompt": prompt, "percent": 70}], settings, tmp_path / "sft"),
        lambda: tokenized_brier.train([{"prompt": prompt, "correct": True}], settings, tmp_path / "conftuner"),
        lambda: dpo.train([pair], settings, tmp_path / "start", tmp_path / "start", tmp_path / "dpo"),
    ):
        with pytest.raises(BadInput, match=f"{TOO_LONG}.*; training computes whole attention"):
            train()
    assert not any((tmp_path / name).exists() for name in ("sft", "conftuner", "dpo"))


def test_a_record_longer_than_the_window_is_named_by_score(windowed, tmp_path, capsys):
    path = tmp_path / "pairs.jsonl"
    files.write_jsonl(path, [{"question": "What is 1 + 1?", "answer": "2"}])
    assert main(["score", "--base", windowed, "--in", str(path), "--out", str(tmp_path / "out.jsonl")]) == 2
    assert re.search(rf"line 1: takes \d+ tokens; the model reads at most {WINDOW}\n", capsys.readouterr().err)


@pytest.fixture
def folder(tiny, tmp_path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "model"))


def test_a_model_without_a_chat_template_is_refused_in_one_line(folder, tmp_path, capsys):
    (folder / "chat_template.jinja").unlink()
    files.write_jsonl(tmp_path / "pairs.jsonl", [{"question": "What is 1 + 1?", "answer": "2"}])
    assert main(["score", "--base", str(folder), "--in", str(tmp_path / "pairs.jsonl")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder}: its tokenizer has no chat template; take the instruction-tuned version" in line
    with pytest.raises(BadInput, match="no chat template"):  # vllm, before it is started
        engines.longest(settings_of(folder) | {"name": "vllm"}, LONG, 12)


def test_a_chat_template_that_fails_is_told_with_its_own_words(folder):
    (folder / "chat_template.jinja").write_text("{{ raise_exception('needs a mood') }}")
    with pytest.raises(BadInput, match="its chat template fails with template_kwargs .*needs a mood"):
        language_model.load(settings_of(folder))


def like_llama3(folder: Path, eos: str, ends: list[str]) -> Path:
    """Give a model LLaMA-3's template and tokens, an eos, and the ends of a generation config."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    tokenizer.bos_token, tokenizer.eos_token = "<|begin_of_text|>", eos
    tokenizer.chat_template = (TEMPLATES / "llama3.jinja").read_text()
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(ends)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


WRONG_END = r"ends a turn with <\|eot_id\|>, but its end-of-sequence token is <\|end_of_text\|>; take a newer snapshot"


def test_a_snapshot_of_llama3_from_before_2024_05_is_refused(folder, tmp_path):
    old = like_llama3(folder, "<|end_of_text|>", ["<|end_of_text|>"])
    with pytest.raises(BadInput, match=WRONG_END):
        language_model.load(settings_of(old))


@pytest.mark.slow
def test_an_eos_that_generation_alone_corrects_is_refused_by_training(folder, tmp_path):
    half = like_llama3(folder, "<|end_of_text|>", ["<|end_of_text|>", "<|eot_id|>"])
    assert len(language_model.load(settings_of(half)).ends) == 2
    with pytest.raises(BadInput, match=WRONG_END):
        sft.train([{"prompt": LONG[0], "percent": 70}], training_settings(half), tmp_path / "sft")


def test_todays_llama3_is_taken(folder):
    new = like_llama3(folder, "<|eot_id|>", ["<|end_of_text|>", "<|eot_id|>"])
    assert language_model.load(settings_of(new), trainable=True).tokenizer.eos_token == "<|eot_id|>"


@pytest.mark.parametrize("name", ["qwen3", "llama3_1", "gemma3"])
def test_templates_of_other_families_can_be_read(folder, name):
    """Templates whose ends are not in this tokenizer say nothing against it."""
    (folder / "chat_template.jinja").write_text((TEMPLATES / f"{name}.jinja").read_text())
    settings = settings_of(folder) | {"template_kwargs": {"enable_thinking": False} if name == "qwen3" else {}}
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["eos_token"] == "<|im_end|>"
    language_model.vocabulary(settings["source"], settings["template_kwargs"])
