"""Question-answer pairs as the confidence LLM reads them: realised answers for training, greedy ones for the test."""

import pandas as pd

from orce import confidence, files
from orce.steps import read_prompts

COLUMNS = ("id", "split", "n_correct", "n_samples", "kappa", "answer", "answer_correct")


def read_surrogate(path) -> pd.DataFrame:
    """surrogate.csv with its types; an unreadable answer is the empty string."""
    frame = pd.read_csv(path, dtype={"id": str, "split": str, "answer": str}, keep_default_na=False)
    missing = [column for column in COLUMNS if column not in frame]
    if missing:
        raise files.BadInput(f"{path}: no column {missing[0]!r}; expected {', '.join(COLUMNS)}")
    return frame


def load(task, surrogate, prompts: dict[str, str]) -> list[dict]:
    """Pairs {id, prompt, kappa, correct} of the splits named in `prompts` {split: file}, in the files' order."""
    frame = read_surrogate(surrogate)
    pairs = []
    for split, path in prompts.items():
        rows = frame[frame["split"] == split].set_index("id")
        for example in read_prompts(path):
            if example["id"] not in rows.index:
                raise files.BadInput(f"{surrogate}: no row for id {example['id']!r} of {path}; sample it again")
            row = rows.loc[example["id"]]
            answer = row["answer"] or None
            pairs.append(
                {
                    "id": example["id"],
                    "prompt": confidence.messages(task, example, answer),
                    "kappa": float(row["kappa"]),
                    "correct": bool(row["answer_correct"]),
                }
            )
    return pairs


def split_files(arguments: list[str]) -> dict[str, str]:
    """SPLIT=FILE arguments as a dict."""
    return dict(argument.split("=", 1) for argument in arguments)
