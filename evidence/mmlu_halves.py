"""MMLU's 14,042 test questions in two halves, one to train on: a task by its path (orce.tasks).

MMLU has no training set of its own kind, and its auxiliary_train comes from other benchmarks. Here each of the 57
subjects is cut in half, the same way whatever the seed: `test`, and `train`, a fifth of which is `validation`, so that
hyperparameters are chosen on neither of the others. Nothing measured on such a half is a result on MMLU's test set.
"""

import hashlib
from collections import Counter

from orce.errors import BadInput
from orce.tasks import mmlu
from orce.tasks.mmlu import ANSWER_KIND, MAX_TOKENS, METRIC, display, extract, key, prompt, question, score

__all__ = [
    "ANSWER_KIND", "MAX_TOKENS", "METRIC", "display", "extract", "key", "load", "prompt", "question", "score",
]  # fmt: skip
SPLITS = ("train", "validation", "test")
DATA = "evidence/runs/data/mmlu"  # from a run's folder, where a link stands there (evidence/runs.py)


def load(source: dict, split: str, seed: int = 0) -> list[dict]:
    """Examples of train, validation or test; the source is that of orce.tasks.mmlu, or {} for what `python -m evidence
    data` fetched. `seed` has no effect.
    """
    if split not in SPLITS:
        raise BadInput(f"the halves of MMLU have no split {split!r}; splits are {', '.join(SPLITS)}")
    return halves([dict(example) for example in mmlu.load(source or {"path": DATA}, "test")])[split]


def halves(examples: list[dict]) -> dict[str, list[dict]]:
    """The examples by split, whatever order they come in: each subject is cut along a hash of the questions' ids."""
    sizes, seen = Counter(example["subject"] for example in examples), Counter()
    parts: dict[str, list[dict]] = {split: [] for split in SPLITS}
    for example in sorted(examples, key=_hash):
        subject = example["subject"]
        parts[_split(seen[subject], sizes[subject])].append(example)
        seen[subject] += 1
    return parts


def _split(place: int, size: int) -> str:
    """Where the question at a place of its subject goes."""
    if place >= size // 2:
        return "test"
    return "train" if place % 5 else "validation"


def _hash(example: dict) -> str:
    return hashlib.sha256(example["id"].encode()).hexdigest()
