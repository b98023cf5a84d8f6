"""A task whose every function looks for labels: the reference, and accepted answers under a key of its own."""

import json
from pathlib import Path

ANSWER_KIND, MAX_TOKENS, METRIC = "town", 6, "accuracy"


def load(source, split, seed=0):
    return [json.loads(line) for line in Path(source["path"]).read_text().splitlines()]


def named(text, names):
    """The first name that a text has in it."""
    return next((name for name in names if name.lower() in text.lower()), None)


def question(example):
    return example["question"] + " ".join(map(str, example.get("reference", [])))


def prompt(example, shots=None):
    return [{"role": "user", "content": question(example)}]


def extract(text, example):
    return named(text, example.get("reference", [])) or text.strip() or None


def score(answer, example):
    return {"correct": answer is not None and answer in example["reference"], "f1": None}


def key(answer, example):
    return named(answer, [*example.get("reference", []), *example.get("accepted", [])]) or answer.lower()


def display(answer, example):
    return f"{answer} of {example.get('reference')}"


def twin(example):
    return f"{example['question']} {example.get('reference')}"
