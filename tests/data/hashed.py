"""A task for models that know nothing: an answer is right by a hash of question and text, so kappa takes every value."""

import random
import zlib

ANSWER_KIND, MAX_TOKENS, METRIC = "text", 4, "accuracy"


def load(source, split, seed=0):
    """40 questions a split; the splits share none."""
    words = random.Random(seed).sample(range(1000), 80)
    chosen = words[:40] if split == "train" else words[40:]
    return [
        {"id": str(word), "question": f"What follows {word}?", "context": None, "choices": None, "reference": "?"}
        for word in chosen
    ]


def question(example):
    return example["question"]


def prompt(example, shots=None):
    return [{"role": "user", "content": f"{question(example)} Answer in one word."}]


def extract(text, example):
    return text.strip() or None


def score(answer, example):
    right = answer is not None and zlib.crc32(f"{example['id']} {answer}".encode()) % 2 == 0
    return {"correct": right, "f1": None}


def key(answer, example):
    return answer


def display(answer, example):
    return "(no answer)" if answer is None else answer
