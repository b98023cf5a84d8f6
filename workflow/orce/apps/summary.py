"""Report a run's results so far, where they are, the time they took, and unreadable outputs. Works at any time."""

from pathlib import Path

from orce.reports import benchmarks, cell_metrics, so_far
from orce.runtime.progress import say

ROW = "  {:<24}{:>5}{:>10}{:>10}"


def add_arguments(parser):
    parser.add_argument("--tables", required=True, help="folder of the tables")
    parser.add_argument("--results", default="results")
    parser.add_argument("--figures", default="figures")


def run(args):
    results, tables = Path(args.results), Path(args.tables)
    for line in [*made(results, tables, Path(args.figures)), *times(results), *unread(results)]:
        say(line)
    for cell in sorted({path.parent.parent for path in _cells(results)}):
        for line in so_far.rows(cell):
            say(line)
    say(f"compare methods on the same items: python -m orce compare {results}/DATASET/MODEL")


def made(results: Path, folder: Path, pictures: Path) -> list[str]:
    """How many cells, tables and figures there are, and where."""
    cells = _cells(results)
    kinds = enumerate(("datasets", "models", "methods"))
    counted = ", ".join(f"{kind} {len({path.parts[place - 4] for path in cells})}" for place, kind in kinds)
    found = sorted(path.name for path in folder.glob("*") if path.is_file())
    drawn = sorted(pictures.glob("*.pdf"))
    return [
        f"cells: {len(cells)} metrics.json in {results}/" + (f" ({counted})" if cells else ""),
        f"tables: {' '.join(found)} in {folder}/" if found else f"tables: none yet in {folder}/",
        *([f"figures: {len(drawn)} in {pictures}/"] if drawn else []),
    ]


def times(results: Path) -> list[str]:
    """Wall time of each rule's jobs from Snakemake's benchmark files, the largest sum first."""
    spent = benchmarks.costs(results)
    if not spent:
        return [f"time: no finished job in {results}/benchmarks/"]
    at_work, total = benchmarks.at_work(results), sum(cost.seconds for cost in spent)
    return [
        f"time: {_minutes(at_work)} minutes with a job at work, {_minutes(total)} of jobs in all",
        ROW.format("rule", "jobs", "minutes", "longest"),
        *(ROW.format(cost.rule, cost.jobs, _minutes(cost.seconds), _minutes(cost.longest)) for cost in spent),
    ]


def unread(results: Path) -> list[str]:
    """Counts of unreadable answers and confidences among all items, and the cells with most of them."""
    counts = {path: cell_metrics.read(path, current=False) for path in _cells(results)}
    items = sum(metrics.n for metrics in counts.values())
    lines = []
    for what in ("answer", "confidence"):
        by_cell = {path: getattr(metrics.n_unparsed, what) for path, metrics in counts.items()}
        lines.append(f"unread: {sum(by_cell.values())} of {items} {what}s")
        for path, count in sorted(by_cell.items(), key=lambda item: -item[1])[:3]:
            if count:
                lines.append(f"  {path.parent.relative_to(results)}: {count} of {counts[path].n}")
    return lines


def _cells(results: Path) -> list[Path]:
    return sorted(results.glob("*/*/*/metrics.json"))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f}"
