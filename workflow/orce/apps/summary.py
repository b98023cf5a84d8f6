"""Report a run's results so far, where they are, the time they took, and unreadable outputs. Works at any time."""

from pathlib import Path

from orce.reports import metrics_file
from orce.runtime.process import say

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
    by_rule: dict[str, list[float]] = {}
    spans = []
    for path in sorted(results.glob("benchmarks/*/*.tsv")):
        by_rule.setdefault(path.parent.name, []).append(seconds(path))
        spans.append((path.stat().st_mtime - seconds(path), path.stat().st_mtime))
    at_work, until = 0.0, 0.0  # seconds in which a job was at work: pauses between runs do not count
    for start, end in sorted(spans):
        at_work, until = at_work + max(0.0, end - max(start, until)), max(until, end)
    if by_rule:
        total = sum(map(sum, by_rule.values()))
        say(f"time: {at_work / 60:.1f} minutes with a job at work, {total / 60:.1f} of jobs in all")
        say(LINE.format("rule", "jobs", "minutes", "longest"))
        for rule, jobs in sorted(by_rule.items(), key=lambda item: -sum(item[1])):
            say(LINE.format(rule, len(jobs), f"{sum(jobs) / 60:.1f}", f"{max(jobs) / 60:.1f}"))
    else:
        say(f"time: no finished job in {results}/benchmarks/")
    for what in ("answer", "confidence"):
        unread = {path: getattr(one.n_unparsed, what) for path, one in metrics.items()}
        say(f"unread: {sum(unread.values())} of {sum(one.n for one in metrics.values())} {what}s")
        for path in sorted(filter(unread.get, unread), key=lambda path: -unread[path])[:3]:
            say(f"  {path.parent.relative_to(results)}: {unread[path]} of {metrics[path].n}")
    for cell in sorted({path.parent.parent for path in metrics}):
        for line in metrics_file.rows_so_far(cell):
            say(line)
    say(f"compare methods on the same items: python -m orce compare {results}/DATASET/MODEL")


def seconds(path: Path) -> float:
    """Wall time of a job from its benchmark by Snakemake, which has - or NA for one too short to be measured."""
    text = "".join(path.read_text().splitlines()[1:2]).partition("\t")[0]
    return float(text) if text[:1].isdigit() else 0.0
