"""Work for an engine: requests, cut into pieces that are kept on disk by what they depend on.

A request is a small JSON file: its `kind` names the module here that knows its items and how to serve them.

    items(request) -> list        what there is to do, JSON-serialisable, in the order of the result
    serve(chunk, source, request) one record an item; `source` generates texts or reads confidences
    weights(request) -> str|None  folder of the confidence LLM that reads (None: the model's own weights)

A piece is one shard of a request. Its file name carries a digest of the request, the items and the weights, so a piece
that is there is right and is never computed again, whatever a rule's time stamps say; delete ``pieces`` to start over.
"""

import importlib
import json
from dataclasses import dataclass
from pathlib import Path

from orce import files
from orce.progress import Progress, say


@dataclass
class Piece:
    """One shard of a request: its items and the file that holds, once whole, one record for each."""

    request: dict
    items: list
    path: Path

    @property
    def label(self) -> str:
        return self.request["label"]

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
    return importlib.import_module(f"orce.work.{request['kind']}")


def piece(request: dict, shard: int = 0, shards: int = 1) -> Piece:
    """Every `shards`-th item of a request, from the `shard`-th."""
    module = kind(request)
    items = module.items(request)[shard::shards]
    folder = module.weights(request)
    tag = files.digest(request, items, None if folder is None else weights_digest(folder))
    name = f"{request['what']}.{shard}-of-{shards}.{tag}.jsonl"
    return Piece(request, items, Path(request["folder"]) / "pieces" / name)


def weights_digest(folder) -> dict:
    """Digests of a trained folder's weights; equal weights trained twice are the same weights."""
    return json.loads((Path(folder) / "manifest.json").read_text())["sha256"]


def records(request: dict, shards: int) -> list[dict]:
    """The records of all shards together, in the order of the items."""
    parts = [piece(request, shard, shards).records() for shard in range(shards)]
    return [parts[i % shards][i // shards] for i in range(sum(map(len, parts)))]


def serve(pieces: list[Piece], chunk: int, source) -> None:
    """Compute the pieces that are not there. `source(piece)` gives what serves a piece; it is asked for no other."""
    for one in pieces:
        if one.path.exists():
            say(f"[{one.label}] {len(one.items)}/{len(one.items)}  already on disk")
            continue
        _serve(one, chunk, source)


def _serve(one: Piece, chunk: int, source) -> None:
    module = kind(one.request)

    def work(items):
        return module.serve(items, source(one), one.request)

    progress = Progress(one.label, len(one.items))
    for done in files.in_chunks(one.path, one.items, chunk, "part", work):
        progress.update(done)
