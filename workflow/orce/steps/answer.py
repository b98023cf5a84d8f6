"""The answer LLM serves requests, of many datasets and methods, from one engine start."""

import json

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
    running = Engines(pieces, options)
    try:
        work.serve(pieces, options["chunk"], running)
    finally:
        running.close()


class Engines:
    """The engine of the model that a piece names; one at a time, started when first needed."""

    def __init__(self, pieces: list[work.Piece], options: dict):
        self.pieces, self.options = pieces, options
        self.engine, self.key = None, None

    def __call__(self, piece: work.Piece):
        request = piece.request
        key = json.dumps([request["model"], request["engine"]], sort_keys=True)
        if key != self.key:
            self.close()
            say(f"[{piece.label}] starting the engine {request['engine']['name']}")
            self.engine = engines.get(request["engine"]["name"]).load(
                request["model"] | self.options | request["engine"]
            )
            self.key = key
        return self.engine

    def close(self) -> None:
        if hasattr(self.engine, "close"):
            self.engine.close()
        self.engine, self.key = None, None
