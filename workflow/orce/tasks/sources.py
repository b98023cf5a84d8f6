"""Where the rows of a data set come from: the hub, or files in a folder.

Parquet files on the hub are read by name, so that a loading script beside them does not matter:
baber/logiqa2 has one, and `datasets` refuses scripts since version 4. That library reads
repositories in other formats. Where a revision has a script alone, the hub's conversion is read.
"""

import re
from collections.abc import Mapping
from glob import escape
from itertools import chain
from pathlib import Path
from typing import Any

from orce.artefacts import tables
from orce.artefacts.tables import KINDS, PACKED, Row
from orce.errors import BadInput, one_line
from orce.runtime.hub import raise_refusal
from orce.runtime.process import say

# A data set's `source` in a configuration: {hub, config, revision} or {path}, and what its task reads.
DataSource = Mapping[str, Any]
# The branch with the hub's conversion of a data set, CONFIG/SPLIT/0000.parquet.
CONVERTED = "refs/convert/parquet"


def load_rows(source: DataSource, split: str, first: int | None = None) -> list[Row]:
    """The rows of a split on the hub, or those of the file SPLIT.jsonl (or another of KINDS) in a
    folder; first: how many of the file's rows, None for all.
    """
    if "hub" in source:
        return read_hub(source, split)
    return tables.read(split_file(source, split), first)


def split_file(source: DataSource, split: str) -> Path:
    """The file of a split. Raises BadInput if it is not there."""
    return find_files(source, [f"{escape(split)}.{kind}" for kind in KINDS])[0]


def find_files(source: DataSource, patterns: list[str]) -> list[Path]:
    """The files of the first pattern that matches any in the source's folder, plain or packed, with
    endings in any case; or its path itself if that is a file.
    """
    if "path" not in source:
        named = f"{dict(source)} names neither hub nor path"
        raise BadInput(f"source: {named}; this task needs one of them")
    path = Path(source["path"])
    if not path.exists():
        remedy = "source.path is a folder with the publisher's files"
        raise BadInput(f"{path}: does not exist; {remedy}")
    if path.is_file():
        return [path]
    for pattern in patterns:
        stem, _, kind = pattern.rpartition(".")
        for packed in PACKED:
            # [jJ][sS][oO][nN][lL]
            ending = re.sub("[a-z]", lambda x: f"[{x[0]}{x[0].upper()}]", f".{kind}{packed}")
            if files := sorted(path.glob(stem + ending)):
                return files
    expected = "expected the publisher's files in this folder"
    raise BadInput(f"{path}: found none of {', '.join(patterns)}; {expected}")


def read_hub(source: DataSource, split: str, config: str | None = None) -> list[Row]:
    """Rows of a split. `source` is {hub, config, revision}; `config` is the task's default.

    Raises BadInput in one line: what the hub refused, or why each of the three ways of reading
    failed.
    """
    source = {"config": config, **source}
    conversion = {**source, "revision": CONVERTED}
    where = f"{source['hub']} ({source['config'] or 'default'}) {split}"
    failed = []
    ways = {
        "its Parquet files by name": (_read_parquet, source),
        "the datasets library": (_read_by_datasets, source),
        f"the hub's own conversion ({CONVERTED})": (_read_parquet, conversion),
    }
    for way, (read, origin) in ways.items():
        try:
            rows = [(f"{where}, row {i}", row) for i, row in enumerate(read(origin, split))]
        except BadInput:  # about the rows, which another way would read too
            raise
        except Exception as error:  # noqa: BLE001 - the two libraries and those below them have no common class
            if origin is source:
                raise_refusal(error, "data set", source["hub"], source.get("revision"))
            failed.append(f"{way}: {one_line(error)}")
            continue
        if origin is conversion:
            say(f"[prompts] {where}: read from {way}, as {'; '.join(failed)}")
        return rows
    tried = "; then ".join(failed)
    remedy = (
        "Name a revision with Parquet files, or source: {path: FOLDER} with the publisher's files"
    )
    raise BadInput(f"{where}: cannot be read from the hub; tried {tried}. {remedy}")


def _read_parquet(source: DataSource, split: str) -> list[dict]:
    """Rows of a split in the hub's usual layouts: CONFIG/SPLIT-*.parquet and
    CONFIG/SPLIT/*.parquet.
    """
    from huggingface_hub import snapshot_download

    configs = [source["config"]] if source["config"] else ["data", "default"]
    patterns = []
    for config in configs:
        patterns += [f"{config}/{split}-*.parquet", f"{config}/{split}/*.parquet"]
    revision = source.get("revision")
    folder = snapshot_download(
        source["hub"], repo_type="dataset", revision=revision, allow_patterns=patterns
    )
    for pattern in patterns:
        if files := sorted(Path(folder).glob(pattern)):
            read = (tables.parquet_rows(file, file) for file in files)
            return [row for _, row in chain.from_iterable(read)]
    raise FileNotFoundError(f"none of {', '.join(patterns)} in the repository")


def _read_by_datasets(source: DataSource, split: str) -> list[dict]:
    from datasets import load_dataset

    origin = {"path": source["hub"], "name": source["config"], "revision": source.get("revision")}
    return load_dataset(**origin, split=split, trust_remote_code=False).to_list()


def pin_revision(source: DataSource) -> DataSource:
    """The source with its revision resolved to a commit; unchanged if there is no connection."""
    revision = source.get("revision")
    if "hub" not in source or re.fullmatch(r"[0-9a-f]{40}", revision or ""):
        return source
    from huggingface_hub import HfApi

    try:
        commit = HfApi().dataset_info(source["hub"], revision=revision).sha
    except Exception as error:  # noqa: BLE001 - without a connection the loader tries the cache, and reports what is missing
        raise_refusal(error, "data set", source["hub"], revision)
        return source
    return {**source, "revision": commit}
