"""Released items of a cell, one line a test question, then the page: ``python -m evidence.decisive release``."""

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from evidence.decisive import report, run, told
from evidence.decisive.contrasts import ITEMS
from orce.artefacts import store
from orce.evaluation import metrics

FREE = ("agreement", "semantic_entropy", "sequence_probability", "likelihood")
PROBED = ("probe_judge", "probe", told.MIX)


def items(cell: run.Cell) -> list[dict]:
    """{id, group, answer, correct, kappa, confidences} of each test question; an arm that is not finished is left out."""
    with contextlib.chdir(cell.folder):
        drawn = {row["id"]: row for row in store.read(cell.cell.samples, ("id", "split")) if row["split"] == "test"}
        source = Path(cell.config.datasets[cell.dataset].source.get("path", ""))
        asked = {split: _asked(source / f"{split}.jsonl") for split in ("train", "test")}
        rows = _arms(cell)
        training = [row for row in store.read(cell.cell.samples, ("id", "split")) if row["split"] in run.TRAINING]
        rows["group_mean"], rows["bag_of_words"] = controls(training, [*drawn.values()], asked)
    made = []
    for name, row in drawn.items():
        greedy = row["greedy"]
        said = {arm: round(float(of[name]), 6) for arm, of in rows.items()}
        one = {"id": name, "group": asked["test"][name]["group"], "answer": greedy["answer"]}
        made.append(
            one | {"correct": bool(greedy["correct"]), "kappa": float(np.mean(row["correct"])), "confidences": said}
        )
    return made


def _asked(path: Path) -> dict[str, dict]:
    return {row["id"]: row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def _arms(cell: run.Cell) -> dict[str, dict[str, float]]:
    """{arm: {id: confidence}}: a trained judge's mean under its name, its statement as NAME:stated."""
    found: dict[Any, Any] = {}
    for arm in (*FREE, *PROBED, *run.TRAINED, *run.EXPLORED):
        path = cell.stated(arm, "test")
        if not path.exists() or (arm in run.TRAINED and not cell.stated(arm, "validation").exists()):
            continue
        rows = list(store.read(str(path), ("id",)))
        found[arm] = _read(rows)
        if arm in (*run.TRAINED, *run.EXPLORED):
            found[f"{arm}:stated"] = {row["id"]: 0.5 if row["stated"] is None else row["stated"] for row in rows}
        if arm in run.TRAINED:
            validation = list(store.read(str(cell.stated(arm, "validation")), ("id",)))
            right, value = [row["correct"] for row in validation], [run._reading(row) for row in validation]
            found[arm, "validation"] = metrics.METRICS["aurc"](np.array(value), np.array(right))
        stacked = cell.stated(f"stack-{arm}", "test").with_suffix(".json")
        if stacked.exists():
            found[f"stack-{arm}"] = {row["id"]: row["confidence"] for row in json.loads(stacked.read_text())}
    for arm, method in run.TOLD.items():
        path = Path(told.place(cell).folder, method, "test.jsonl")
        if path.exists():
            found[arm] = _read(store.read(str(path), ("id",)))
    scored = {key[0]: found.pop(key) for key in [*found] if isinstance(key, tuple)}
    if scored:
        best = min(scored, key=scored.__getitem__)
        found["best"], found["stack-best"] = found[best], found[f"stack-{best}"]
    return found


def _read(rows: list[dict]) -> dict[str, float]:
    return {row["id"]: run._reading(row) for row in rows}


def controls(training: list[dict], test: list[dict], asked: dict) -> tuple[dict, dict]:
    """The mean kappa of the question's group in training, and a logistic bag of words of question and answer."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    kappas = [float(np.mean(row["correct"])) for row in training]
    groups = [asked["train"][row["id"]]["group"] for row in training]
    means = {
        group: float(np.mean([k for k, g in zip(kappas, groups, strict=True) if g == group])) for group in set(groups)
    }
    overall = float(np.mean(kappas))
    mean = {row["id"]: means.get(asked["test"][row["id"]]["group"], overall) for row in test}
    text = lambda row, split: f"{asked[split][row['id']]['question']} {_first(row)}"
    words = CountVectorizer(binary=True)
    x = words.fit_transform([text(row, "train") for row in training])
    right = [bool(row["correct"][0]) for row in training]
    model = LogisticRegression(max_iter=1000).fit(x, right)
    values = model.predict_proba(words.transform([text(row, "test") for row in test]))[:, 1]
    return mean, dict(zip([row["id"] for row in test], values.tolist(), strict=True))


def _first(row: dict) -> str:
    return str(row["greedy"]["answer"] if row["split"] == "test" else row["answers"][0])


def write(names: list[str], seeds: list[int]) -> None:
    """ITEMS/CELL-SEED.jsonl.gz of every cell that has its probes, their digests, and the page's tables and picture."""
    for name in names:
        for seed in seeds:
            cell = run.Cell.of(name, seed)
            if not (cell.folder / cell.stated("probe_judge", "test")).exists():
                continue
            lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in items(cell))
            (ITEMS / f"{name}-{seed}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    (ITEMS / report.SUMS).write_text(report.sums(), encoding="ascii")
    report.write()
