"""Join the shards of a stage, in the order of its items."""

from orce.answers import shards
from orce.artefacts import files, store
from orce.errors import BadInput
from orce.judging.judge import READOUTS


def add_arguments(parser):
    parser.add_argument("--shards", nargs="+", required=True, help="in their order")
    parser.add_argument("--readout", choices=READOUTS, help="of a confidence LLM: the value to use as `confidence`")
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", help="of --out (default: beside it)")


def run(args):
    counts = [len(files.Lines(store.verified(path))) for path in args.shards]
    total = sum(counts)
    for path, found, shard in zip(args.shards, counts, range(len(counts)), strict=True):
        if not found:
            raise BadInput(f"{path} is empty; expected one JSON object a line")
        if found != (expected := len(range(shard, total, len(counts)))):
            raise BadInput(f"{path}: has {found} of {total} lines, and its share is {expected}; {store.again(path)}")
    settings = {"readout": args.readout, "shards": made_by(args.shards)}
    shards.write(args.shards, args.out, settings, args.readout, args.manifest, **shards.counted(args.shards))
    for path in args.shards:
        files.forget_chunks(path)


def made_by(shards: list[str]) -> str | None:
    """The digest of the settings of all shards. Raises BadInput for one that was made with others than the first.

    A seal of an earlier version has none.
    """
    known = [(path, digest) for path in shards if (digest := store.facts(path).get("settings_digest"))]
    for path, digest in known:
        if digest != known[0][1]:
            raise BadInput(f"{path}: was made with other settings than {known[0][0]}; {store.again(path)}")
    return known[0][1] if known else None
