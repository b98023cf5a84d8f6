"""Report a run's results so far, where they are, and unreadable outputs. Works at any time."""

from pathlib import Path

from orce.reports import metrics_file
from orce.runtime.process import say


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
    for what in ("answer", "confidence"):
        unread = {path: getattr(one.n_unparsed, what) for path, one in metrics.items()}
        say(f"unread: {sum(unread.values())} of {sum(one.n for one in metrics.values())} {what}s")
        for path in sorted(filter(unread.get, unread), key=lambda path: -unread[path])[:3]:
            say(f"  {path.parent.relative_to(results)}: {unread[path]} of {metrics[path].n}")
    for cell in sorted({path.parent.parent for path in metrics}):
        for line in metrics_file.rows_so_far(cell):
            say(line)
    say(f"compare methods on the same items: python -m orce compare {results}/DATASET/MODEL")
