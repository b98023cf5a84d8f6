"""Where the rows of a data set come from: the hub, or files in a folder.

The hub's Parquet files are read by name, so a loading script beside them does not matter
(baber/logiqa2 has one, and `datasets` refuses scripts since version 4); the `datasets` library
reads repositories in other formats. Where a revision has a script alone, the hub's conversion of it
is read.
"""

import re
from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import Any

from orce.artefacts import tables
from orce.artefacts.tables import KINDS, PACKED, Row
from orce.errors import BadInput, one_line
from orce.runtime.hub import raise_refusal
from orce.runtime.process import say

# a branch that the hub makes of every data set, CONFIG/SPLIT/0000.parquet
CONVERTED = "refs/convert/parquet"


def load_rows(source: Mapping[str, Any], split: str, first: int | None = None) -> list[Row]:
    """The rows of a split, or the first of them: of the hub's, or of the file SPLIT.jsonl (or
    another of KINDS) in a folder.
    """
    return (
        read_hub(source, split)
        if "hub" in source
        else tables.read(split_file(source, split), first)
    )


def split_file(source: Mapping[str, Any], split: str) -> Path:
    """The file of a split. Raises BadInput if it is not there."""
    return find_files(source, [f"{escape(split)}.{kind}" for kind in KINDS])[0]


def find_files(source: Mapping[str, Any], patterns: list[str]) -> list[Path]:
    """The files of the first pattern that matches any in the source's folder, plain or packed and
    with an ending in capitals or not; or its path itself if that is a file.
    """
    if "path" not in source:
        raise BadInput(
            f"source: {dict(source)} names neither hub nor path; this task needs one of them"
        )
    path = Path(source["path"])
    if not path.exists():
        raise BadInput(
            f"{path}: does not exist; source.path is a folder with the publisher's files"
        )
    if path.is_file():
        return [path]
    for pattern in patterns:
        stem, _, ending = pattern.rpartition(".")
        for packed in PACKED:
            capitals = re.sub(
                r"[a-z]", lambda sign: f"[{sign[0]}{sign[0].upper()}]", f".{ending}{packed}"
            )
            if files := sorted(path.glob(stem + capitals)):
                return files
    raise BadInput(
        f"{path}: found none of {', '.join(patterns)}; expected the publisher's files in this folder"
    )


def read_hub(source: Mapping[str, Any], split: str, config: str | None = None) -> list[Row]:
    """Rows of a split. `source` is {hub, config, revision}; `config` is the task's default.

    Raises BadInput in one line: what the hub refused, or why each of the three ways of reading
    failed.
    """
    source = {"config": config, **source}
    where = f"{source['hub']} ({source['config'] or 'default'}) {split}"
    failed = []
    ways = {
        "its Parquet files by name": (_read_parquet, source),
        "the datasets library": (_read_by_datasets, source),
        f"the hub's own conversion ({CONVERTED})": (
            _read_parquet,
            source | {"revision": CONVERTED},
        ),
    }
    for way, (read, at) in ways.items():
        try:
            rows = [(f"{where}, row {i}", row) for i, row in enumerate(read(at, split))]
        except BadInput:  # of what was read, which another way would read too
            raise
        except Exception as error:  # noqa: BLE001 - the two libraries and those below them have no common class
            if at is source:
                raise_refusal(error, "data set", source["hub"], source.get("revision"))
            failed.append(f"{way}: {one_line(error)}")
            continue
        if at is not source:
            say(f"[prompts] {where}: read from {way}, as {'; '.join(failed)}")
        return rows
    raise BadInput(
        f"{where}: cannot be read from the hub; tried {'; then '.join(failed)}. Name a revision with Parquet files, "
        "or source: {path: FOLDER} with the publisher's files"
    )


def _read_parquet(source: Mapping[str, Any], split: str) -> list[dict]:
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
            rows = []
            for file in files:
                rows += [row for _, row in tables.parquet_rows(file, file)]
            return rows
    raise FileNotFoundError(f"none of {', '.join(patterns)} in the repository")


def _read_by_datasets(source: Mapping[str, Any], split: str) -> list[dict]:
    from datasets import load_dataset

    origin = {"path": source["hub"], "name": source["config"], "revision": source.get("revision")}
    return load_dataset(**origin, split=split, trust_remote_code=False).to_list()


def pin_revision(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """The source with its revision resolved to a commit; unchanged if there is no connection."""
    if "hub" not in source or re.fullmatch(r"[0-9a-f]{40}", source.get("revision") or ""):
        return source
    from huggingface_hub import HfApi

    try:
        return {
            **source,
            "revision": HfApi().dataset_info(source["hub"], revision=source.get("revision")).sha,
        }
    except Exception as error:  # noqa: BLE001 - without a connection the loader tries the cache, and reports what is missing
        raise_refusal(error, "data set", source["hub"], source.get("revision"))
        return source
