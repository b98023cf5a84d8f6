"""Say in a few lines what a finished run left where."""

import json
from pathlib import Path

from orce import run_page
from orce.progress import say


def add_arguments(parser):
    parser.add_argument("--tables", required=True, help="folder of the tables")
    parser.add_argument("--results", default="results")


def run(args):
    folder = Path(args.tables)
    cells = sorted(Path(args.results).glob("*/*/*/metrics.json"))
    unread = [json.loads(path.read_text())["n_unparsed"] for path in cells]
    spent = sum(cost.seconds for cost in run_page.costs(args.results))
    say(f"{len(cells)} cells in {args.results}/, {spent / 60:.1f} minutes of jobs in all")
    say(f"unread: {sum(u['answer'] for u in unread)} answers, {sum(u['confidence'] for u in unread)} confidences")
    say(f"compare methods on the same items: python -m orce compare {args.results}/DATASET/MODEL")
    say(f"tables: {folder / 'tables.pdf'}, {folder / 'tables.html'}, {folder / '*.tex'}")
