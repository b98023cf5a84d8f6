"""A task for lm-evaluation-harness: the questions, the prompt and the scores of orce_confidence.yaml."""

import re

import datasets

from orce import metrics


def dataset(questions: str, **_):
    """The questions of a file of JSON lines, each with `question` and `reference`."""
    return datasets.load_dataset("json", data_files={"test": questions})


def prompt(doc: dict) -> str:
    return (
        f'{doc["question"]}\nEnd with two lines: "Answer: ..." and "Confidence: ...%", how likely the answer is right.'
    )


def scored(doc: dict, replies: list[str]) -> dict:
    """The values of one reply. A confidence that cannot be read counts as 0.5."""
    answer = re.search(r"Answer: *(.+)", replies[0])
    percent = re.search(r"Confidence: *(\d{1,2}|100)\b", replies[0])
    correct = answer is not None and answer[1].strip().casefold() == doc["reference"].casefold()
    pair = (int(percent[1]) / 100 if percent else 0.5, correct)
    return {"acc": float(correct), "unread": float(percent is None)} | dict.fromkeys(("ece", "auroc", "aurc"), pair)


def ece(pairs: list[tuple[float, bool]]) -> float:
    return metrics.expected_calibration_error(*map(list, zip(*pairs, strict=True)))


def auroc(pairs: list[tuple[float, bool]]) -> float | None:
    return metrics.auroc(*map(list, zip(*pairs, strict=True)))  # None where all answers are right, or all wrong


def aurc(pairs: list[tuple[float, bool]]) -> float:
    return metrics.aurc(*map(list, zip(*pairs, strict=True)))
