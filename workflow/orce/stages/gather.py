"""Join the shards of a stage, in the order of its items."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Annotated, Any

from orce import stages
from orce.artefacts import files, store
from orce.errors import BadInput


def run(
    shards: Annotated[list[str], "in their order"],
    out: str,
    readout: stages.Readout = None,
    manifest: Annotated[str | None, "of --out (default: beside it)"] = None,
):
    """Reads the shards of a stage; writes their records in the order of its items, as one job would
    have.
    """
    counts = [files.count_lines(store.verify(path)) for path in shards]
    total = sum(counts)
    for shard, (path, count) in enumerate(zip(shards, counts, strict=True)):
        share = len(range(shard, total, len(shards)))
        if not count:
            raise BadInput(f"{path} is empty; expected one JSON object a line")
        if count != share:
            counted = f"has {count} of {total} lines, and its share is {share}"
            raise BadInput(f"{path}: {counted}; {store.remake_hint(path)}")
    settings = common_settings(shards)
    if settings is not None and readout is not None:
        settings["readout"] = readout
    with store.writing(out, settings, manifest, n=total, **stages.api_usage(*shards)) as handle:
        handle.writelines(join_lines(shards, readout))
    for path in shards:
        files.forget_chunks(path)


def common_settings(shards: list[str]) -> dict[str, Any] | None:
    """The settings in the shards' seals; None without any. Raises BadInput where they differ."""
    settings = None
    first = ""
    for path in shards:
        own = store.manifest_facts(path).get("settings")
        if settings is None:
            settings = own
            first = path
        elif own and own != settings:
            other = f"was made with other settings than {first}"
            raise BadInput(f"{path}: {other}; {store.remake_hint(path)}")
    return settings


def join_lines(shards: list[str], readout: str | None) -> Iterator[str]:
    """The lines of all shards, one from each in turn."""
    with contextlib.ExitStack() as stack:
        handles = [stack.enter_context(open(path, "rb")) for path in shards]
        for number, row in enumerate(itertools.zip_longest(*handles), 1):
            for path, line in zip(shards, row, strict=True):
                if line is not None:
                    files.parse_object(f"{path}, line {number}", line)
                    yield stages.read_out(readout, path, line).decode()
