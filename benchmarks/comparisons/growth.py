"""What the stages without a model, and Snakemake's plan, cost on ten and a hundred times as much."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from benchmarks.comparisons.dry_run import PLAN_TABLES, ROOT
from benchmarks.timing import Row, alone

TITLE = "surrogate, pairs and evaluate on 1,000 to 100,000 rows; a dry run of 10 to 250 cells (no plain side)"
ROWS, CELLS = (1_000, 10_000, 100_000), (10, 50, 250)
K, CANDIDATES = 10, 8
CELL = Path("results/own/m")
PAIRS = {
    "label": "pairs",
    "task": "qa",
    "reward": "sc",
    "module": "sc",
    "reference": "stated",
    "leave_one_out": False,
    "seed": 1,
}
EVALUATE = {"dataset": "own", "model": "m", "method": "orce", "unparsed_confidence": 0.5, "bootstrap": 100, "seed": 1}


def run(options) -> Iterator[Row]:
    for rows in ROWS:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            write_inputs(rows)
            for name, arguments in stages().items():
                words = [word for key, value in arguments.items() for word in (f"--{key}", str(value))]
                yield timed(f"{name}, {rows:,} rows", [sys.executable, "-m", "orce", name, *words], options.repeats)
    for cells in CELLS:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            write_configuration(cells)
            yield timed(f"dry run, {cells} cells", PLAN_TABLES, options.repeats)


def timed(name: str, command: list, repeats: int) -> Row:
    return alone(name, lambda: subprocess.run(command, check=True, capture_output=True), repeats)


def stages() -> dict[str, dict]:
    """The arguments of each stage; pairs reads the training half of the rows, evaluate the test half."""
    surrogate = CELL / "surrogate.csv"
    return {
        "surrogate": {"samples": CELL / "samples.jsonl", "seed": 1, "out": surrogate},
        "pairs": {
            "settings": json.dumps(PAIRS), "surrogate": surrogate, "prompts": "rl=results/own/prompts/rl.jsonl",
            "candidates": CELL / "candidates.jsonl", "out": CELL / "pairs/sc.jsonl", "manifest": CELL / "pairs/sc.manifest.json",
        },
        "evaluate": {
            "settings": json.dumps(EVALUATE), "surrogate": surrogate, "confidences": CELL / "orce/confidences.jsonl",
            "out": CELL / "orce/metrics.json", "extra": CELL / "orce/extra.json",
        },
    }  # fmt: skip


def write_inputs(rows: int) -> None:
    """Answers of a model that is right with a probability of its own for each question, and confidences that follow it in part."""
    from orce.artefacts import store

    rng = np.random.default_rng(0)
    chance = rng.beta(0.5, 0.5, rows)
    right = rng.random((rows, K)) < chance[:, None]
    percent = np.clip(np.rint(100 * (0.6 * chance[:, None] + 0.4 * rng.random((rows, CANDIDATES)))), 0, 100)
    examples, samples = [], []
    for row in range(rows):
        split = "rl" if row % 2 else "test"
        answers = ["yes" if correct else "no" for correct in right[row]]
        greedy = {"answer": answers[0], "raw": answers[0], "correct": bool(right[row, 0]), "f1": None}
        drawn = {"answers": answers, "raw": answers, "correct": right[row].tolist(), "greedy": greedy}
        examples.append(
            {"id": f"q{row}", "question": f"Is {row} it?", "context": "", "choices": [], "reference": "yes"}
        )
        samples.append({"id": f"q{row}", "split": split} | drawn)
    store.write("results/own/prompts/rl.jsonl", examples[1::2])
    store.write(CELL / "samples.jsonl", samples)
    confidences = (percent / 100).tolist()
    flat = {"logprobs": [-np.log(101)] * 101, "completion_logprobs": [-1.0] * CANDIDATES, "raw": [""] * CANDIDATES}
    candidates, stated = [], []
    for row in range(1, rows, 2):
        judged = {"id": f"q{row}", "kappa": right[row].mean(), "correct": bool(right[row].mean() >= 0.5)}
        candidates.append(judged | flat | {"confidences": confidences[row], "stated": confidences[row][0]})
    for row in range(0, rows, 2):
        judged = {"id": f"q{row}", "answer": samples[row]["answers"][0], "correct": bool(right[row, 0])}
        stated.append(judged | {"confidence": confidences[row][0]})
    store.write(CELL / "candidates.jsonl", candidates)
    store.write(CELL / "orce/confidences.jsonl", stated)


def write_configuration(cells: int) -> None:
    """config.yaml with as many data sets, each with a table of one model."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    names = [f"set{number}" for number in range(cells)]
    model, *_ = config["models"]
    config["datasets"] = {name: config["datasets"]["mmlu"] for name in names}
    config["models"] = {model: config["models"][model]}
    config["tables"] = {name: {"kind": "main", "dataset": name, "models": [model]} for name in names}
    config["paper_tables"] = names
    Path("config.yaml").write_text(yaml.safe_dump(config))
