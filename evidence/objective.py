"""Does the alignment reach on its own training pairs what its reward asks for: confidences in the order of kappa?

Each DPO round begins by sampling candidates for the RL pairs from the model that the round before it left; round 1
samples from the warm start. So the candidates of a run with several rounds show what each round made of the pairs that
it was trained on.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from evidence.runs import MODEL, VARIANT_DATASETS, Run
from orce.alignment.registry import PAPER
from orce.artefacts import files
from orce.config.cells import Cell
from orce.evaluation import metrics
from orce.llm.chat import expected

VARIANT = "rounds"


def readings(run: Run, dataset: str) -> Iterator[tuple[int, Path]]:
    """(rounds before it, candidates.jsonl) of each round."""
    for number in range(1, run.config().dpo.rounds + 1):
        path = run.folder / Cell(dataset, MODEL).candidates(PAPER, number)
        if path.exists():
            yield number - 1, path


def correlations(path: Path) -> tuple[float | None, float | None]:
    """Spearman correlation with kappa of what the model states, and of the mean of its distribution."""
    records = files.read_jsonl(path, ("kappa", "stated", "logprobs"))
    kappa = [record["kappa"] for record in records]
    mean = [expected(record["logprobs"]) for record in records]
    return metrics.spearman([record["stated"] for record in records], kappa)[0], metrics.spearman(mean, kappa)[0]


def by_round(runs: Iterable[Run]) -> dict[tuple[str, int], list[tuple]]:
    """{(dataset, rounds before it): correlations of each seed}."""
    found: dict[tuple[str, int], list[tuple]] = {}
    for run in runs:
        for dataset in VARIANT_DATASETS if run.variant == VARIANT else ():
            for number, path in readings(run, dataset):
                found.setdefault((dataset, number), []).append(correlations(path))
    return dict(sorted(found.items()))
