"""Does the alignment reach on its own training pairs what its reward asks for: confidences in the order of kappa?

Each DPO round begins with reading the model that the round before it left, on the RL pairs. Round 1 reads the warm
start. So the readings of a run with several rounds say what each round made of the pairs that it was trained on.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from evidence.runs import MODEL, VARIANT_DATASETS, Run
from orce.evaluation import metrics
from orce.llm.chat import expected
from orce.runtime import files

VARIANT = "rounds"


def readings(run: Run, dataset: str) -> Iterator[tuple[int, Path]]:
    """(rounds behind it, candidates.jsonl) of each reading of the RL pairs."""
    cell = run.folder / "results" / dataset / MODEL
    found = {1: cell / "candidates.jsonl"}
    found |= {int(path.parent.name): path for path in cell.glob("rounds/dpo/*/candidates.jsonl")}
    yield from ((number - 1, path) for number, path in sorted(found.items()) if path.exists())


def correlations(path: Path) -> tuple[float | None, float | None]:
    """Spearman correlation with kappa of what the model states, and of the mean of its distribution."""
    records = files.read_jsonl(path, ("kappa", "stated", "logprobs"))
    kappa = [record["kappa"] for record in records]
    mean = [expected(record["logprobs"]) for record in records]
    return metrics.spearman([record["stated"] for record in records], kappa)[0], metrics.spearman(mean, kappa)[0]


def by_round(runs: Iterable[Run]) -> dict[tuple[str, int], list[tuple]]:
    """{(dataset, rounds behind it): correlations of each seed}."""
    found: dict[tuple[str, int], list[tuple]] = {}
    for run in runs:
        for dataset in VARIANT_DATASETS if run.variant == VARIANT else ():
            for number, path in readings(run, dataset):
                found.setdefault((dataset, number), []).append(correlations(path))
    return dict(sorted(found.items()))
