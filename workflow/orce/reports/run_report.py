"""One page about a run: the commit, packages and seeds that made its numbers, and the time of every rule."""

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from orce.artefacts import store
from orce.reports.cell_metrics import CellMetrics
from orce.reports.tables import render


@dataclass(frozen=True)
class Cost:
    """Cost of the jobs of one rule, from Snakemake's benchmarks: seconds of wall clock and CPU, peak memory in MB."""

    rule: str
    jobs: int
    seconds: float
    longest: float
    cpu_seconds: float
    peak_mb: float


def costs(results: Path) -> list[Cost]:
    """Costs of all rules, from results/benchmarks/{rule}/*.tsv, the longest first."""
    by_rule = [_cost(folder) for folder in sorted(Path(results).glob("benchmarks/*")) if any(folder.glob("*.tsv"))]
    return sorted(by_rule, key=lambda cost: -cost.seconds)


def at_work(results: Path) -> float:
    """Seconds in which at least one job was at work, from the benchmarks: pauses between runs do not count."""
    ends = [(path.stat().st_mtime, path) for path in Path(results).glob("benchmarks/*/*.tsv")]
    covered, until = 0.0, float("-inf")
    for start, end in sorted((end - sum(job.seconds for job in _jobs(path)), end) for end, path in ends):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered


def _cost(folder: Path) -> Cost:
    jobs = [job for path in sorted(folder.glob("*.tsv")) for job in _jobs(path)]
    wall = [job.seconds for job in jobs]
    return Cost(
        rule=folder.name,
        jobs=len(jobs),
        seconds=sum(wall),
        longest=max(wall),
        cpu_seconds=sum(job.cpu_seconds for job in jobs),
        peak_mb=max(job.peak_mb for job in jobs),
    )


class Job(NamedTuple):
    """What a job took."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


def _jobs(path: Path) -> list[Job]:
    """The jobs of one benchmark of Snakemake."""
    with open(path, encoding="utf-8", newline="") as handle:
        rows = csv.DictReader(handle, delimiter="\t")
        return [Job(*(_number(row[column]) for column in ("s", "cpu_time", "max_rss"))) for row in rows]


def _number(text: str) -> float:
    """A job too short to be measured has - or NA in its benchmark."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def provenance(metrics: Iterable[CellMetrics]) -> list[tuple[str, list[tuple[str, int]]]]:
    """(what, [(value, number of cells with it)]) for commit, seed and packages: more than one value deserves a look."""
    records = [one.provenance for one in metrics if one.provenance]
    facts = {
        "git commit": Counter(record.git_commit or "unknown" for record in records),
        "seed": Counter(str(record.settings["seed"]) for record in records),
    }
    for name in sorted({name for record in records for name in record.packages}):
        facts[name] = Counter(record.packages.get(name, "not installed") for record in records)
    return [(name, values.most_common()) for name, values in facts.items()]


Facts = dict[str, Any]  # of a manifest, as its step wrote them


def manifests(results: Path, pattern: str, key: str) -> list[tuple[Path, Facts]]:
    """(path, facts) of the manifests at a pattern that have a key."""
    read = [(path, store.read_manifest(path)) for path in sorted(Path(results).glob(pattern))]
    return [(path, facts) for path, facts in read if key in facts]


def trainings(results: Path) -> list[tuple[str, Facts]]:
    """(folder, manifest) of every confidence LLM that was trained."""
    sealed = manifests(results, "*/*/*/manifest.json", "stage")
    return [(str(path.parent.relative_to(results)), facts) for path, facts in sealed]


def overlaps(results: Path) -> list[tuple[str, Facts]]:
    """(prompts of a training split, counts of its questions that are also in the test set)."""
    reports = [store.read_object(path) for path in sorted(Path(results).glob("*/overlap.json"))]
    return [(split, counts) for report in reports for split, counts in sorted(report.items())]


def gradings(results: Path) -> list[tuple[str, Facts]]:
    """(cell, what a judge and the exact grade said) of every cell that a judge graded."""
    sealed = manifests(results, "*/*/samples.manifest.json", "grading")
    return [(str(path.parent.relative_to(results)), facts["grading"]) for path, facts in sealed]


SPENT = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cut")


def served(results: Path) -> list[tuple[str, Facts]]:
    """(samples or confidences, what a server counted for them) of every step that asked one."""
    sealed = [one for depth in ("*/*", "*/*/*") for one in manifests(results, f"{depth}/*.manifest.json", "spent")]
    return [
        (str(path.relative_to(results)).replace(".manifest.json", ""), facts["spent"])
        for path, facts in sealed
        if path.parent.name != "shards"
    ]


def page(metrics: Mapping[str, CellMetrics], results: Path) -> str:
    """The HTML of the page; metrics: by path."""
    spent = costs(results)
    return (
        render.html_environment()
        .get_template("run.html.j2")
        .render(
            facts=provenance(metrics.values()),
            costs=spent,
            total=sum(cost.seconds for cost in spent),
            cells=sorted(metrics.items()),
            trainings=trainings(results),
            overlaps=overlaps(results),
            served=served(results),
            gradings=gradings(results),
            spent=SPENT,
        )
    )
