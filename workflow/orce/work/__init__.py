"""Work for an engine: requests, cut into pieces that are kept on disk by what they depend on.

A request is a small JSON file: its `kind` names the module here that knows its items and how to serve them.

    items(request) -> list           what there is to do, JSON-serialisable, in the order of the result
    prompts(chunk, request) -> list  the messages that the LLM reads for some items
    serve(chunk, source, request)    one record an item; `source` generates texts or reads confidences
    weights(request) -> str|None     folder of the confidence LLM that reads (None: the model's own weights)

A piece is one shard of a request. Its file name carries a digest of the request, the items and the weights, so a piece
that is there is right and is never computed again, whatever a rule's time stamps say; delete ``pieces`` to start over.
"""

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orce.runtime import files
from orce.runtime.progress import Progress, say
from orce.steps import settings

KINDS = {
    "samples": "orce.answers.sample",
    "asked": "orce.answers.elicit",
    "drawn": "orce.confidence.candidates",
    "stated": "orce.confidence.state",
}


@dataclass
class Piece:
    """One shard of a request: its items and the file that holds, once whole, one record for each."""

    request: dict
    items: list
    path: Path

    @property
    def label(self) -> str:
        return self.request["label"]

    def prompts(self) -> Iterator:
        """The messages that the LLM reads; rendered when asked for, which few engines do beforehand."""
        yield from kind(self.request).prompts(self.items, self.request)

    def records(self) -> list[dict]:
        if not self.path.exists():
            raise files.BadInput(
                f"{self.path}: not there; the job that serves the requests of {self.request['model']['source']} makes "
                "it. If something upstream was changed by hand, run the same command once more"
            )
        return files.read_jsonl(self.path)


def load(path) -> dict:
    """The request in a file."""
    try:
        request = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise files.BadInput(f"{path}: not a request ({error}); delete it and run the workflow again") from None
    return request


def kind(request: dict):
    return importlib.import_module(KINDS[request["kind"]])


def piece(request: dict, shard: int = 0, shards: int = 1) -> Piece:
    """Every `shards`-th item of a request, from the `shard`-th."""
    module = kind(request)
    items = module.items(request)[shard::shards]
    folder = module.weights(request)
    tag = files.digest(request, items, None if folder is None else files.weights_digest(folder))
    name = f"{request['what']}.{shard}-of-{shards}.{tag}.jsonl"
    return Piece(request, items, Path(request["folder"]) / "pieces" / name)


def records(request: dict, shards: int) -> list[dict]:
    """The records of all shards together, in the order of the items."""
    parts = [piece(request, shard, shards).records() for shard in range(shards)]
    return [parts[i % shards][i // shards] for i in range(sum(map(len, parts)))]


class Sources:
    """What serves pieces, one at a time, opened when a piece needs it: `open(pieces)` with all that it will serve.

    Pieces whose `key(request)` is the same share one.
    """

    def __init__(self, pieces: list[Piece], key, open):
        self.pieces, self.key, self.open = pieces, key, open
        self.current, self.current_key = None, None

    def __call__(self, piece: Piece):
        key = self.key(piece.request)
        if self.current is None or key != self.current_key:
            self.close()
            mine = [one for one in self.pieces if self.key(one.request) == key]
            self.current, self.current_key = self.open(mine), key
        return self.current

    def close(self) -> None:
        if self.current is not None:
            self.current.close()
        self.current = None


def add_arguments(parser) -> None:
    """The arguments of a step that serves requests; `run` reads them."""
    parser.add_argument("--requests", nargs="+", required=True)
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th item, from the I-th")
    parser.add_argument("--speed", required=True, help="a JSON object: what changes the speed and not the result")


def run(args, key, start) -> None:
    """Serve the requests of a command line: `key(request)` and `start(pieces, speed)` as in `Sources`."""
    shard, shards = map(int, args.shard.split("/"))
    speed = settings(args.speed)
    pieces = [piece(load(path), shard, shards) for path in args.requests]
    serve(pieces, speed["chunk"], key, lambda mine: start(mine, speed))


def serve(pieces: list[Piece], chunk: int, key, open) -> None:
    """Compute the pieces that are not there; see `Sources` for `key` and `open`."""
    missing = [one for one in pieces if not one.path.exists()]
    for one in pieces:
        if one not in missing:
            say(f"[{one.label}] {len(one.items)}/{len(one.items)}  already on disk")
    sources = Sources(missing, key, open)
    try:
        for one in missing:
            _serve(one, chunk, sources)
    finally:
        sources.close()


def _serve(one: Piece, chunk: int, source) -> None:
    module = kind(one.request)

    def work(items):
        return module.serve(items, source(one), one.request)

    progress = Progress(one.label, len(one.items))
    for done in files.in_chunks(one.path, one.items, chunk, "part", work):
        progress.update(done)
