"""Draw and tabulate which confidence ranks how well, beside what it needs: access, passes, labels."""

from orce.reports import frontier
from orce.runtime.progress import say
from orce.stage_settings import Frontier

Settings = Frontier


def add_arguments(parser):
    parser.add_argument("--metrics", required=True, help="the leaderboard's metrics.csv")
    parser.add_argument("--picture", required=True)
    parser.add_argument("--out", required=True, help="the table, as Markdown")


def run(settings: Frontier, args):
    frontier.write(args.metrics, settings.needs, args.picture, args.out)
    say(f"[frontier] {args.picture}, {args.out}")
