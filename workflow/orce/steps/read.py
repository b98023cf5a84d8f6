"""Confidence LLMs that share their base serve requests, of many datasets and methods, from one start."""

from orce import engines, work
from orce.progress import say
from orce.steps import settings


def add_arguments(parser):
    parser.add_argument("--requests", nargs="+", required=True)
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th item, from the I-th")
    parser.add_argument("--reader", required=True, help="a JSON object: what changes the speed and not the readings")


def run(args):
    shard, shards = map(int, args.shard.split("/"))
    options = settings(args.reader)
    pieces = [work.piece(work.load(path), shard, shards) for path in args.requests]
    work.serve(pieces, options["chunk"], key, lambda mine: start(mine, options))


def key(request: dict) -> tuple:
    return request["model"], request["reader"]


def start(pieces: list[work.Piece], options: dict):
    """The reader of all confidence LLMs that `pieces` name."""
    from orce import confidence

    model, reader = key(pieces[0].request)
    adapters = sorted({one.request["weights"] for one in pieces} - {None})
    prompts = [messages for one in pieces for messages in one.prompts]
    longest = engines.longest(model | {"name": reader}, prompts, confidence.BUDGET)
    say(f"[{pieces[0].label}] starting the reader {reader} for {len(adapters)} confidence LLMs")
    return confidence.open(options | {"model": model, "engine": reader}, adapters, longest)
