"""Warm-start the confidence LLM: SFT to state kappa for the realised answer (section 3.2)."""

from orce.answers import realised
from orce.llm.chat import to_percent
from orce.records import Taught
from orce.stage_settings import Sft, of_training

Settings = Sft

# `reversed` is an experiment: can the alignment repair a warm start that ranks in reverse order?
TARGETS = {"kappa": lambda kappa: kappa, "reversed": lambda kappa: 1 - kappa}


def add_arguments(parser):
    realised.add_arguments(parser)
    parser.add_argument("--out", required=True, help="folder of the trained model")


def run(settings: Sft, args):
    from orce.training import sft

    data = realised.from_arguments(args, settings)
    target = TARGETS[settings.stage.target]
    examples: list[Taught] = [{"prompt": pair.prompt, "percent": to_percent(target(pair.kappa))} for pair in data]
    sft.train(examples, of_training(settings), args.out)
