"""Say what a run has made so far, where, in what time, and what could not be read. May be asked at any time."""

import json
from collections import defaultdict
from pathlib import Path

from orce.progress import say

ROW = "  {:<24}{:>5}{:>10}{:>10}"


def add_arguments(parser):
    parser.add_argument("--tables", required=True, help="folder of the tables")
    parser.add_argument("--results", default="results")


def run(args):
    results, tables = Path(args.results), Path(args.tables)
    for line in [*made(results, tables), *times(results), *unread(results)]:
        say(line)
    say(f"compare methods on the same items: python -m orce compare {results}/DATASET/MODEL")


def made(results: Path, folder: Path) -> list[str]:
    """How many cells and tables there are, and where."""
    cells = _cells(results)
    kinds = enumerate(("datasets", "models", "methods"))
    counted = ", ".join(f"{kind} {len({path.parts[place - 4] for path in cells})}" for place, kind in kinds)
    found = sorted(path.name for path in folder.glob("*") if path.is_file())
    figures = sorted(Path(results.parent, "figures").glob("*.pdf"))
    return [
        f"cells: {len(cells)} metrics.json in {results}/" + (f" ({counted})" if cells else ""),
        f"tables: {' '.join(found)} in {folder}/" if found else f"tables: none yet in {folder}/",
        *([f"figures: {len(figures)} pictures in {figures[0].parent}/"] if figures else []),
    ]


def times(results: Path) -> list[str]:
    """Wall time of each rule's jobs from Snakemake's benchmark files, the longest in sum first."""
    jobs = defaultdict(list)
    for path in results.glob("benchmarks/*/*.tsv"):
        jobs[path.parent.name].append((path.stat().st_mtime, _seconds(path)))
    if not jobs:
        return [f"time: no finished job in {results}/benchmarks/"]
    every = [job for rule in jobs.values() for job in rule]
    total = sum(seconds for _, seconds in every)
    lines = [f"time: {_minutes(_covered(every))} minutes with a job at work, {_minutes(total)} of jobs in all"]
    lines.append(ROW.format("rule", "jobs", "minutes", "longest"))
    for rule, done in sorted(jobs.items(), key=lambda item: -sum(seconds for _, seconds in item[1])):
        seconds = [spent for _, spent in done]
        lines.append(ROW.format(rule, len(done), _minutes(sum(seconds)), _minutes(max(seconds))))
    return lines


def unread(results: Path) -> list[str]:
    """Texts that no reader could read, of how many items, and the cells that have them."""
    counts = {path: json.loads(path.read_text()) for path in _cells(results)}
    lines = []
    for what in ("answer", "confidence"):
        by_cell = {path: metrics["n_unparsed"][what] for path, metrics in counts.items()}
        items = sum(metrics["n"] for metrics in counts.values())
        lines.append(f"unread: {sum(by_cell.values())} of {items} {what}s")
        for path, count in sorted(by_cell.items(), key=lambda item: -item[1])[:3]:
            if count:
                lines.append(f"  {path.parent.relative_to(results)}: {count} of {counts[path]['n']}")
    return lines


def _cells(results: Path) -> list[Path]:
    return sorted(results.glob("*/*/*/metrics.json"))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f}"


def _covered(jobs: list[tuple[float, float]]) -> float:
    """Seconds in which at least one job was at work, from (end, seconds): pauses between runs do not count."""
    covered, until = 0.0, float("-inf")
    for start, end in sorted((end - seconds, end) for end, seconds in jobs):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered


def _seconds(path: Path) -> float:
    """Wall seconds of the last attempt of a job."""
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    return float(rows[-1][header.index("s")])
