"""Train the ConfTuner baseline on the same realised pairs, labelled by the correctness of the shown answer."""

from orce.answers import realised
from orce.steps import add_settings, settings


def add_arguments(parser):
    add_settings(parser)
    realised.add_arguments(parser)
    parser.add_argument("--out", required=True, help="folder of the trained model")


def run(args):
    from orce.training import conftuner

    options = settings(args.settings)
    data = realised.from_arguments(args, options)
    conftuner.train([{"prompt": pair["prompt"], "correct": pair["correct"]} for pair in data], options, args.out)
