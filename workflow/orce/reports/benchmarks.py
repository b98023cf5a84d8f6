"""What the jobs of each rule took, from Snakemake's benchmarks."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True)
class Cost:
    """Cost of the jobs of one rule: seconds of wall clock and CPU, peak memory in MB."""

    rule: str
    jobs: int
    seconds: float
    longest: float
    cpu_seconds: float
    peak_mb: float


class Job(NamedTuple):
    """What a job took."""

    seconds: float
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
