"""Align the confidence LLM on preference pairs by DPO (section 3.3)."""

from orce.artefacts import store
from orce.records import Pair
from orce.stage_settings import Dpo, of_training

Settings = Dpo


def add_arguments(parser):
    parser.add_argument("--pairs", required=True)
    parser.add_argument("--sft", required=True, help="folder of the reference: the warm-started confidence LLM")
    parser.add_argument("--start", help="folder to start from (default: the reference)")
    parser.add_argument("--out", required=True, help="folder of the trained model")


def run(settings: Dpo, args):
    from orce.training import dpo

    pairs = store.records(args.pairs, Pair)
    dpo.train(pairs, of_training(settings), args.sft, args.start or args.sft, args.out)
