"""The shards of a stage as one file, in the order of its items."""

import contextlib
import itertools
from collections.abc import Iterator

from orce.artefacts import files, store
from orce.errors import BadInput
from orce.llm import account


def counted(shards: list[str]) -> dict:
    """Facts of the joined file: n, and `spent`, the sum of what servers counted, where they did."""
    n, spent = 0, []
    for _, record in joined(shards):
        n += 1
        spent += [record["spent"]] if "spent" in record else []
    return {"n": n} | ({"spent": account.total(spent)} if spent else {})


def write(
    shards: list[str], out: str, settings: dict, readout: str | None, manifest: str | None = None, **facts
) -> None:
    """Write the joined file, with its readout and its seal."""
    with store.writing(out, settings, manifest, **facts) as handle:
        handle.writelines(files.to_line(read_out(*one, readout)) for one in joined(shards))


def joined(shards: list[str]) -> Iterator[tuple[str, dict]]:
    """(shard, record) of all shards, one from each in turn."""
    with contextlib.ExitStack() as stack:
        rows = [enumerate(stack.enter_context(open(path, "rb")), 1) for path in shards]
        for row in itertools.zip_longest(*rows):
            for path, numbered in zip(shards, row, strict=True):
                if numbered is not None:
                    number, line = numbered
                    yield path, files.parse_line(path, number, line)


def read_out(path: str, record: dict, readout: str | None) -> dict:
    """The record with its `confidence`: the stated value, or the mean or mode of the distribution, where it has them."""
    if readout is None or "stated" not in record:
        return record
    if readout not in record:
        raise BadInput(
            f"{path}: its records have no {readout}, as they were read for another evaluation.readout; {store.again(path)}"
        )
    return {**record, "confidence": record[readout]}
