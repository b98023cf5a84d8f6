"""Confidence LLMs that share their base serve requests, of many datasets and methods, from one start."""

from orce import work
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
    work.serve(pieces, options["chunk"], Readers(options))


class Readers:
    """The reader of the confidence LLM that a piece names; one at a time, loaded when first needed."""

    def __init__(self, options: dict):
        self.options, self.reader, self.key = options, None, None

    def __call__(self, piece: work.Piece):
        from orce import confidence, language_model

        weights = piece.request["weights"]
        if weights != self.key or self.reader is None:
            self.reader = None
            say(f"[{piece.label}] loading {weights or 'the untrained model'}")
            lm = language_model.load(piece.request["model"], weights)
            self.reader, self.key = confidence.Reader(lm, self.options["batch_size"]), weights
        return self.reader
