"""Put every metric of every cell into one tidy table, and a page that sorts and filters it."""

from pathlib import Path

from orce.artefacts import files
from orce.runtime.progress import say
from orce.stage_settings import Leaderboard

Settings = Leaderboard


def add_arguments(parser):
    parser.add_argument("--metrics", nargs="+", required=True, help="metrics.json files; extra.json is beside each")
    parser.add_argument("--csv", required=True)
    parser.add_argument("--html", required=True)


def run(settings: Leaderboard, args):
    from orce.reports import cell_metrics, leaderboard_page  # here, as pandas comes with an extra

    rows = []
    for path, metrics in cell_metrics.collect(args.metrics).items():
        extra = cell_metrics.read(Path(path).with_name("extra.json"))
        rows += leaderboard_page.rows(metrics, extra, settings.labels.get(path, ""))
    table = leaderboard_page.table(rows)
    with files.atomic(args.csv) as handle:
        handle.write(leaderboard_page.to_csv(table))
    with files.atomic(args.html) as handle:
        handle.write(leaderboard_page.page(table, settings.models))
    say(f"[leaderboard] {len(table)} values in {args.csv}; open {args.html} in a browser")
