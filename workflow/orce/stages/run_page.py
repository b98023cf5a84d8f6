"""Write one page about a run: commit, packages, seeds, seconds by rule, cell by cell."""

from pathlib import Path

from orce.artefacts import files
from orce.reports import cell_metrics, run_report
from orce.runtime.progress import say


def add_arguments(parser):
    parser.add_argument("--metrics", nargs="+", required=True, help="metrics.json files of the run")
    parser.add_argument("--results", default="results", help="folder with benchmarks, manifests, overlap reports")
    parser.add_argument("--out", required=True)


def run(args):
    text = run_report.page(cell_metrics.collect(args.metrics), Path(args.results))
    with files.atomic(args.out) as handle:
        handle.write(text)
    say(f"[run-page] {args.out}")
