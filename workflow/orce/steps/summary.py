"""Say in a few lines what a finished run left where."""

import json
from pathlib import Path

from orce.progress import say


def add_arguments(parser):
    parser.add_argument("--tables", required=True, help="folder of the tables")
    parser.add_argument("--results", default="results")


def run(args):
    folder = Path(args.tables)
    cells = sorted(Path(args.results).glob("*/*/*/metrics.json"))
    unread = [json.loads(path.read_text())["n_unparsed"] for path in cells]
    spent = sum(_seconds(path) for path in Path(args.results).glob("benchmarks/*/*.tsv"))
    say(f"{len(cells)} cells in {args.results}/, {spent / 60:.1f} minutes of jobs in all")
    say(f"unread: {sum(u['answer'] for u in unread)} answers, {sum(u['confidence'] for u in unread)} confidences")
    say(f"compare methods on the same items: python -m orce compare {args.results}/DATASET/MODEL")
    say(f"tables: {folder / 'tables.pdf'}, {folder / 'tables.html'}, {folder / '*.tex'}")


def _seconds(path: Path) -> float:
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    return sum(float(row[header.index("s")]) for row in rows)
