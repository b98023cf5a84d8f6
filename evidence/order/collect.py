"""From the runs that run.sh left in FOLDER to the released items and the mechanism's table:
``python evidence/order/collect.py FOLDER``. evidence/recompute.py makes the other tables from the items.
"""

import csv
import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ITEMS = ROOT / "evidence" / "items" / "order"
MECHANISM = ROOT / "docs" / "evidence" / "tables" / "order-mechanism.csv"
SETS = ("arithmetic", "worldfacts")
SEEDS = (42, 1, 2, 3, 4)
OF_CHOICE = (42, 1, 2)  # the seeds whose validation questions were read
READINGS = {"stated": ":stated", "mode": ":mode", "mean": ""}  # how an arm of the items ends
SIDES = ("chosen", "rejected")
# Chosen on validation questions (order-choice.csv), before a test question was read.
EPOCHS = {"stated": 3, "mean": 3}

# {arm: the run's folder and its row}; C is what the warm start states, or the mean of its distribution.
TRIED = {
    "sft": ("stated-3", "sft"),
    "orce, C stated, 3 epochs": ("stated-3", "orce"),
    "orce, C stated, 6 epochs": ("stated-6", "orce"),
    "orce, C mean, 3 epochs": ("mean-3", "orce"),
    "orce, C mean, 6 epochs": ("mean-6", "orce"),
}
OF_MEAN = f"mean-{EPOCHS['mean']}"
TESTED = {
    "sft": (OF_MEAN, "sft"),
    "sft_all": (OF_MEAN, "sft_all"),
    "orce, C stated": (f"stated-{EPOCHS['stated']}", "orce"),
    "orce, C mean": (OF_MEAN, "orce"),
    "W/o gen": (OF_MEAN, "orce-sc-surrogate"),
}


def collect(runs: Path) -> None:
    ITEMS.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for name in SETS:
            if seed in OF_CHOICE:
                write_items(f"{name}-validation-{seed}", f"{name}-validation", seed, TRIED, runs)
            write_items(f"{name}-{seed}", name, seed, TESTED, runs)
    rows = [row for seed in SEEDS for name in SETS for row in mechanism(runs, name, seed)]
    with MECHANISM.open("w", newline="") as handle:
        table = csv.DictWriter(handle, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def write_items(file: str, dataset: str, seed: int, arms: dict[str, tuple[str, str]], runs: Path) -> None:
    """A line a question: id, correct, and {arm: confidence} by its mean, :stated and, where it was kept, :mode."""
    lines: dict[str, dict] = {}
    for arm, (folder, row) in arms.items():
        path = runs / f"{seed}-{folder}" / "results" / dataset / "smollm2" / row / "confidences.jsonl"
        for record in map(json.loads, path.read_text().splitlines()):
            known = {"id": record["id"], "correct": record["correct"], "confidences": {}}
            line = lines.setdefault(record["id"], known)
            if line["correct"] != record["correct"]:
                raise ValueError(f"{path}: {record['id']} is judged otherwise than in the arm before")
            kept = {arm + end: record[reading] for reading, end in READINGS.items() if reading in record}
            line["confidences"] |= {name: round(value, 6) for name, value in kept.items()}
    text = "".join(json.dumps(line) + "\n" for line in lines.values())
    (ITEMS / f"{file}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def mechanism(runs: Path, dataset: str, seed: int) -> Iterator[dict[str, str]]:
    """What each training had to learn from: its C, and its pairs."""
    for arm, (folder, row) in TESTED.items():
        cell = runs / f"{seed}-{folder}" / "results" / dataset / "smollm2"
        if row != "orce":  # "W/o gen" has no use for C
            continue
        manifest = json.loads((cell / "pairs" / "sc.manifest.json").read_text())
        preferences = preferences_of(cell / "pairs" / "sc.jsonl")
        yield {
            "set": dataset,
            "seed": str(seed),
            "reading": "stated" if arm == "orce, C stated" else "mean",  # of the reference, for C
            "distinct values of C": manifest["reference_values"],
            "tied candidates": f"{manifest['tied']:.3f}",
            "pairs": manifest["n"],
            "distinct preferences": str(len(preferences)),
            "Spearman of C with kappa": f"{manifest['reference_spearman']:.3f}",
        }


def preferences_of(pairs: Path) -> set[tuple[int, ...]]:
    """The distinct (chosen, rejected) percents of a file of pairs."""
    lines = map(json.loads, pairs.read_text().splitlines())
    return {tuple(int(re.findall(r"\d+", line[side][-1]["content"])[-1]) for side in SIDES) for line in lines}


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
