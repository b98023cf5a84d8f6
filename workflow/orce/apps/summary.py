"""Report a run's results so far, where they are, the time they took, and unreadable outputs. Works at any time."""

import csv
from pathlib import Path

from orce.reports import metrics_file
from orce.runtime.progress import say

LINE = "  {:<24}{:>5}{:>10}{:>10}"


def add_arguments(parser):
    parser.add_argument("--tables", required=True, help="folder of the tables")
    parser.add_argument("--results", default="results")
    parser.add_argument("--figures", default="figures")


def run(args):
    results = Path(args.results)
    metrics = {path: metrics_file.read(path, current=False) for path in sorted(results.glob("*/*/*/metrics.json"))}
    kinds = {"datasets": -4, "models": -3, "methods": -2}
    counts = ", ".join(f"{kind} {len({path.parts[i] for path in metrics})}" for kind, i in kinds.items())
    say(f"cells: {len(metrics)} metrics.json in {results}/" + (f" ({counts})" if metrics else ""))
    tables = sorted(path.name for path in Path(args.tables).glob("*") if path.is_file())
    say(f"tables: {' '.join(tables) or 'none yet'} in {Path(args.tables)}/")
    if figures := sorted(Path(args.figures).glob("*.pdf")):
        say(f"figures: {len(figures)} in {Path(args.figures)}/")
    for line in times(results):
        say(line)
    for what in ("answer", "confidence"):
        unread = {path: getattr(one.n_unparsed, what) for path, one in metrics.items()}
        say(f"unread: {sum(unread.values())} of {sum(one.n for one in metrics.values())} {what}s")
        for path in sorted(filter(unread.get, unread), key=lambda path: -unread[path])[:3]:
            say(f"  {path.parent.relative_to(results)}: {unread[path]} of {metrics[path].n}")
    for cell in sorted({path.parent.parent for path in metrics}):
        for line in metrics_file.rows_so_far(cell):
            say(line)
    say(f"compare methods on the same items: python -m orce compare {results}/DATASET/MODEL")


def times(results: Path) -> list[str]:
    """Minutes of each rule's jobs from Snakemake's benchmarks, the largest sum first; pauses between runs do not count."""
    seconds: dict[str, list[float]] = {}
    spans = []
    for path in results.glob("benchmarks/*/*.tsv"):
        with open(path, encoding="utf-8", newline="") as handle:  # a job too short to be measured has - or NA
            texts = [row["s"] for row in csv.DictReader(handle, delimiter="\t")]
        took = [float(text) if text[:1].isdigit() else 0.0 for text in texts]
        seconds.setdefault(path.parent.name, []).extend(took)
        end = path.stat().st_mtime
        spans.append((end - sum(took), end))
    if not seconds:
        return [f"time: no finished job in {results}/benchmarks/"]
    at_work, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        at_work += max(0.0, end - max(start, until))
        until = max(until, end)
    total = sum(map(sum, seconds.values()))
    lines = [f"time: {at_work / 60:.1f} minutes with a job at work, {total / 60:.1f} of jobs in all"]
    lines.append(LINE.format("rule", "jobs", "minutes", "longest"))
    for rule, took in sorted(seconds.items(), key=lambda item: (-sum(item[1]), item[0])):
        lines.append(LINE.format(rule, len(took), f"{sum(took) / 60:.1f}", f"{max(took) / 60:.1f}"))
    return lines
