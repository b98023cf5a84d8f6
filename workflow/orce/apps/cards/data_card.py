"""A cell's samples and confidences as a data set in the hub's layout: Parquet files, and a card that says what they are.

`datasets.load_dataset(FOLDER, "samples")` and `load_dataset(FOLDER, METHOD)` read it.
"""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCardData
from msgspec import UNSET

from orce.answers.surrogate import kappa
from orce.apps.cards import model as card
from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Confidence, Sample
from orce.reports import cell_metrics
from orce.tasks.parts.prompt_files import read_prompts
from orce.text.prompting import environment

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
Record = dict[str, Any]  # a row of Parquet
Questions = dict[tuple[str, str], Record]  # {(split, id): parts of the question}
QUESTION = ("question", "context", "choices", "reference")


def gather(cell: Path) -> tuple[list[Sample], dict[str, list[Confidence]]]:
    """(records of samples.jsonl, {method: records of its confidences.jsonl}) of results/DATASET/MODEL.

    Raises BadInput if it is not such a folder.
    """
    samples = cell / "samples.jsonl"
    if not samples.exists():
        raise BadInput(f"{cell}: no samples.jsonl; expected results/DATASET/MODEL of a run")
    paths = sorted(cell.glob("*/confidences.jsonl"))
    return store.records(samples, Sample), {path.parent.name: store.records(path, Confidence) for path in paths}


def questions(cell: Path) -> Questions:
    """The questions of a cell's frozen prompts; choices and reference as JSON, by task they differ."""
    asked = {}
    for path in sorted((cell.parent / "prompts").glob("*.jsonl")):
        for one in read_prompts(path):
            parts = {key: one[key] for key in QUESTION}
            parts |= {key: json.dumps(parts[key], ensure_ascii=False) for key in ("choices", "reference")}
            asked[path.stem, one["id"]] = parts
    return asked


def sample_rows(samples: list[Sample], split: str, asked: Questions) -> list[Record]:
    """Rows {id, [question ...], answers, raw, correct, kappa, greedy_answer, greedy_raw, greedy_correct} of a split."""
    rows = []
    for one in (record for record in samples if record.split == split):
        said = {f"greedy_{key}": getattr(one.greedy, key, None) for key in ("answer", "raw", "correct")}
        given = {key: getattr(one, key) for key in ("answers", "raw", "correct")}
        rows.append({"id": one.id} | asked.get(one.key, {}) | given | {"kappa": kappa(one.correct)} | said)
    return rows


def confidence_rows(records: list[Confidence]) -> list[Record]:
    """Rows {id, answer, correct, confidence, mean, raw}; what was said twice, or in several answers, is JSON."""
    return [
        {key: getattr(one, key) for key in ("id", "answer", "correct", "confidence")}
        | {"mean": one.mean if one.mean is not UNSET else None}
        | {"raw": one.raw if isinstance(one.raw, str | None) else json.dumps(one.raw, ensure_ascii=False)}
        for one in records
    ]


def write(rows: list[Record], path: Path) -> None:
    """Rows as a Parquet file."""
    import datasets

    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_list(rows).to_parquet(path)


def front_matter(name: str, splits: list[str], methods: list[str], n: int, license: str) -> DatasetCardData:
    """The card's YAML: a configuration for the samples, and one for each method."""
    files_of = [{"split": split, "path": f"samples/{split}.parquet"} for split in splits]
    configs = [{"config_name": "samples", "data_files": files_of, "default": True}]
    configs += [
        {"config_name": method, "data_files": [{"split": "test", "path": f"confidences/{method}.parquet"}]}
        for method in methods
    ]
    size = next((label for limit, label in SIZES if n < limit), "n>1M")
    tags = ["orce", "confidence", "calibration", "uncertainty-estimation"]
    return DatasetCardData(pretty_name=name, license=license, tags=tags, size_categories=[size], configs=configs)


def text(
    cell: Path, data: DatasetCardData, samples: list[Sample], methods: dict[str, list[Confidence]], asked: bool
) -> str:
    """The whole card."""
    prompts = {
        path.name.split(".")[0]: card.Frozen.read(path) for path in (cell.parent / "prompts").glob("*.manifest.json")
    }
    manifest = cell / "samples.manifest.json"
    paths = {method: cell / method / "metrics.json" for method in methods}
    body = (
        environment(card.TEMPLATES)
        .get_template("data_card.j2")
        .render(
            dataset=cell.parent.name,
            model=cell.name,
            splits={split: sum(one.split == split for one in samples) for split in _splits(samples)},
            k=max(len(one.answers) for one in samples),
            origin={split: card.origin(found) for split, found in sorted(prompts.items())},
            spent=store.read_manifest(manifest).get("spent") if manifest.exists() else None,
            metrics={name: cell_metrics.read(path) for name, path in paths.items() if path.exists()},
            unread={name: sum(one.confidence is None for one in records) for name, records in methods.items()},
            columns=card.METRICS,
            cell=card.cell,
            asked=asked,
        )
    )
    return f"---\n{data.to_yaml()}\n---\n\n{body}\n"


def make(cell: Path, out: Path, license: str, with_questions: bool) -> tuple[int, int]:
    """Fill the folder `out`; returns (samples' records, methods)."""
    samples, methods = gather(cell)
    asked = questions(cell) if with_questions else {}
    for split in _splits(samples):
        write(sample_rows(samples, split, asked), out / "samples" / f"{split}.parquet")
    for method, records in methods.items():
        write(confidence_rows(records), out / "confidences" / f"{method}.parquet")
    name = f"{cell.parent.name}, answers and confidences of {cell.name}"
    data = front_matter(name, _splits(samples), [*methods], len(samples), license)
    (out / "README.md").write_text(text(cell, data, samples, methods, with_questions), encoding="utf-8")
    return len(samples), len(methods)


def _splits(samples: list[Sample]) -> list[str]:
    return sorted({one.split for one in samples})
