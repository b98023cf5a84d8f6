"""Data sets on the Hugging Face hub: the rows of a split, their commit, and one-line errors.

The publisher's Parquet files are read by name, so a loading script beside them does not matter (baber/logiqa2 has one,
and `datasets` refuses scripts since version 4). The `datasets` library reads repositories in other formats.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orce.artefacts.tables import Row
from orce.errors import BadInput

COMMIT = re.compile(r"[0-9a-f]{40}")


def from_hub(source: Mapping[str, Any], split: str, config: str | None = None) -> list[Row]:
    """Rows of a split. `source` is {hub, config, revision}; `config` is the task's default.

    Raises BadInput in one line: what the hub refused, or why each of the two ways of reading failed.
    """
    source = {"config": config, **source}
    place = f"{source['hub']} ({source['config'] or 'default'}) {split}"
    failed = []
    for way, read in (("its Parquet files by name", _parquet), ("the datasets library", _datasets)):
        try:
            return [(f"{place}, row {i}", row) for i, row in enumerate(read(source, split))]
        except Exception as error:  # noqa: BLE001 - the two libraries and those below them have no common class
            _raise_refusal(source, error)
            failed.append(f"{way}: {_one_line(error)}")
    raise BadInput(
        f"{place}: cannot be read from the hub; tried {'; then '.join(failed)}. Name a revision with Parquet files "
        "(refs/convert/parquet is the hub's own conversion), or source: {path: FOLDER} with the publisher's files"
    )


def pinned(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """The source with its revision resolved to a commit; unchanged if there is no connection."""
    if "hub" not in source or COMMIT.fullmatch(source.get("revision") or ""):
        return source
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        commit = HfApi().dataset_info(source["hub"], revision=source.get("revision")).sha
    except HfHubHTTPError as error:
        _raise_refusal(source, error)
        return source
    except Exception:  # noqa: BLE001 - no connection; the loader tries the cache, and reports what is missing
        return source
    return {**source, "revision": commit}


def _parquet(source: Mapping[str, Any], split: str) -> list[dict]:
    """Rows of a split in the hub's usual layouts: CONFIG/SPLIT-*.parquet and CONFIG/SPLIT/*.parquet."""
    import pyarrow.parquet
    from huggingface_hub import snapshot_download

    places = [source["config"]] if source["config"] else ["data", "default"]
    patterns = [f"{place}/{name}" for place in places for name in (f"{split}-*.parquet", f"{split}/*.parquet")]
    revision = source.get("revision")
    folder = snapshot_download(source["hub"], repo_type="dataset", revision=revision, allow_patterns=patterns)
    found = next((sorted(Path(folder).glob(one)) for one in patterns if any(Path(folder).glob(one))), None)
    if found is None:
        raise FileNotFoundError(f"none of {', '.join(patterns)} in the repository")
    return [row for path in found for row in pyarrow.parquet.read_table(path).to_pylist()]


def _datasets(source: Mapping[str, Any], split: str) -> list[dict]:
    from datasets import load_dataset

    place = {"path": source["hub"], "name": source["config"], "revision": source.get("revision")}
    return load_dataset(**place, split=split, trust_remote_code=False).to_list()


def _raise_refusal(source: Mapping[str, Any], error: BaseException) -> None:
    """Raises BadInput that says what to do, if the hub itself refused: then no other way of reading can help."""
    from huggingface_hub import errors

    hub, revision = source["hub"], source.get("revision") or "main"
    known = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.LocalEntryNotFoundError)
    gated = "is a gated dataset" in str(error)  # `datasets` raises an error of its own here, without the hub's
    while error.__cause__ is not None and not isinstance(error, known):
        error = error.__cause__
    if gated or isinstance(error, errors.GatedRepoError):
        raise BadInput(
            f"{hub}: gated on the hub; accept its terms on its page there, then log in with `hf auth login` or set HF_TOKEN"
        ) from None
    if isinstance(error, errors.RevisionNotFoundError):
        raise BadInput(
            f"{hub}: the hub has no revision {revision!r} of it; expected a branch, a tag or a commit (main is the newest)"
        ) from None
    if isinstance(error, errors.RepositoryNotFoundError):
        raise BadInput(
            f"{hub}: no such data set on the hub, or a private one; check the name, or log in with `hf auth login`"
        ) from None
    if isinstance(error, errors.LocalEntryNotFoundError):
        raise BadInput(
            f"{hub}, revision {revision}: not in the local cache, and the hub cannot be reached "
            f"({_one_line(error.__cause__ or error)})"
        ) from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
