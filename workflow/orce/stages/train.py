"""Train the confidence LLM of a method with its own training (a baseline, or a module named in the config)."""

import os
from pathlib import Path

import msgspec

from orce import methods
from orce.answers import realised
from orce.errors import BadInput
from orce.stage_settings import Train, of_training

Settings = Train


def add_arguments(parser):
    realised.add_arguments(parser)
    parser.add_argument("--out", required=True, help="folder of the trained model")


def run(settings: Train, args):
    pairs = msgspec.to_builtins(realised.from_arguments(args, settings))
    methods.load(settings.module).train(pairs, of_training(settings), args.out)
    first = os.environ.get("RANK", "0") == "0"  # of several processes, it alone writes
    if first and not Path(args.out, "manifest.json").is_file():
        raise BadInput(
            f"{settings.module} train(): left no {args.out}/manifest.json; expected what orce.training.sft.train leaves there "
            "(docs/extending.md)"
        )
