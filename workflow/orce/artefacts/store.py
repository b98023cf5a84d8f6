"""The files of a run, each with its seal: `read` verifies and parses, `write` writes whole and seals.

The seal of x.jsonl is the manifest x.manifest.json; the seal of a folder of weights is the manifest.json in it. It holds

    file      where the file belongs: its path from results/ on, so dataset, model, method, reward, round and shard
    sha256    of the file, or of each file of weights; n: the number of lines
    settings_digest   digest of the settings that it was made with (weights: the `settings` themselves)
    inputs    {path: digest} of the run's own files that its step had read
    manifest_digest   digest of all this

A reader asks for a path. It gets the file if the bytes are those that were written, at this place, from the inputs that are
there now. A manifest is due under results/; elsewhere a file without one is a user's own and read as it is. A seal of
an earlier version names no place and no inputs: the bytes are checked.
"""

import contextlib
import shlex
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from orce.artefacts import files
from orce.errors import BadInput
from orce.stage_settings import Encoder, Model, Settings, plain

T = TypeVar("T")
RESULTS = "results"
SEAL = "manifest_digest"  # key of the digest of the manifest's other keys
UNREAD = {"training_log.json"}  # files in a folder of weights that no model is loaded from
FOLDERS = "manifest.json"  # the manifest in a folder of weights

_inputs: ContextVar[dict[str, str] | None] = ContextVar("inputs", default=None)


# Reading and writing


def read(path, required: Sequence[str] = ()) -> list[dict]:
    """The records of a JSON-lines file of a run, verified. Raises BadInput naming the file, and the line where it has one."""
    return files.read_jsonl(verified(path), required)


def records(path, kind: type[T]) -> list[T]:
    """`read`, as structs or mappings of `kind`. Raises BadInput naming the file, the line and the key."""
    return files.records(verified(path), kind)


def read_object(path, current: bool = True) -> dict:
    """The JSON object in a file of a run, verified. Raises BadInput naming the file."""
    return files.read_json(verified(path, current))


def write(path, records: Sequence[Any], settings: Settings | dict | None = None, manifest=None, **facts) -> None:
    """Write records as JSON lines, whole or not at all, and sealed; facts go into the seal."""
    with writing(path, settings, manifest, n=len(records), **facts) as handle:
        handle.writelines(map(files.to_line, records))


def write_object(path, value: dict, settings: Settings | dict | None = None) -> None:
    """Write a JSON object, whole or not at all, and sealed."""
    with writing(path, settings) as handle:
        handle.write(files.to_text(value))


@contextlib.contextmanager
def writing(path, settings: Settings | dict | None = None, manifest=None, **facts):
    """Open a file to write text to; it gets its name, and its seal, when the block ends without an error."""
    with files.atomic(path) as handle:
        yield handle
        if not files.special(path):
            handle.flush()
            seal(path, settings, manifest, at=handle.name, **facts)


@contextlib.contextmanager
def step():
    """In this block, what is read are the inputs of what is sealed."""
    token = _inputs.set({})
    try:
        yield
    finally:
        _inputs.reset(token)


# Places


def place(path) -> str | None:
    """Where a file of a run belongs: its path from results/ on. None elsewhere."""
    parts = Path(path).parts
    return "/".join(parts[-1 - parts[::-1].index(RESULTS) :]) if RESULTS in parts else None


def _due(path) -> bool:
    """Whether a rule makes the file, so that it must have a manifest. A user may have put a model into results/models."""
    parts = (place(path) or "").split("/")
    return len(parts) > 2 and parts[1] != "models"


# Manifests


def manifest_path(artefact) -> Path:
    """The manifest of a file, beside it."""
    return Path(artefact).with_suffix(".manifest.json")


def write_manifest(path, facts: dict) -> None:
    """Write a manifest, which later rules may take as input, with a digest of itself."""
    files.write_json(path, facts | {SEAL: files.digest(facts)})


def read_manifest(path, artefact=None) -> dict:
    """The facts in a manifest. Raises BadInput if it is not as it was written, or belongs to another cell.

    artefact: what to name in the error and to make again (default: the manifest).
    """
    remedy = again(artefact or path)
    try:
        facts = files.read_json(path)
    except BadInput as error:
        raise BadInput(f"{error}; {remedy}") from None
    digest = facts.pop(SEAL, None)
    if digest is not None and digest != files.digest(facts):
        raise BadInput(f"{path}: not as it was written; {remedy}")
    here, made = place(path) or "", place(str(facts.get("file")))  # a seal of an earlier version names no place
    if made and here.endswith(FOLDERS) and here not in (f"{made}/{FOLDERS}", str(manifest_path(made))):
        raise BadInput(f"{artefact or path}: was made as {made}, and belongs there; {remedy}")
    return facts


def facts(artefact) -> dict:
    """The facts in the manifest of a file; {} without one."""
    manifest = manifest_path(artefact)
    return read_manifest(manifest, artefact) if manifest.exists() else {}


def seal(artefact, settings: Settings | dict | None = None, manifest=None, at=None, **facts) -> None:
    """Write the manifest of a finished file, whose bytes are at `at`: it gets its name after its manifest."""
    described = {"file": Path(artefact).name, "sha256": files.file_digest(at or artefact)}
    write_manifest(manifest or manifest_path(artefact), described | origin(artefact, settings) | facts)


def origin(artefact, settings: Settings | dict | None = None) -> dict:
    """For a manifest: the place of a file or folder, the digest of its settings, and what its step has read."""
    here, inputs = place(artefact), _inputs.get()
    facts: dict = {} if here is None else {"file": here}
    facts |= {} if settings is None else {"settings_digest": files.digest(plain(settings))}
    return facts | ({"inputs": dict(inputs)} if inputs else {})


def folder_digests(folder) -> dict[str, dict[str, str]]:
    """For the manifest of a folder of weights: `sha256` of the weights, `files` of everything else but README.md."""
    paths = [path for path in sorted(Path(folder).iterdir()) if path.is_file() and path.name != FOLDERS]
    digests = {path.name: files.file_digest(path) for path in paths if path.name != "README.md"}
    weights = {name: digest for name, digest in digests.items() if name.endswith(".safetensors")}
    return {"sha256": weights, "files": {name: digests[name] for name in digests if name not in weights}}


# Checks


def again(path) -> str:
    """What makes a file of a run again."""
    return f"to make it again: rm {shlex.quote(str(path))}, then the same snakemake command"


def verified(path, current: bool = True) -> Path:
    """`path`, checked against its manifest. Raises BadInput with what is wrong and what makes it again.

    current: whether what the file was made from must still be there as it was.
    """
    path = Path(path)
    beside, folders = manifest_path(path), path.with_name(FOLDERS)
    if not path.exists():
        return path  # for the reader to report
    if beside.exists():
        facts, remedy = read_manifest(beside, path), again(path)
        digest, n = facts.get("sha256"), facts.get("n")
    else:
        facts, remedy = read_manifest(folders) if folders.exists() else {}, again(folders)
        digest, n = _listed(facts).get(path.name), None
        if digest is None and _due(path):
            raise BadInput(f"{path}: its manifest {beside.name} is gone; {again(path)}")
    if digest is not None and files.sha256(path) != digest:
        raise BadInput(f"{path}: {_difference(path, n)}; {remedy}")
    if beside.exists():
        _from_these_inputs(path, facts, current)
    return path


def verified_folder(folder, partial: bool = False) -> dict:
    """The facts in the manifest of a folder of weights, checked as `verified` does; {} for a folder of a user's own.

    partial: an adapter may have been copied without its tokenizer.
    """
    manifest = Path(folder) / FOLDERS
    if not manifest.exists():
        if _due(folder) and Path(folder).is_dir():
            raise BadInput(f"{manifest}: is gone; the same snakemake command makes it again")
        return {}
    facts = read_manifest(manifest)
    absent = {name for name in facts.get("files", ()) if partial and not Path(folder, name).exists()}
    if wrong := _changed(Path(folder), facts, absent | UNREAD):
        raise BadInput(f"{wrong}; {again(manifest)}")
    _from_these_inputs(manifest, facts)
    return facts


def intact(folder, facts: dict) -> bool:
    """Whether a folder holds all files of a manifest as they were written."""
    return _changed(Path(folder), facts) is None


def weights_digest(folder) -> dict:
    """Digests of a trained folder's weights, after a check of the folder: training again to equal weights changes nothing
    downstream."""
    return (verified_folder(folder) or read_manifest(Path(folder) / FOLDERS)).get("sha256", {})


def base_digests(model: Model | Encoder) -> list[dict]:
    """Digests of the files of a model {source: {path}} whose folder has a manifest, after a check; else nothing.

    A part of the tag of unfinished work, as such a folder may be made again with other weights.
    """
    path = model.source.path
    facts = verified_folder(path) if isinstance(path, str) else {}
    return [_listed(facts)] if facts else []


def _from_these_inputs(path: Path, facts: dict, current: bool = True) -> None:
    """Note the verified file as an input of this step. Raises BadInput if it was made from others than there are now.

    path: the file, or the manifest of a folder of weights.
    """
    artefact = path.parent if path.name == FOLDERS else path
    here, inputs = place(artefact), _inputs.get()
    if here is None:
        return
    run = Path(*artefact.parts[: -len(Path(here).parts)])
    for name, digest in facts.get("inputs", {}).items() if current else ():
        if _identity(run / name) not in (None, digest):
            raise BadInput(f"{path}: was made from another {name} than there is now; {again(path)}")
    if inputs is not None:
        inputs[here] = _digest(facts)


def _identity(artefact: Path) -> str | None:
    """The digest in the manifest of a file or folder; None if none can be read, which its own reader reports."""
    manifest = artefact / FOLDERS if artefact.is_dir() else manifest_path(artefact)
    with contextlib.suppress(BadInput, OSError):
        return _digest(read_manifest(manifest))
    return None


def _digest(facts: dict) -> str:
    """Of a file its SHA-256; of a folder a digest of its weights."""
    known = facts.get("sha256")
    return known if isinstance(known, str) else files.digest(known)


def _listed(facts: dict) -> dict[str, str]:
    """{file: SHA-256} of a folder's manifest; nothing of a manifest.json that another program wrote."""
    listed = [facts[key] for key in ("sha256", "files") if isinstance(facts.get(key), dict)]
    return {name: digest for digests in listed for name, digest in digests.items() if isinstance(digest, str)}


def _changed(folder: Path, facts: dict, left_out: Collection[str] = ()) -> str | None:
    """The first file of the folder that is not as in the manifest, and what is wrong with it."""
    for name, digest in _listed(facts).items():
        if name in left_out:
            continue
        if not (folder / name).exists():
            return f"{folder / name}: is gone"
        if files.sha256(folder / name) != digest:
            return f"{folder / name}: {_difference(folder / name)}"
    return None


def _difference(path: Path, n: int | None = None) -> str:
    """What is wrong with a file whose digest is not the expected one; n: the lines it had."""
    if not path.stat().st_size:
        return "is empty"
    if n is not None:
        with open(path, "rb") as handle:
            lines = sum(1 for _ in handle)
        if lines != n:
            return f"has {lines} lines, and {n} were written"
    return "not as it was written (another SHA-256 than in its manifest)"
