"""What the tests of single stages share: a stage is run by its command on files that are written down, and its file is read as JSON."""

import json
import math
from pathlib import Path

import numpy as np
from conftest import ROOT

from orce.__main__ import main

WORDS = str(ROOT / "tests" / "data" / "words.py")  # their task
JUDGE = (
    'Judge a proposed answer. Reply only with "Confidence: " and an integer from 0 to 100, the probability in percent that the'
    " answer is correct.\n\nQuestion: {question}\n\nProposed answer: {answer}"
)


def stage(name: str, settings: dict | None = None, **arguments) -> None:
    """Run a stage by its command. A list is an option with several words, a dict one of SPLIT=FILE, True one without any."""
    words = [name] if settings is None else [name, "--settings", json.dumps(settings)]
    for option, value in arguments.items():
        several = [f"{key}={path}" for key, path in value.items()] if isinstance(value, dict) else value
        several = [] if value is True else several if isinstance(several, list) else [several]
        words += [f"--{option.replace('_', '-')}", *map(str, several)]
    assert main(words) == 0, words


def write(path: str, records: list[dict]) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def lines(path: str) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def asked(name: str, word: str) -> dict:
    """A frozen question of the task."""
    return {"id": name, "question": f"Say {word}.", "context": None, "choices": None, "reference": [word]}


def greedy(answer: str | None, correct: bool, raw: str | None = None) -> dict:
    text = answer or "" if raw is None else raw
    return {"answer": answer, "raw": text, "correct": correct, "f1": None}


def sampled(name: str, split: str, answers: list, right: list, best: dict | None = None) -> dict:
    """A line of samples.jsonl; each reply is its answer with a number, so that two replies with one answer differ."""
    raw = [f"{answer or ''} {number}" for number, answer in enumerate(answers)]
    record = {"id": name, "split": split, "answers": answers, "raw": raw, "correct": right}
    return record if best is None else record | {"greedy": best}


def stated(name: str, correct: bool, confidence: float | None, answer: str | None = "ant", **more) -> dict:
    """A line of confidences.jsonl."""
    return {"id": name, "answer": answer, "correct": correct, "f1": None, "confidence": confidence, "raw": "x"} | more


def area(confidence, correct) -> float:
    """AURC: the mean risk over coverages, each tie in its expectation over all orders, by a loop over its places."""
    order, risks, seen, wrong = sorted({*confidence}, reverse=True), [], 0, 0.0
    for value in order:
        tie = [not right for stated, right in zip(confidence, correct, strict=True) if stated == value]
        risks += [(wrong + sum(tie) * j / len(tie)) / (seen + j) for j in range(1, len(tie) + 1)]
        seen, wrong = seen + len(tie), wrong + sum(tie)
    return float(np.mean(risks))


def calibration(confidence, correct) -> float:
    """ECE with ten bins that are closed on the right."""
    number = [max(0, math.ceil(round(stated * 10, 9)) - 1) for stated in confidence]
    members = [[i for i, own in enumerate(number) if own == one] for one in {*number}]
    return sum(abs(sum(confidence[i] - correct[i] for i in some)) for some in members) / len(number)
