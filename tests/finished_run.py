"""A small finished run through the real steps: prompts, kappa, a warm start, stated confidences, metrics."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from unittest import mock

import torch
from conftest import ARITHMETIC, LINEAR, WORLDFACTS, prompts_words
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from orce.__main__ import main
from orce.artefacts import files, store

CELL = Path("results/arithmetic/small")
SPLITS = {name: {"from": origin, "size": size} for name, origin, size in (("sft", "train", 16), ("rl", "train", 8), ("test", "test", 20))}  # fmt: skip
PROMPTS = {"dataset": "arithmetic", "task": ARITHMETIC, "source": {}, "splits": SPLITS, "tests": [], "seed": 1}
MODEL = {"source": {"path": "results/models/small"}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}
LORA = {"r": 16, "alpha": 32, "dropout": 0.0, "target_modules": LINEAR, "last_layers": None}
TRAINING = {"method": "lora", "lora": LORA, "checkpointing": False, "save_steps": 50}
STAGE = {
    "target": "kappa", "epochs": 10, "learning_rate": 2e-2, "batch_size": 4,
    "warmup_ratio": 0.0, "scheduler": "cosine", "weight_decay": 0.0,
}  # fmt: skip
SFT = {"label": "sft", "task": ARITHMETIC, "model": MODEL, "training": TRAINING, "stage": STAGE, "seed": 1}
TEST = "results/arithmetic/prompts/test.jsonl"
STATED = {"label": "sft", "task": ARITHMETIC}
SPEED = {"confidence": {"chunk": 8, "batch_tokens": 512}}
EVALUATE = {"unparsed_confidence": 0.5, "bootstrap": 50, "dataset": "arithmetic", "model": "small", "method": "sft"}


def make(root: Path, model: str, cell=CELL, task=ARITHMETIC, trained="sft", row="sft") -> Path:
    """A run in the folder `root` whose confidence LLM is trained over `model`; paths in it are relative, as always."""
    base, asked, table = f"results/models/{cell.name}", cell.parent / "prompts", cell / "surrogate.csv"
    weights, stated = cell / trained, cell / row / "confidences.jsonl"
    used = {"task": task, "model": MODEL | {"source": {"path": base}}}
    shutil.copytree(model, root / base)
    with contextlib.chdir(root):
        for split in SPLITS:
            chosen = PROMPTS | {"dataset": cell.parent.name, "task": task}
            assert main(prompts_words(chosen, f"{asked}/{split}.jsonl", split)) == 0
        write_samples(cell / "samples.jsonl", [asked / f"{split}.jsonl" for split in SPLITS])
        step("surrogate", samples=cell / "samples.jsonl", seed=1, out=table)
        step("sft", SFT | used, surrogate=table, prompts=f"sft={asked}/sft.jsonl", out=weights)
        state(stated, cell, used, weights=weights)
        named = {"dataset": cell.parent.name, "model": cell.name, "method": row, "seed": 1}
        read = {"confidences": stated, "surrogate": table, "manifests": weights / "manifest.json"}
        made = {"out": stated.with_name("metrics.json"), "extra": stated.with_name("extra.json")}
        step("evaluate", EVALUATE | named, **read, **made)
    return root


def demo(root: Path, model: str) -> Path:
    """The folders of the demo that docs/measure.md names, of a run as small as that of `make`."""
    return make(root, model, Path("results/worldfacts/smollm2"), WORLDFACTS, trained="dpo", row="orce")


def step(name: str, settings: dict | None = None, **arguments) -> None:
    flags = [part for key, value in arguments.items() for part in (f"--{key}", str(value))]
    assert main([name, *(["--settings", json.dumps(settings)] if settings else []), *flags]) == 0


def state(out, cell: Path = CELL, used: dict | None = None, **weights) -> None:
    """Confidences in the greedy answers to the test prompts, as the workflow states them."""
    shard, settings = cell / "shards" / f"{Path(out).stem}-0.jsonl", STATED | (used or {"model": MODEL})
    read = {"prompts": cell.parent / "prompts/test.jsonl", "samples": cell / "samples.jsonl"}
    with mock.patch.dict(os.environ, {"ORCE_SPEED": json.dumps(SPEED)}):
        step("state", settings, **read, out=shard, **weights)
    step("gather", shards=shard, readout="stated", out=out)


def write_samples(out, asked: list) -> None:
    """Samples that the run's model did not give, so that some answers are right; of questions in PLACE/SPLIT.jsonl."""
    store.write(out, [sample(Path(path).stem, one) for path in asked for one in files.read_jsonl(path)])


def prompts(split: str) -> list[dict]:
    return files.read_jsonl(f"results/arithmetic/prompts/{split}.jsonl")


def sample(split: str, example: dict) -> dict:
    """Four answers, right ones and others, and one that could not be read among the greedy ones."""
    reference = example["reference"] if isinstance(example["reference"], str) else example["reference"][0]
    answers = [reference if i < len(example["question"]) % 5 else str(i) for i in range(4)]
    correct = [answer == reference for answer in answers]
    greedy = None if example["id"].endswith("*3") else answers[0]
    judged = {"answer": greedy, "raw": answers[0], "correct": greedy == reference, "f1": None}
    samples = {"answers": answers, "raw": [f"It is {answer}" for answer in answers], "correct": correct}
    return {"id": example["id"], "split": split} | samples | {"greedy": judged}


def pairs(root: Path) -> list[dict]:
    """The question-answer pairs of the test split, as anyone would write them."""
    with contextlib.chdir(root):
        examples, samples = prompts("test"), files.read_jsonl(CELL / "samples.jsonl")
    greedy = {one["id"]: one["greedy"]["answer"] for one in samples if one["split"] == "test"}
    return [{"id": e["id"], "question": e["question"], "answer": greedy[e["id"]]} for e in examples]


# What the small model's tokenizer was made from. It is written out, so that rewording the library's prompt leaves the model as it is.
SEEN = (
    'Judge a proposed answer. Reply only with "Confidence: " and an integer from 0 to 100, the probability in percent that the'
    " answer is correct.\n\nQuestion: What is\n\nProposed answer: is"
)


def small_model(folder) -> str:
    """A model of one layer whose few hundred tokens are quick to score: untrained, what it says is nonsense."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    seen = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=["<end>"], min_frequency=1)
    raw.train_from_iterator([SEEN], seen)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", pad_token="<end>")
    tokenizer.chat_template = "{% for turn in messages %}{{ turn.content }}<end>{% endfor %}"
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = {"vocab_size": len(tokenizer), "max_position_embeddings": 1024, "tie_word_embeddings": True}
    model = LlamaForCausalLM(LlamaConfig(**config, **size))
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
