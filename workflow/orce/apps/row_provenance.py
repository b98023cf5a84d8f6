"""What a row of a table is made of: its files back to the questions, each with its seal, the
settings that are not the paper's, and what it was computed with (`orce show CELL --provenance
--method ROW`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orce.artefacts import store
from orce.config.check import PAPER
from orce.errors import BadInput
from orce.settings import load

DIGITS = 12  # of a SHA-256
# {part of a file's path: section of config.yaml with its settings}
SECTIONS = {
    "samples.jsonl": "answers",
    "candidates.jsonl": "confidence",
    "sft": "sft",
    "pairs": "dpo",
    "dpo": "dpo",
    "metrics.json": "evaluation",
}
# Settings of several kinds of files, by their key in config.yaml.
COMMON = {"seed": "seed", "engine": "engine.name", "model.dtype": "dtype", "model.device": "device"}
SOURCES = ("hub", "revision", "package", "commit", "base_commit")  # among a seal's facts


def describe(metrics: Path) -> Iterator[tuple[str, str]]:
    """(title, text) of each line on a metrics.json. Raises BadInput if it, or a file that it was
    made from, is missing or changed.
    """
    first = store.run_path(metrics)
    if first is None or not metrics.exists():
        why = "no such file" if first else "not a path from results/ on"
        raise BadInput(f"{metrics}: {why}; expected results/DATASET/MODEL/ROW/metrics.json")
    root = metrics.parents[4]
    paper = dict(load.dotted_keys(load.read_mapping(PAPER)))
    files = [first]
    for name in files:  # which grows
        path = root / name
        if not path.exists():
            raise BadInput(f"{path}: missing; {metrics} was made from it")
        facts = store.check_seal(path)
        files += [source for source in facts.get("inputs", {}) if source not in files]
        yield "file", f"{name}, {digest_of(facts)}"
        yield from details(name, facts, paper)
    made = store.read_object(metrics)["provenance"]
    yield "commit", made["git_commit"] or "not known"
    yield "processor", made.get("processor") or "not known"
    yield "packages", ", ".join(f"{name} {version}" for name, version in made["packages"].items())


def details(
    name: str, facts: Mapping[str, Any], paper: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Lines on a file by the facts in its seal: settings that differ from config.yaml, where it
    comes from, what it was trained on.
    """
    for key, value in load.dotted_keys(facts.get("settings", {})):
        known = key_in_config(name, key)
        if not isinstance(value, dict) and known in paper and paper[known] != value:
            yield "", f"{known}: {value} (config.yaml: {paper[known]})"
    for key in SOURCES:
        if facts.get(key) is not None:
            yield "", f"{key}: {facts[key]}"
    if processor := facts.get("cost", {}).get("processor"):
        yield "", f"trained on {processor}"


def key_in_config(name: str, key: str) -> str:
    """The key of config.yaml that a setting of a file comes from; it may be none. name: of the
    file, from results/ on; key: dotted.
    """
    if key in COMMON:
        return COMMON[key]
    if key.startswith("training."):
        return key
    below_the_cell = Path(name).parts[3:]
    kinds = [part.partition("-")[0] for part in below_the_cell]  # dpo of dpo-nrd
    method = "".join(kinds[:1])
    known = [SECTIONS[kind] for kind in kinds if kind in SECTIONS]
    section = known[-1] if known else f"methods.{method}"
    return f"{section}.{key.removeprefix('stage.').removeprefix('options.')}"


def digest_of(facts: Mapping[str, Any]) -> str:
    """The SHA-256 of a file, or of the weights in a folder, as far as one compares it by eye."""
    digests = facts.get("sha256", {})
    if isinstance(digests, str):
        digests = {"": digests}
    return ", ".join(f"{name} {value[:DIGITS]}".strip() for name, value in digests.items())
