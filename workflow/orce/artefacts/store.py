"""The files of a run, each with its seal: `read` verifies and parses, `write` writes whole and
seals.

A seal is the manifest x.manifest.json beside x.jsonl, or manifest.json in a folder of weights. It
has `file`, where the file belongs, from results/ on; `sha256` of the file, or of each weights file;
`n`, its lines; `settings`; `inputs`, {path: digest} of the run's files that its step had read; and
`manifest_digest`, of all this. A reader gets the bytes that were written, at this place, from the
inputs that are there now. A manifest is due under results/; elsewhere a file without one is a
user's own.
"""

import contextlib
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from orce.artefacts import files
from orce.errors import BadInput
from orce.settings.stage import Encoder, Model, Settings, to_mapping

T = TypeVar("T")
AnySettings = Settings | Mapping[str, Any] | None
RESULTS = "results"
OWN_DIGEST = "manifest_digest"  # key of the digest of the manifest's other keys
FOLDER_MANIFEST = "manifest.json"  # in a folder of weights
# files in a folder of weights that no model is loaded from
UNSEALED = (FOLDER_MANIFEST, "README.md", "training_log.json")

# of the block `recording_inputs`
_inputs: ContextVar[dict[str, str | None] | None] = ContextVar("inputs", default=None)


# Reading


def read(path, required: Sequence[str] = ()) -> list[dict]:
    """The records of a JSON-lines file of a run, verified. Raises BadInput naming the file, and the
    line where it has one.
    """
    return files.read_jsonl(verify(path), required)


def records(path, kind: type[T]) -> list[T]:
    """`read`, as structs of `kind`, without keys that it does not have. Raises BadInput naming the
    file, the line and the key.
    """
    needed = [field.name for field in structs.fields(kind) if field.required]  # pyrefly: ignore
    return [
        files.convert_record(f"{path}, line {number}", record, kind)
        for number, record in enumerate(read(path, needed), 1)
    ]


def read_object(path) -> dict:
    """The JSON object in a file of a run, verified. Raises BadInput naming the file."""
    return files.read_json(verify(path))


def verify(path) -> Path:
    """`path`, checked against its manifest and its inputs, if it exists. Raises BadInput with what
    is wrong and what makes it again.
    """
    if Path(path).exists():
        check_seal(Path(path))
    return Path(path)


def verify_folder(folder, partial: bool = False) -> dict:
    """The facts in the manifest of a folder of weights, checked as `verify` does; {} for a folder
    of a user's own. partial: an adapter may have been copied without its tokenizer.
    """
    return check_seal(Path(folder), partial) if Path(folder).is_dir() else {}


def check_seal(artefact: Path, partial: bool = False) -> dict:
    """Compare a file or folder with its manifest and with the current inputs; record it as an input
    of this step. Returns the facts in the manifest.
    """
    manifest = manifest_path(artefact)
    here = run_path(artefact)
    # what an error names, and what is to be removed
    named = manifest if artefact.is_dir() else artefact
    if not manifest.exists():
        # a user's own
        if here is None or here.count("/") < 2 or here.startswith(f"{RESULTS}/models/"):
            return {}
        if artefact.is_dir():
            raise BadInput(f"{manifest}: is gone; the same snakemake command makes it again")
        raise BadInput(f"{artefact}: its manifest {manifest.name} is gone; {remake_hint(artefact)}")
    facts = read_manifest(manifest, named)
    wrong = find_change(artefact, facts, partial)
    if wrong is not None:
        raise BadInput(f"{wrong}; {remake_hint(named)}")
    if here is None:
        return facts
    changed = find_changed_input(artefact, facts)
    if changed is not None:
        raise BadInput(
            f"{named}: was made from another {changed} than there is now; {remake_hint(named)}"
        )
    inputs = _inputs.get()
    if inputs is not None:
        inputs[here] = _identity(artefact)
    return facts


def find_change(artefact: Path, facts: dict, partial: bool = False) -> str | None:
    """What is wrong with the first file that differs from a manifest, of this file or folder;
    partial: `files` may be absent.
    """
    digests = _digests(facts)
    if artefact.is_dir():
        digests.pop("", None)
    for name, expected in digests.items():
        path = artefact / name
        if not path.exists():
            if not (partial and name in facts.get("files", ())):
                return f"{path}: is gone"
        elif files.cached_sha256(path) != expected:
            if not path.stat().st_size:
                return f"{path}: is empty"
            if "n" in facts and (lines := files.count_lines(path)) != facts["n"]:
                return f"{path}: has {lines} lines, and {facts['n']} were written"
            return f"{path}: changed since it was written (another SHA-256 than in its manifest)"
    return None


def _digests(facts: dict) -> dict[str, str]:
    """{file: SHA-256} of a manifest, "" for the file next to it; empty for a manifest.json that
    another program wrote.
    """
    listed = {"": facts.get("sha256")}
    for key in ("sha256", "files"):
        if isinstance(facts.get(key), dict):
            listed |= facts[key]
    return {name: digest for name, digest in listed.items() if isinstance(digest, str)}


def find_changed_input(artefact: Path, facts: dict) -> str | None:
    """The first input in a file's seal that is another one now than the file was made from; None if
    there is none.
    """
    here = run_path(artefact)
    run = Path(*artefact.parts[: -len(Path(here).parts)]) if here else Path()
    for name, digest in facts.get("inputs", {}).items():
        if _identity(run / name) not in (None, digest):
            return name
    return None


def _identity(artefact: Path) -> str | None:
    """The SHA-256 of a file, or a digest of a folder's weights, by its manifest; None if its own
    reader would refuse that.
    """
    with contextlib.suppress(BadInput, OSError):
        known = read_manifest(manifest_path(artefact)).get("sha256")
        return known if isinstance(known, str) else files.digest(known)
    return None


def weights_digest(folder) -> dict:
    """Digests of a trained folder's weights, after a check: training again to equal weights changes
    nothing downstream.
    """
    facts = verify_folder(folder) or folder_digests(folder)
    return facts.get("sha256", {})


def base_digests(model: Model | Encoder) -> list[dict]:
    """For the tag of unfinished work: digests of the files of a model {source: {path}} whose folder
    has a manifest, after a check.
    """
    path = model.source.path
    facts = verify_folder(path) if isinstance(path, str) else {}
    return [_digests(facts)] if facts else []


# Writing


def write(
    path, records: Sequence[Any], settings: AnySettings = None, manifest=None, **facts
) -> None:
    """Write records as JSON lines, whole or not at all, and sealed; facts go into the seal."""
    with writing(path, settings, manifest, n=len(records), **facts) as handle:
        handle.writelines(map(files.to_line, records))


def write_object(path, value: dict, settings: AnySettings = None) -> None:
    with writing(path, settings) as handle:
        handle.write(files.to_text(value))


@contextlib.contextmanager
def writing(path, settings: AnySettings = None, manifest=None, **facts):
    """Open a file to write text to; it gets its name, and its seal, when the block ends without an
    error.
    """
    with files.atomic(path) as handle:
        yield handle
        # the seal is there before the file has its name: no file under results/ is without one
        handle.flush()
        seal(path, settings, manifest, at=handle.name, **facts)


def seal(artefact, settings: AnySettings = None, manifest=None, at=None, **facts) -> None:
    """Write the manifest of a finished file, whose bytes are at `at`: it gets its name after its
    manifest.
    """
    written = {"file": Path(artefact).name, "sha256": files.file_digest(at or artefact)}
    write_manifest(
        manifest or manifest_path(artefact), written | origin(artefact, settings) | facts
    )


def seal_together(paths: Iterable[Path], manifest, settings: Settings) -> None:
    """One seal for files that a step has made for people, beside them: no other step reads them."""
    written = {"sha256": {path.name: files.file_digest(path) for path in paths}}
    write_manifest(manifest, written | origin(manifest, settings))


# Manifests


def write_manifest(path, facts: dict) -> None:
    """Write a manifest, which later rules may take as input, with a digest of itself."""
    files.write_json(path, facts | {OWN_DIGEST: files.digest(facts)})


def read_manifest(path, artefact=None) -> dict:
    """The facts in a manifest. Raises BadInput if it was changed, or belongs to another cell;
    artefact: what the message names and says to make again (default: the manifest).
    """
    remedy = remake_hint(artefact or path)
    try:
        facts = files.read_json(path)
    except BadInput as error:
        raise BadInput(f"{error}; {remedy}") from None
    digest = facts.pop(OWN_DIGEST, None)
    if digest is not None and digest != files.digest(facts):
        raise BadInput(f"{path}: changed since it was written; {remedy}")
    here = run_path(path)
    made = run_path(str(facts.get("file")))
    moved = made and here not in (f"{made}/{FOLDER_MANIFEST}", str(manifest_path(made)))
    # a training keeps a copy of its manifest under another name
    if moved and here and here.endswith(FOLDER_MANIFEST):
        raise BadInput(f"{artefact or path}: was made as {made}, and belongs there; {remedy}")
    return facts


def manifest_facts(artefact) -> dict:
    """The facts in the manifest of a file; {} without one."""
    manifest = manifest_path(artefact)
    return read_manifest(manifest, artefact) if manifest.exists() else {}


def manifest_path(artefact) -> Path:
    """The manifest beside a file, or in a folder of weights."""
    path = Path(artefact)
    return path / FOLDER_MANIFEST if path.is_dir() else path.with_suffix(".manifest.json")


def run_path(path) -> str | None:
    """Where a file of a run belongs: its path from results/ on. None elsewhere."""
    parts = Path(os.path.normpath(path)).parts
    if RESULTS not in parts:
        return None
    last = parts[::-1].index(RESULTS)  # counted from the end
    return "/".join(parts[-1 - last :])


@contextlib.contextmanager
def recording_inputs():
    """Files read in this block are recorded as inputs of the files that it seals."""
    token = _inputs.set({})
    try:
        yield
    finally:
        _inputs.reset(token)


def origin(artefact, settings: AnySettings = None) -> dict:
    """For a manifest: the path of a file or folder in the run, its settings, and its step's inputs."""
    facts: dict[str, Any] = {}
    here = run_path(artefact)
    if here is not None:
        facts["file"] = here
    if settings is not None:
        facts["settings"] = to_mapping(settings)
    inputs = _inputs.get()
    if inputs:
        facts["inputs"] = dict(inputs)
    return facts


def folder_digests(folder) -> dict[str, dict[str, str]]:
    """For the manifest of a folder of weights: `sha256` of the weights, `files` of everything else
    that a model is loaded from.
    """
    digests: dict[str, dict[str, str]] = {"sha256": {}, "files": {}}
    for path in sorted(Path(folder).iterdir()):
        if path.is_file() and path.name not in UNSEALED:
            key = "sha256" if path.suffix == ".safetensors" else "files"
            digests[key][path.name] = files.file_digest(path)
    return digests


def remake_hint(path) -> str:
    return f"to make it again: rm {shlex.quote(str(path))}, then the same snakemake command"
