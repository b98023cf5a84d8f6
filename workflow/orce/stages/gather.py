"""Join the shards of a stage, in the order of its items."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Annotated

from orce import stages
from orce.artefacts import files, store
from orce.errors import BadInput


def run(
    shards: Annotated[list[str], "in their order"],
    out: str,
    readout: stages.Readout = None,
    manifest: Annotated[str | None, "of --out (default: beside it)"] = None,
):
    counts = [len(files.Lines(store.verified(path))) for path in shards]
    total = sum(counts)
    for shard, (path, count) in enumerate(zip(shards, counts, strict=True)):
        if not count:
            raise BadInput(f"{path} is empty; expected one JSON object a line")
        if count != (share := len(range(shard, total, len(counts)))):
            raise BadInput(f"{path}: has {count} of {total} lines, and its share is {share}; {store.again(path)}")
    made_by = [(path, facts) for path in shards if store.settings_digest(facts := store.facts(path))]
    for path, facts in made_by:
        if store.settings_digest(facts) != store.settings_digest(made_by[0][1]):
            raise BadInput(f"{path}: was made with other settings than {made_by[0][0]}; {store.again(path)}")
    read_out = {} if readout is None else {"readout": readout}
    # The seal of an earlier version has the digest of its settings alone.
    settings = made_by[0][1]["settings"] | read_out if made_by and "settings" in made_by[0][1] else None
    with store.writing(out, settings, manifest, n=total, **stages.spent(*shards)) as handle:
        handle.writelines(joined(shards, readout))
    for path in shards:
        files.forget_chunks(path)


def joined(shards: list[str], readout: str | None) -> Iterator[str]:
    """The lines of all shards, one from each in turn."""
    read_out = [stages.reading_out(readout, path) or bytes for path in shards]
    with contextlib.ExitStack() as stack:
        handles = [stack.enter_context(open(path, "rb")) for path in shards]
        for number, row in enumerate(itertools.zip_longest(*handles), 1):
            for path, mapped, line in zip(shards, read_out, row, strict=True):
                if line is not None:
                    files.parse_line(path, number, line)
                    yield mapped(line).decode()
