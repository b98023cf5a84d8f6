"""Draw the pictures of a run: reliability and risk-coverage of each cell, and the reward."""

from pathlib import Path

from orce.config import pictures
from orce.errors import BadInput
from orce.reports import figures
from orce.runtime.progress import Progress
from orce.stage_settings import Pictures

Settings = Pictures


def add_arguments(parser):
    parser.add_argument("--results", default="results")
    parser.add_argument("--out", required=True, help="folder of the pictures")


def run(plan: Pictures, args):
    if not Path(args.results).is_dir():
        raise BadInput(f"{args.results} is not a folder; --results names the folder of a finished run")
    progress = Progress("figures", len(pictures.names(plan)) * len(figures.METADATA))
    for number, _ in enumerate(figures.build(plan, args.results, args.out), 1):
        progress.update(number)
