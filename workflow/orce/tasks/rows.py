"""Rows of any data set, from files (orce.artefacts.tables) or from the hub, and the parts of an example that every row has.

The hub's Parquet files are read by name, so a loading script beside them does not matter (baber/logiqa2 has one, and
`datasets` refuses scripts since version 4); the `datasets` library reads repositories in other formats. Where a revision has a
script alone, the hub's conversion of it is read.
"""

import re
from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import Any

from orce.artefacts import tables
from orce.artefacts.tables import KINDS, Row
from orce.errors import BadInput, one_line, raise_refusal
from orce.records import Example
from orce.runtime.process import say
from orce.text import render
from orce.text.marks import own_marks

CONVERTED = "refs/convert/parquet"  # a branch that the hub makes of every data set, CONFIG/SPLIT/0000.parquet
NOTHING = ("nan", "NaN", "NAN")  # how programs write a missing value into a text
UNNUMBERED = ", or leave out fields.id to number the rows"


def load(source: Mapping[str, Any], split: str, first: int | None = None) -> list[Row]:
    """The rows of a split, or the first of them: of the hub's, or of the file SPLIT.jsonl (or another of KINDS) in a folder."""
    return from_hub(source, split) if "hub" in source else tables.read(local(source, split), first)


def local(source: Mapping[str, Any], split: str) -> Path:
    """The file of a split. Raises BadInput if it is not there."""
    return find(source, [f"{escape(split)}.{kind}" for kind in KINDS])[0]


def find(source: Mapping[str, Any], patterns: list[str]) -> list[Path]:
    """The files of the first pattern that matches any in the source's folder, or its path itself if that is a file."""
    if "path" not in source:
        raise BadInput(f"source: {dict(source)} names neither hub nor path; this task needs one of them")
    path = Path(source["path"])
    if not path.exists():
        raise BadInput(f"{path}: does not exist; source.path is a folder with the publisher's files")
    if path.is_file():
        return [path]
    for pattern in patterns:
        if files := sorted(path.glob(pattern)):
            return files
    raise BadInput(f"{path}: found none of {', '.join(patterns)}; expected the publisher's files in this folder")


def text(row: Row, path: str, field: str = "") -> str:
    """A text that is not empty; a number is written out. field: where the configuration names the path."""
    value = tables.value(row, field, path)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        shown = value if len(repr(value)) <= 60 else f"{str(value)[:57]}..."
        named = f" (fields.{field})" if field else ""
        raise BadInput(f"{row[0]}: {path!r} is {shown!r}; expected a text that is not empty{named}")
    return str(value)


def present(where: str, path: str, text: str, otherwise: str = "") -> str:
    """The text of a reference or an option. Raises BadInput for one that stands for a missing value."""
    if text.strip() in NOTHING:
        missing = f"{path!r} is {text.strip()!r}, which stands for a missing value"
        raise BadInput(f"{where}: {missing}; fill it in, or leave the row out{otherwise}")
    return text


def base(row: Row, position: int, source: Mapping[str, Any], split: str, **more) -> Any:
    """The parts of every example of tasks qa and choice: id (the row's number without a field for it), question, context, the
    pattern of answers.

    `ask` is a line after each question's text, for sets whose text does not say what is asked.
    """
    fields, name = source["fields"], "question" if "question" in source["fields"] else "id"
    passage = tables.value(row, "context", fields["context"]) if "context" in fields else None
    empty = passage is None or not str(passage).strip()
    return {
        "id": text(row, fields["id"], "id") if "id" in fields else f"{split}-{position}",
        "question": text(row, fields[name], name) + (f"\n{source['ask']}" if "ask" in source else ""),
        "context": None if empty else text(row, fields["context"], "context"),
        **more,
        **{key: source[key] for key in ("answer_pattern", "answer_marks") if key in source},
    }


def zero_shot(template: str, question: str, shots: int | None) -> list[dict]:
    """The prompt of a task without worked examples: one user turn."""
    if shots:
        raise BadInput(f"shots is {shots}, but this task has no worked examples; use 0")
    return [{"role": "user", "content": render(template, question=question)}]


def matched(text: str, example: Example) -> str:
    """What the example's own pattern finds in a text: the first group of its last match; without a pattern, the text, with its
    own marks as "Answer:".

    A text that the pattern does not match is empty, so it has no answer.
    """
    if "answer_pattern" not in example:
        return own_marks(text, example.get("answer_marks", []))
    *_, last = [None, *re.finditer(example["answer_pattern"], text)]
    return next(filter(None, [*last.groups(), last[0]]), "") if last else ""


# The hub


def from_hub(source: Mapping[str, Any], split: str, config: str | None = None) -> list[Row]:
    """Rows of a split. `source` is {hub, config, revision}; `config` is the task's default.

    Raises BadInput in one line: what the hub refused, or why each of the three ways of reading failed.
    """
    source = {"config": config, **source}
    where = f"{source['hub']} ({source['config'] or 'default'}) {split}"
    failed = []
    ways = {
        "its Parquet files by name": (_by_name, source),
        "the datasets library": (_datasets, source),
        f"the hub's own conversion ({CONVERTED})": (_by_name, source | {"revision": CONVERTED}),
    }
    for way, (read, at) in ways.items():
        try:
            found = [(f"{where}, row {i}", row) for i, row in enumerate(read(at, split))]
        except Exception as error:  # noqa: BLE001 - the two libraries and those below them have no common class
            if at is source:
                raise_refusal(error, "data set", source["hub"], source.get("revision"))
            failed.append(f"{way}: {one_line(error)}")
            continue
        if at is not source:
            say(f"[prompts] {where}: read from {way}, as {'; '.join(failed)}")
        return found
    raise BadInput(
        f"{where}: cannot be read from the hub; tried {'; then '.join(failed)}. Name a revision with Parquet files, "
        "or source: {path: FOLDER} with the publisher's files"
    )


def _by_name(source: Mapping[str, Any], split: str) -> list[dict]:
    """Rows of a split in the hub's usual layouts: CONFIG/SPLIT-*.parquet and CONFIG/SPLIT/*.parquet."""
    import pyarrow.parquet
    from huggingface_hub import snapshot_download

    configs = [source["config"]] if source["config"] else ["data", "default"]
    patterns = [f"{config}/{name}" for config in configs for name in (f"{split}-*.parquet", f"{split}/*.parquet")]
    revision = source.get("revision")
    folder = snapshot_download(source["hub"], repo_type="dataset", revision=revision, allow_patterns=patterns)
    for pattern in patterns:
        if files := sorted(Path(folder).glob(pattern)):
            return [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
    raise FileNotFoundError(f"none of {', '.join(patterns)} in the repository")


def _datasets(source: Mapping[str, Any], split: str) -> list[dict]:
    from datasets import load_dataset

    origin = {"path": source["hub"], "name": source["config"], "revision": source.get("revision")}
    return load_dataset(**origin, split=split, trust_remote_code=False).to_list()


def pinned(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """The source with its revision resolved to a commit; unchanged if there is no connection."""
    if "hub" not in source or re.fullmatch(r"[0-9a-f]{40}", source.get("revision") or ""):
        return source
    from huggingface_hub import HfApi

    try:
        return {**source, "revision": HfApi().dataset_info(source["hub"], revision=source.get("revision")).sha}
    except Exception as error:  # noqa: BLE001 - without a connection the loader tries the cache, and reports what is missing
        raise_refusal(error, "data set", source["hub"], source.get("revision"))
        return source
