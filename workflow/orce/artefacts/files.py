"""Reading and writing files: JSON lines, digests, outputs that appear whole or not at all, and work
that a killed job goes on with.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

import msgspec

from orce.errors import BadInput
from orce.runtime.process import lock_holder, say, try_lock

T = TypeVar("T")
ROOM = 2**20  # bytes; a disk with less free space counts as full
BIG = 16 * 2**20  # bytes; smaller files are read whenever their digest is needed
KNOWN = Path(".snakemake/digests")  # digests of big files, in files named by path, size and times
RUN = ("results", "paper_tables", "figures")  # what a run itself writes into its folder
LARGEST = "ORCE_LARGEST_FILE"  # an environment variable, see `largest`
USUAL_LARGEST = 2**30  # bytes
LINES = 16  # the longest line has this part of it, as a line takes several times its size to parse


def digest(*parts) -> str:
    """Short hexadecimal digest of JSON-serialisable values; equal values give equal digests."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=struct_to_dict)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def struct_to_dict(value: Any) -> dict[str, Any]:
    """What json takes for a struct: keys that are UNSET are left out. Raises TypeError for anything
    else, such as a set, whose order would differ from run to run.
    """
    if not isinstance(value, msgspec.Struct):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    # msgspec.to_builtins would refuse a text of a subclass of str
    return {
        key: item
        for key, item in msgspec.structs.asdict(value).items()
        if item is not msgspec.UNSET
    }


def file_digest(path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def cached_sha256(path) -> str:
    """`file_digest`, cached by size and times: in this process, and of a big file on disk.

    Every job checks the weights that it reads. Those of an 8B model take 14 CPU-seconds (0.85 s a
    gigabyte), which two hundred jobs would pay again.
    """
    status = os.stat(path)
    return _sha256(os.path.realpath(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@cache
def _sha256(path: str, size: int, *times: int) -> str:
    if size < BIG or not KNOWN.parent.is_dir():
        return file_digest(path)
    note = KNOWN / digest(path, size, times)
    with contextlib.suppress(OSError):
        return note.read_text()
    sha256 = file_digest(path)
    # a folder that cannot be written costs time only
    with contextlib.suppress(OSError), atomic(note) as handle:
        handle.write(sha256)
    return sha256


@cache
def fingerprint(path: str, patterns: tuple[str, ...] = ("*",)) -> str:
    """Short digest of a file, or of the names and contents of the files in a folder that match one
    of the patterns. Hidden files, compiled modules and what the run itself writes are left out.
    Computed once per process.
    """
    if Path(path).is_file():
        return cached_sha256(path)[:16]
    left_out = {os.path.realpath(name) for name in RUN}
    digests = {}
    for folder, inside, names in os.walk(path, followlinks=True):
        left_out.add(os.path.realpath(folder))  # a link may lead back to it
        inside.sort()  # of two links to one folder, the same is followed everywhere
        for name in [*inside]:
            hidden = name.startswith((".", "__pycache__"))
            if hidden or os.path.realpath(Path(folder, name)) in left_out:
                inside.remove(name)  # os.walk enters those that stay
        for name in names:
            file = Path(folder, name)
            if not name.startswith(".") and file.is_file() and any(map(file.match, patterns)):
                digests[str(file.relative_to(path))] = cached_sha256(file)
    return digest(digests)


def read_jsonl(path, required: Sequence[str] = ()) -> list[dict]:
    """All records of a JSON-lines file. Raises BadInput naming the file, the line and the key."""
    records = []
    with open(path, "rb") as handle:
        for number, line in enumerate(handle, 1):
            where = f"{path}, line {number}"
            record = parse_object(where, line)
            for key in required:
                if key not in record:
                    raise BadInput(
                        f"{where}: no key {key!r}; needed keys are {', '.join(required)}"
                    )
            records.append(record)
    if not records:
        raise BadInput(f"{path} is empty; expected one JSON object a line")
    return records


def unique_ids(examples: list[Any], places: Iterable[str], otherwise: str = "") -> list[Any]:
    """The examples, mappings with an `id`, if their ids differ. Raises BadInput naming both places
    of a repeated id.
    """
    seen: dict[str, str] = {}
    for example, where in zip(examples, places, strict=True):
        if (name := example["id"]) in seen:
            raise BadInput(
                f"{where}: id {name!r} is also the id of {seen[name]}; ids must be unique{otherwise}"
            )
        seen[name] = where
    return examples


def largest() -> int:
    """The bytes that a packed file of others may unpack to, as a megabyte may hold thousands: from
    $ORCE_LARGEST_FILE, else USUAL_LARGEST. Raises BadInput for no number.
    """
    written = os.environ.get(LARGEST, "")
    if not written:
        return USUAL_LARGEST
    try:
        return int(float(written))
    except (ValueError, OverflowError):
        raise BadInput(
            f"${LARGEST} is {written!r}; expected a number of bytes, such as 4e9"
        ) from None


def refuse_size(what: str, limit: float, needed: float) -> NoReturn:
    """Raises BadInput for a file, or a line of one, that is larger than the limit. needed: what
    $ORCE_LARGEST_FILE is to be, in bytes.
    """
    raise BadInput(
        f"{what} than {limit / 2**20:.6g} MiB; if it is meant to be so large, set {LARGEST}={needed} (bytes)"
    )


def bounded_lines(path, handle: Any) -> Iterator[bytes]:
    """The lines of an open file of others. Raises BadInput at one that is too long, before it is in
    memory as a whole.
    """
    longest = largest() // LINES
    for number in itertools.count(1):
        line = handle.readline(longest + 1)
        if len(line) > longest:
            refuse_size(f"{path}, line {number}: longer", longest, 4 * LINES * longest)
        if not line:
            return
        yield line


def read_json(path) -> dict:
    """A file that holds one JSON object. Raises BadInput naming the file."""
    return parse_object(str(path), Path(path).read_bytes())


def parse_object(where: str, data: bytes) -> dict:
    """The JSON object in a file or a line. Raises BadInput naming `where` that is."""
    try:
        value = parse_json(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not UTF-8 ({error.reason} at byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{where}: not a whole JSON object ({error.msg} at character {error.pos + 1})"
        ) from None
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def parse_json(text: str) -> Any:
    """The value in a JSON text. Raises JSONDecodeError where it breaks, BadInput for what JSON
    allows and Python cannot hold or write, and for a key that stands twice in an object, of which
    json would take the last.
    """
    try:
        value = json.loads(text, object_pairs_hook=refuse_repeated_keys)
        if "\\ud" in text.lower():
            to_line(value).encode()
    except RecursionError:
        raise BadInput("nested too deep to be read (Python's limit of recursion)") from None
    except UnicodeEncodeError as error:
        raise BadInput(f"not a text: {error.reason} (half a pair, as \\ud800)") from None
    except (json.JSONDecodeError, BadInput):
        raise
    except ValueError:
        raise BadInput("a number has more digits than Python reads (4,300)") from None
    return value


def refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise BadInput(f"the key {key!r} stands twice in one object; keep one of them")
        value[key] = item
    return value


def convert_record(where: str, record: dict, kind: type[T]) -> T:
    """A record as a struct or mapping of `kind`. Raises BadInput naming where it is and the key."""
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        message, _, key = str(error).replace("`", "").partition(" - at $.")
        raise BadInput(f"{where}, {key}: {message[0].lower()}{message[1:]}") from None


def to_line(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False, default=struct_to_dict) + "\n"


def to_text(value) -> str:
    """The bytes of a JSON file; equal values give equal files."""
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write_jsonl(path, records) -> None:
    with atomic(path) as handle:
        handle.writelines(map(to_line, records))


def write_json(path, value) -> None:
    with atomic(path) as handle:
        handle.write(to_text(value))


def count_lines(path) -> int:
    """How many lines of a file are not blank."""
    with open(path, "rb") as handle:
        return sum(1 for line in handle if line.strip())


@contextlib.contextmanager
def with_path(path):
    """Add the path to OSErrors raised inside that name no file, and make one of any error of a
    library on a full disk.
    """
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        code = getattr(error, "errno", None)
        # safetensors and torch raise errors of their own where the disk is full
        if not code and ("No space left" in str(error) or _is_full(Path(path).parent)):
            code = errno.ENOSPC
        if code and getattr(error, "filename", None) is None:
            raise OSError(code, os.strerror(code), str(path)) from error
        raise


def _is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < ROOM


def refuse_special(path) -> None:
    """Raises BadInput for a device, a pipe or a socket, whose place a file would take, and for a
    folder, in which its seal would be.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise BadInput(f"{path}: not a regular file; a result needs the name of a file")


@contextlib.contextmanager
def atomic(path, mode: str = "w"):
    """Open a temporary file beside `path`, and rename it to `path` when the block ends without an
    error: a reader sees the old file or the whole new one. A link is followed.
    """
    refuse_special(path)
    path = Path(path)
    if path.is_symlink():
        path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    form: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        with with_path(path), open(temporary, mode, **form) as handle:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_SH)
            _delete_remnants(path)
            yield handle
            # on disk before it has its name: after a power cut the name would be on an empty file
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _delete_remnants(path: Path) -> None:
    """Delete what killed writers of a file left. A live writer holds a lock on its own, which may be
    gone meanwhile.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError), open(left, "rb") as remnant:
            fcntl.flock(remnant, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def publish_folder(work: Path, final) -> None:
    """Give a finished folder its name, in place of an older one."""
    final = Path(final)
    if final.exists() and not final.is_dir():
        remedy = "name another path, or delete the file"
        raise BadInput(f"{final}: is a file, and the output is a folder; {remedy}")
    for path in work.rglob("*"):
        if path.is_file() and not path.is_symlink():
            # safetensors makes its files readable by their owner only
            path.chmod(work.stat().st_mode & 0o666)
    # a folder cannot be renamed onto another: between the two renames there is none of this name
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        os.replace(final, old)
    os.replace(work, final)
    shutil.rmtree(old, ignore_errors=True)


def partial_folder(output) -> Path:
    """The folder for unfinished work on `output`, no declared output: Snakemake deletes those
    before it reruns a job.
    """
    folder = Path(output).parent / ".partial"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def in_chunks(
    output,
    items: Sequence,
    size: int,
    tag: str,
    work: Callable[[Any], Sequence[Any]],
    finished: Callable[[Path], None] = lambda path: None,
    line: Callable[[bytes], bytes] | None = None,
) -> Iterator[int]:
    """Apply `work`, which returns a record for each item, to `items` in chunks; yields the number
    of items done, from what an earlier, killed run has done on. tag: a digest of all that the
    records depend on.

    A chunk is kept in a file named by its first item, its length and its SHA-256. Chunks end at
    multiples of `size`, so a resumed run computes the same batches. At last `output` appears, each
    line mapped by `line`; before it gets its name, `finished` is called with the file that holds
    it. The chunks stay until `forget_chunks`: a Snakemake that starts while this job goes on
    deletes the finished output as incomplete, and the job then restores it.
    """
    refuse_special(output)
    folder = partial_folder(output) / f"{Path(output).name}.{tag}"
    with exclusive_lock(folder / "lock"):
        known = _whole_chunks(folder)
        chunks = []
        done = 0
        while done < len(items):
            if done not in known:
                yield done
                # up to the next multiple of `size`, where an earlier run may have stopped
                stop = min(done - done % size + size, len(items))
                records = work(items[done:stop])
                if len(records) != stop - done:
                    counted = f"{len(records)} records for a chunk of {stop - done} items"
                    raise RuntimeError(f"{output}: {counted}")
                known[done] = _write_chunk(folder, done, records), stop
            chunk, done = known[done]
            chunks.append(chunk)
        yield done
        with atomic(output, "wb") as handle:
            for chunk in chunks:
                with open(chunk, "rb") as lines:
                    handle.writelines(map(line, lines) if line else lines)
            handle.flush()
            finished(Path(handle.name))


def _write_chunk(folder: Path, first: int, records: Sequence[Any]) -> Path:
    """Write records to a file whose name says the first item, their number and its SHA-256: what a
    killed run has left is whole exactly if it has the digest in its name.
    """
    data = "".join(map(to_line, records)).encode()
    name = f"{first:09}-{len(records)}-{hashlib.sha256(data).hexdigest()}.jsonl"
    with atomic(folder / name, "wb") as handle:
        handle.write(data)
    return folder / name


def _whole_chunks(folder: Path) -> dict[int, tuple[Path, int]]:
    """{first item: (file, the item after the last)} of the chunks whose bytes have the digest in
    their name; the others go.
    """
    chunks = {}
    for chunk in sorted(folder.glob("*.jsonl")):
        name = re.fullmatch(r"(\d+)-(\d+)-([0-9a-f]{64})", chunk.stem)
        if name and int(name[2]) and file_digest(chunk) == name[3]:
            chunks[int(name[1])] = chunk, int(name[1]) + int(name[2])
        else:
            say(f"{chunk}: another SHA-256 than in its name: done again")
            chunk.unlink()
    return chunks


def forget_chunks(output, but: str | None = None) -> None:
    """Delete the chunks that `in_chunks` kept for `output`, whatever their tag, except those with
    the tag `but`, and those that a live process works on: of another run, in a clone that shares
    the results.
    """
    folder = Path(output).parent / ".partial"
    name = Path(output).name
    for chunks in folder.glob(f"{glob.escape(name)}.*"):
        if chunks.name == f"{name}.{but}" or not chunks.is_dir():
            continue
        with contextlib.suppress(OSError), open(chunks / "lock", "w") as handle:
            if try_lock(handle.fileno(), chunks / "lock"):
                shutil.rmtree(chunks, ignore_errors=True)
            else:
                say(f"{chunks} stays: {lock_holder(handle.fileno())} works on it")
    with contextlib.suppress(OSError):  # it still holds other chunks
        folder.rmdir()


@contextlib.contextmanager
def exclusive_lock(path) -> Iterator[None]:
    """Hold the exclusive lock of a file, after waiting while another process holds it.

    A killed Snakemake leaves its jobs running, and the next one starts the same jobs again: the two
    must not write to one file. The kernel releases the lock when its process ends, which may delete
    the file and its folder.
    """
    path = Path(path)
    while True:
        with _open_lock(path) as handle:
            if not try_lock(handle.fileno(), path):
                holder = lock_holder(handle.fileno())
                say(f"{path} is being written by another process ({holder}): waiting until it ends")
                fcntl.flock(handle, fcntl.LOCK_EX)
            # while this one waited, the holder may have deleted the file: a third process would
            # then lock another one of this name
            kept = False
            with contextlib.suppress(FileNotFoundError):
                kept = os.path.samefile(path, handle.fileno())
            if kept:
                yield
                return


def _open_lock(path: Path) -> TextIO:
    """Open the file of a lock, in whose folder another process may be deleting."""
    tries = 10_000
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return open(path, "w")
        except (FileNotFoundError, FileExistsError):  # the folder went between the two calls
            tries -= 1
            if not tries:
                raise
