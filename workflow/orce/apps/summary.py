"""Report a run's results so far, where they are, the time they took, and unreadable outputs. Works at any time."""

from pathlib import Path

from orce.reports import benchmarks, cell_metrics, so_far
from orce.runtime.progress import say

LINE = "  {:<24}{:>5}{:>10}{:>10}"


def add_arguments(parser):
    parser.add_argument("--tables", required=True, help="folder of the tables")
    parser.add_argument("--results", default="results")
    parser.add_argument("--figures", default="figures")


def run(args):
    results = Path(args.results)
    metrics = {path: cell_metrics.read(path, current=False) for path in sorted(results.glob("*/*/*/metrics.json"))}
    kinds = {"datasets": -4, "models": -3, "methods": -2}
    counts = ", ".join(f"{kind} {len({path.parts[i] for path in metrics})}" for kind, i in kinds.items())
    say(f"cells: {len(metrics)} metrics.json in {results}/" + (f" ({counts})" if metrics else ""))
    tables = sorted(path.name for path in Path(args.tables).glob("*") if path.is_file())
    say(f"tables: {' '.join(tables) or 'none yet'} in {Path(args.tables)}/")
    if figures := sorted(Path(args.figures).glob("*.pdf")):
        say(f"figures: {len(figures)} in {Path(args.figures)}/")
    costs = benchmarks.costs(results)
    if costs:
        at_work, total = (
            f"{seconds / 60:.1f}" for seconds in (benchmarks.at_work(results), sum(c.seconds for c in costs))
        )
        say(f"time: {at_work} minutes with a job at work, {total} of jobs in all")
        say(LINE.format("rule", "jobs", "minutes", "longest"))
        for cost in costs:
            say(LINE.format(cost.rule, cost.jobs, f"{cost.seconds / 60:.1f}", f"{cost.longest / 60:.1f}"))
    else:
        say(f"time: no finished job in {results}/benchmarks/")
    for what in ("answer", "confidence"):
        unread = {path: getattr(one.n_unparsed, what) for path, one in metrics.items()}
        say(f"unread: {sum(unread.values())} of {sum(one.n for one in metrics.values())} {what}s")
        for path in sorted(filter(unread.get, unread), key=lambda path: -unread[path])[:3]:
            say(f"  {path.parent.relative_to(results)}: {unread[path]} of {metrics[path].n}")
    for cell in sorted({path.parent.parent for path in metrics}):
        for line in so_far.rows(cell):
            say(line)
    say(f"compare methods on the same items: python -m orce compare {results}/DATASET/MODEL")
