"""Reading and writing files: JSON lines, digests, and outputs that appear whole or not at all.

Snakemake deletes a job's declared outputs before it reruns the job. A job therefore keeps its finished chunks in an
undeclared folder ``.partial`` beside the output, tagged with a digest of everything they depend on. The output itself
appears by one rename.
"""

import contextlib
import errno
import fcntl
import glob
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from orce.errors import BadInput
from orce.runtime.process import lock_holder, locked, say

T = TypeVar("T")
ROOM = 2**20  # bytes; a disk with less free space counts as full
BIG = 16 * 2**20  # bytes; smaller files are read whenever their digest is needed
KNOWN = Path(".snakemake/digests")  # digests of big files, each with the size and times at which it was taken
RUN = ("results", "paper_tables", "figures")  # what a run itself writes into its folder


# Digests


def digest(*parts) -> str:
    """Short hexadecimal digest of JSON-serialisable values; equal values give equal digests."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=_plain_or_text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain_or_text(value: Any) -> Any:
    return _plain(value) if isinstance(value, msgspec.Struct) else str(value)


def _plain(value: Any) -> dict[str, Any]:
    """A struct, for json."""
    if not isinstance(value, msgspec.Struct):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    return {key: item for key, item in msgspec.structs.asdict(value).items() if item is not msgspec.UNSET}


def file_digest(path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256(path) -> str:
    """The same. A big file is read again only if its size or its times have changed."""
    status = os.stat(path)
    return _sha256(os.path.realpath(path), (status.st_size, status.st_mtime_ns, status.st_ctime_ns))


@cache
def _sha256(path: str, state: tuple[int, int, int]) -> str:
    if state[0] < BIG or not KNOWN.parent.is_dir():
        return file_digest(path)
    note = KNOWN / f"{hashlib.sha256(path.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(note.read_bytes())
        if (known["path"], known["state"]) == (path, list(state)):
            return known["sha256"]
    digest = file_digest(path)
    with contextlib.suppress(OSError):  # a folder that cannot be written costs time only
        write_json(note, {"path": path, "state": state, "sha256": digest})
    return digest


@cache
def fingerprint(path: str, patterns: tuple[str, ...] = ("*",)) -> str:
    """Short digest of a file, or of the names and contents of the files in a folder that match one of the patterns.

    Hidden files, compiled modules and what the run itself writes are left out. Computed once per process.
    """
    if Path(path).is_file():
        return sha256(path)[:16]
    own, seen, digests = {os.path.realpath(name) for name in RUN}, set(), {}
    for folder, inside, names in os.walk(path, followlinks=True):
        seen.add(os.path.realpath(folder))
        inside[:] = [
            name
            for name in sorted(inside)
            if not name.startswith((".", "__pycache__")) and os.path.realpath(Path(folder, name)) not in own | seen
        ]
        for file in (Path(folder, name) for name in names if not name.startswith(".")):
            if file.is_file() and any(file.match(pattern) for pattern in patterns):
                digests[str(file.relative_to(path))] = sha256(file)
    return digest(digests)


# JSON


def read_jsonl(path, required: Sequence[str] = (), *, first: int | None = None, hook=None) -> list[dict]:
    """All records of a JSON-lines file, or the first ones. Raises BadInput naming the line for broken JSON, UTF-8 or missing
    keys. hook: `unique` for a file of others, in which a key may stand twice."""
    with open(path, "rb") as handle:
        numbered = enumerate(itertools.islice(handle, first), 1)
        records = [parse_line(path, number, line, required, hook) for number, line in numbered]
    if not records:
        raise BadInput(f"{path} is empty; expected one JSON object a line")
    return records


def records(path, kind: type[T]) -> list[T]:
    """The records of a JSON-lines file, as structs or mappings of `kind`, without keys that it does not have.

    Raises BadInput naming the line and the key.
    """
    form: Any = kind  # for the type checker: a struct or a TypedDict
    if issubclass(form, msgspec.Struct):
        needed = [field.name for field in msgspec.structs.fields(form) if field.required]
    else:
        needed = [key for key in get_type_hints(form) if key in form.__required_keys__]
    return [typed(f"{path}, line {i}", record, kind) for i, record in enumerate(read_jsonl(path, needed), 1)]


def typed(place: str, record: dict, kind: type[T]) -> T:
    """A record as a struct or mapping of `kind`. Raises BadInput naming the place and the key."""
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        said, _, key = str(error).replace("`", "").partition(" - at $.")
        raise BadInput(f"{place}, {key}: {said[0].lower()}{said[1:]}") from None


def parse_line(path, number: int, line: bytes, required: Sequence[str] = (), hook=None) -> dict:
    """The record in one line of a JSON-lines file. Raises BadInput naming the line."""
    try:
        record = from_json(line.decode("utf-8-sig" if number == 1 else "utf-8"), hook)
        if not isinstance(record, dict):
            raise BadInput(f"expected a JSON object, found {type(record).__name__}")
        missing = [key for key in required if key not in record]
        if missing:
            raise BadInput(f"no key {missing[0]!r}; needed keys are {', '.join(required)}")
        return record
    except UnicodeDecodeError as error:
        wrong = f"not UTF-8 ({error.reason} at byte {error.start})"
    except json.JSONDecodeError as error:
        wrong = f"not a whole JSON object ({error.msg})"
    except BadInput as error:
        wrong = str(error)
    raise BadInput(f"{path}, line {number}: {wrong}")


def unique(pairs: list[tuple[str, Any]]) -> dict:
    """A JSON object, for `object_pairs_hook`. Raises BadInput naming a key that stands twice: json takes the last one."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"the key {twice!r} stands twice in one object; keep one of them")
    return made


def from_json(text: str, hook=None) -> Any:
    """The value in a JSON text. Raises JSONDecodeError if it is none, BadInput for what Python cannot hold or write."""
    try:
        value = json.loads(text, object_pairs_hook=hook)
        if "\\ud" in text.lower():
            to_line(value).encode()
    except (json.JSONDecodeError, BadInput):
        raise
    except RecursionError:
        raise BadInput("nested too deep to be read (Python's limit of recursion)") from None
    except UnicodeEncodeError as error:
        raise BadInput(f"not a text: {error.reason} (half a pair, as \\ud800)") from None
    except ValueError:
        raise BadInput("a number has more digits than Python reads (4,300)") from None
    return value


def read_json(path) -> dict:
    """A file that holds one JSON object. Raises BadInput naming the file."""
    try:
        value = from_json(Path(path).read_text(encoding="utf-8"))
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except ValueError as error:  # broken JSON or UTF-8
        raise BadInput(f"{path}: not a whole JSON object ({error})") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


class Lines:
    """The lines of a file as (number, bytes), sliced like a list (see in_chunks). Only one slice is in memory at a time."""

    def __init__(self, path):
        self.path, self._reached = path, (0, 0)  # lines and bytes before the end of the last slice
        with open(path, "rb") as handle:
            self._count = sum(1 for _ in handle)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, part: slice) -> list[tuple[int, bytes]]:
        start, stop, _ = part.indices(self._count)
        before, offset = self._reached if self._reached[0] <= start else (0, 0)
        with open(self.path, "rb") as handle:
            handle.seek(offset)
            numbered = itertools.islice(enumerate(handle, before + 1), stop - before)
            lines = [(number, line) for number, line in numbered if number > start]
            self._reached = stop, handle.tell()
        return lines


def to_line(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False, default=_plain) + "\n"


def to_text(value) -> str:
    """The bytes of a JSON file; equal values give equal files."""
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write_jsonl(path, records) -> None:
    with atomic(path) as handle:
        handle.writelines(to_line(record) for record in records)


def write_json(path, value) -> None:
    with atomic(path) as handle:
        handle.write(to_text(value))


# Whole or not at all


@contextlib.contextmanager
def naming(path):
    """Add the file name to an OSError of writing or flushing, which lacks it."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


@contextlib.contextmanager
def room_in(folder):
    """Turn any library's disk-full error into an OSError that names the folder."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        named = isinstance(error, OSError) and error.filename is not None
        if not named and ("No space left" in str(error) or shutil.disk_usage(folder).free < ROOM):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise


def special(path) -> bool:
    """Whether the path is a device, a pipe or a socket: nothing may be renamed to it, or a file would replace it."""
    return Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir()


@contextlib.contextmanager
def atomic(path, mode: str = "w"):
    """Open a temporary file beside `path`, and rename it to `path` when the block ends without an error.

    A link is followed. Devices and pipes are written to directly.
    """
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
    if special(path):
        with naming(path), open(path, mode, encoding=encoding, newline=newline) as handle:
            yield handle
            handle.flush()
        return
    path = Path(os.path.realpath(path) if os.path.islink(path) else path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path), open(temporary, mode, encoding=encoding, newline=newline) as handle:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_SH)
            for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
                # What killed writers have left goes; a living one holds a lock on its file, which may be gone meanwhile.
                with contextlib.suppress(OSError), open(left, "rb") as other:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink()
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(final) -> Iterator[Path]:
    """A folder to fill, which gets the name `final` when the block ends without an error, and else goes."""
    final = Path(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=f".{final.name}.") as parent:
        work = Path(parent) / final.name
        work.mkdir()
        yield work
        publish_folder(work, final)


def publish_folder(work, final) -> None:
    """Rename the finished folder `work` to `final`, replacing an older one."""
    final, work = Path(final), Path(work)
    if final.exists() and not final.is_dir():
        raise BadInput(f"{final}: not a folder, and a folder is to be made here; name another, or delete it")
    umask = os.umask(0)
    os.umask(umask)
    for path in work.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o666 & ~umask)  # as open() does: safetensors makes its files readable by their owner only
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        os.replace(final, old)
    final.parent.mkdir(parents=True, exist_ok=True)
    os.replace(work, final)
    shutil.rmtree(old, ignore_errors=True)


# Chunks


def partial_folder(output) -> Path:
    """The folder for unfinished work on `output`. Raises BadInput where none belongs, beside a device or a pipe."""
    if special(output):
        raise BadInput(f"{output}: not a regular file; a step that can be resumed needs the name of a file or folder")
    folder = Path(output).parent / ".partial"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def in_chunks(
    output,
    items: Sequence | Lines,
    size: int,
    tag: str,
    work: Callable[[Any], Sequence[Any]],
    finished: Callable[[Path], None] = lambda path: None,
    line: Callable[[bytes], bytes] | None = None,
) -> Iterator[int]:
    """Apply `work` to `items` one chunk at a time, and keep every finished chunk in a file of its own, named by its place and SHA-256.

    Yields the number of items done so far, starting with what an earlier, killed run has done. `work` returns one record per
    item. Chunks start at multiples of `size`, so a resumed run computes the same batches as an uninterrupted one. After the
    last chunk `output` appears, complete and in the order of `items`, each line mapped by `line`; before it gets its name,
    `finished` is called with the file that holds it. A chunk whose bytes are not those that were written is done again.

    The chunks stay beside `output` until `forget_chunks`. If Snakemake was killed while this job ran on, the next
    Snakemake deletes the finished output as incomplete; the job then restores it from the chunks.
    """
    folder = partial_folder(output) / f"{Path(output).name}.{tag}"
    with alone(folder / "lock"):
        chunks, done = _finished(folder, size, len(items))
        yield done
        for start in range(done, len(items), size):
            part = items[start : start + size]
            records = work(part)
            if len(records) != len(part):
                raise RuntimeError(f"{output}: {len(records)} records for a chunk of {len(part)} items")
            data = "".join(map(to_line, records)).encode()
            chunks.append(folder / f"{start:09}-{len(part)}-{hashlib.sha256(data).hexdigest()}.jsonl")
            with atomic(chunks[-1], "wb") as handle:
                handle.write(data)
            yield start + len(part)
        with atomic(output, "wb") as handle:
            for chunk in chunks:
                data = chunk.read_bytes()
                handle.write(b"".join(map(line, data.splitlines(keepends=True))) if line else data)
            handle.flush()
            finished(Path(handle.name))


def _finished(folder: Path, size: int, total: int) -> tuple[list[Path], int]:
    """The chunks from the beginning on that are whole, up to a multiple of `size` items, and how many; the others go."""
    chunks: list[tuple[Path, int]] = []  # with the items up to the end of each
    for chunk in sorted(folder.glob("*.jsonl")):
        named = re.fullmatch(r"(\d+)-(\d+)-([0-9a-f]{64})", chunk.stem)
        done = chunks[-1][1] if chunks else 0
        if named and int(named[1]) == done and file_digest(chunk) == named[3]:
            chunks.append((chunk, done + int(named[2])))
        else:
            say(f"{chunk}: not as it was written, or after such a chunk: done again")
            chunk.unlink()
    while chunks and chunks[-1][1] % size and chunks[-1][1] != total:
        chunks.pop()[0].unlink()
    return [chunk for chunk, _ in chunks], chunks[-1][1] if chunks else 0


def forget_chunks(output, but: str | None = None) -> None:
    """Delete the chunks that `in_chunks` kept for `output`, whatever their tag, except those with the tag `but`."""
    folder, name = Path(output).parent / ".partial", Path(output).name
    for chunks in folder.glob(f"{glob.escape(name)}.*"):
        if chunks.name != f"{name}.{but}":
            shutil.rmtree(chunks, ignore_errors=True)
    with contextlib.suppress(OSError):  # it still holds other chunks
        folder.rmdir()


@contextlib.contextmanager
def alone(path) -> Iterator[None]:
    """Hold the exclusive lock of a file, after waiting while another process holds it.

    A killed Snakemake leaves its jobs running, and the next one starts the same jobs again: the two must not write to
    one file. The kernel releases the lock when its process ends, which may delete the file and its folder.
    """
    path = Path(path)
    for tries in itertools.count(1):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = open(path, "w")  # noqa: SIM115
        except (FileNotFoundError, FileExistsError):  # the folder went between two of these calls
            if tries < 100:
                continue
            raise
        with handle:
            if not locked(handle.fileno(), path):
                holder = lock_holder(handle.fileno())
                say(f"{path} is being written by another process ({holder}): waiting until it ends")
                fcntl.flock(handle, fcntl.LOCK_EX)
            if _still_named(path, handle):
                yield
                return


def _still_named(path: Path, handle) -> bool:
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False
