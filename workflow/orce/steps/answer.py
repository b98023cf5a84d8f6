"""The answer LLM serves requests, of many datasets and methods, from one engine start."""

from orce import engines, work
from orce.progress import say
from orce.steps import settings


def add_arguments(parser):
    parser.add_argument("--requests", nargs="+", required=True)
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th item, from the I-th")
    parser.add_argument("--engine", required=True, help="a JSON object: what changes the speed and not the texts")


def run(args):
    shard, shards = map(int, args.shard.split("/"))
    options = settings(args.engine)
    pieces = [work.piece(work.load(path), shard, shards) for path in args.requests]
    work.serve(pieces, options["chunk"], key, lambda mine: start(mine, options))


def key(request: dict) -> tuple:
    return request["model"], request["engine"]


def start(pieces: list[work.Piece], options: dict):
    """The engine that generates for `pieces`, as large as the longest of their prompts needs."""
    request = pieces[0].request
    whole = request["model"] | options | request["engine"]
    sizes = [engines.longest(whole, one.prompts, work.kind(one.request).max_tokens(one.request)) for one in pieces]
    say(f"[{pieces[0].label}] starting the engine {whole['name']}")
    return engines.get(whole["name"]).load(whole, max((size for size in sizes if size is not None), default=None))
