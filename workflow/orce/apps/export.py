"""A cell's samples and confidences as a data set for the Hugging Face hub: Parquet files and a card."""

from pathlib import Path

from orce.apps import push
from orce.artefacts import files
from orce.errors import BadInput
from orce.runtime.progress import say


def add_arguments(parser):
    parser.add_argument("cell", help="results/DATASET/MODEL of a run")
    parser.add_argument("--out", required=True, help="the folder to make")
    parser.add_argument("--questions", action="store_true", help="with the questions and references of the source")
    parser.add_argument("--license", metavar="ID", default="other", help="the hub's id of a licence (default: other)")
    parser.add_argument("--repo", metavar="ID", help="upload the folder to this data set on the hub")
    parser.add_argument("--private", action="store_true", help="make a new repository private")


def run(args):
    from orce.apps.cards import data_card

    cell, out = Path(args.cell).resolve(), Path(args.out)
    if out.exists():
        raise BadInput(f"{out} exists; name a new folder")
    with files.new_folder(out) as work:
        n, methods = data_card.make(cell, work, args.license, args.questions)
    say(f"[export] {out} is ready: {n} questions, {methods} methods")
    if args.repo:
        push.upload(out, args.repo, args.private, "dataset")
