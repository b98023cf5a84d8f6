"""What every process of the library has: progress and messages, seeds, settings of speed, locks,
and a start and an end that cost little.

Of the CPU time before the first batch, three things that no stage needs took half:
- a sixth: Python's garbage collector walks the million objects of a stage's libraries, which live
  as long as the process, again and again, and for a second at the end (`pause_collection`);
- a quarter: transformers imports scikit-learn and scipy where they are installed;
- a tenth: it reads what files each installed package has (both: `hide_unused_packages`).
A program that imports the library keeps all three.
"""

import atexit
import contextlib
import ctypes
import errno
import fcntl
import gc
import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from orce.errors import BadInput, printable_lines

# seconds between lines; 0 prints every update
LINE_EVERY = float(os.environ.get("ORCE_PROGRESS_SECONDS", "10"))
SPEED = "ORCE_SPEED"  # an environment variable, so that changing these settings reruns nothing
# defaults of these settings
USUAL = {"chunk": 4096, "batch_tokens": 16384, "micro_batch_tokens": 4096}
# Of hidden states that a training keeps in memory (orce.training.frozen_layers). Where they would
# take more, it computes them in every step. Here, as `orce plan` asks for it without torch.
KEPT_BYTES = 2**30
UNUSED = ("sklearn", "scipy")  # imported by transformers for parts that no stage calls
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_starting = False  # from `pause_collection` to `resume_collection`
# {a property of prompts: how many have it, and of how many}
_tallies: dict[str, tuple[int, int]] = {}


class Progress:
    """Counts towards `total`: a line ``[label] done/total`` at most every `every` seconds, and at
    the end. A first count above 0 is what an earlier, killed run had finished.
    """

    def __init__(self, label: str, total: int, every: float = LINE_EVERY):
        self.label = label
        self.total = total
        self.every = every
        self.started = self.shown = time.monotonic()
        self.first = None

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = done
        if done < self.total and now - self.shown < self.every:
            return
        self.shown = now
        elapsed = now - self.started
        gained = done - self.first
        left = ""
        if gained and done < self.total:
            left = f", {(self.total - done) * elapsed / gained:.0f} s left"
        say(f"[{self.label}] {done}/{self.total}  {elapsed:.0f} s{left}  {note}".rstrip())


def say(text: str) -> None:
    """Print to standard error. What comes from outside (a server, a model's name) can start no
    escape sequence.
    """
    # in one piece, also where jobs share the screen
    print(f"{printable_lines(text)}\n", end="", file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print a result to standard output, where a stranger's text can start no escape sequence."""
    print(printable_lines(text))


def tally(what: str, held: int, seen: int) -> None:
    """Count prompts with some property, such as "hold a tab", said at the end of `say_tallies`:
    `held` of `seen` more prompts have it.
    """
    held_before, seen_before = _tallies.get(what, (0, 0))
    _tallies[what] = (held_before + held, seen_before + seen)


@contextlib.contextmanager
def say_tallies():
    """Say at the end what was counted in this block, and nothing that a program counted before it."""
    _tallies.clear()
    try:
        yield
    finally:
        for what, (held, seen) in _tallies.items():
            if held:
                say(f"{held} of {seen} prompts {what}")
        _tallies.clear()


def seed_of(base: int, *names: str) -> int:
    """A seed in [0, 2^63) that depends only on `base` and `names`, never on the order of items or
    on their batch.
    """
    text = "\x1f".join([str(base), *names])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def speed(kind: str) -> dict:
    """Options of the engine (`answers`), the reader (`confidence`) or the trainers (`training`),
    from $ORCE_SPEED.
    """
    try:
        return USUAL | json.loads(os.environ.get(SPEED, "{}")).get(kind, {})
    except (json.JSONDecodeError, AttributeError) as error:
        raise BadInput(f"${SPEED}: not a JSON object ({error})") from None


def lock_holder(handle: int) -> str:
    inode = f":{os.fstat(handle).st_ino}"
    with contextlib.suppress(OSError):  # not Linux
        for fields in map(str.split, Path("/proc/locks").read_text().splitlines()):
            if fields[1] != "->" and fields[5].endswith(inode):
                return f"process {fields[4]}"
    return "perhaps on another machine"


def try_lock(handle: int, path, kind: int = fcntl.LOCK_EX) -> bool:
    """Take the lock of an open file; False if another process holds it. Raises BadInput where the
    file system has no locks: two runs that write the same chunks would pass unnoticed.
    """
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        raise BadInput(
            f"{path}: its file system has no locks ({error.strerror}), and nothing would keep two runs apart; mount it with "
            "them (Lustre: -o flock; NFS: -o local_lock=flock), or run in a folder on another one"
        ) from None
    return True


class _Late(BaseException):
    """A block uses more CPU time than its `time_limit`. Not an Exception, which that code may catch."""


@contextlib.contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raises BadInput if this block uses more CPU seconds. For programs that others wrote, such as
    a model's chat template.

    A signal ends it, which Python delivers to the main thread only: in other threads there is no
    limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> NoReturn:
        raise _Late

    # of CPU time, not of the clock: a machine that is busy with other work ends nothing
    former = signal.signal(signal.SIGVTALRM, late)
    try:
        # again, where the first was caught
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
        yield
    except _Late:
        raise BadInput(f"{what} takes more than {seconds:g} s; it may loop for ever") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


def pause_collection() -> None:
    """Start-up: switch garbage collection off until `resume_collection`. With `hide_unused_packages`
    it saves 2.1 of the 5.0 CPU-seconds that the start of a job with a model takes.
    """
    global _starting
    _starting = True
    gc.disable()


def resume_collection() -> None:
    """The libraries are imported: collect again, but never the objects that are alive now."""
    global _starting
    if _starting:
        _starting = False
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def hide_unused_packages() -> Iterator[None]:
    """If a stage is starting, transformers, imported inside, does not find the packages of UNUSED.
    Nor does it list the files of all installed packages, which say that PIL, say, comes from pillow:
    no stage uses a package that is named otherwise.
    """
    if not _starting:
        yield
        return
    hidden = [name for name in UNUSED if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # to import statements: not installed
    listed = metadata.packages_distributions
    metadata.packages_distributions = dict
    # It looks for each package once. One that it found before is one that it will import.
    looked = sys.modules.get("transformers.utils.import_utils")
    for name in [*hidden] if looked else ():
        if getattr(looked, f"is_{name}_available")():
            hidden.remove(name)
            del sys.modules[name]
    try:
        yield
    finally:
        metadata.packages_distributions = listed
        for name in hidden:
            del sys.modules[name]


def keep_memory() -> None:
    """If a stage is starting, let glibc keep the memory of freed tensors for the next ones of the
    same size. By default it returns blocks of over 32 MB, such as the logits of a batch, and the
    kernel clears as many pages anew.
    """
    if not _starting:
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def end(code: int) -> NoReturn:
    """End the process with an exit code, after the atexit functions and threads of other libraries."""
    # freeing a model's objects one by one takes a second: the kernel does it at once
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if "torch" not in sys.modules or not all(thread.daemon for thread in others):
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextlib.contextmanager
def missing_extra_is_bad_input():
    """Turns ModuleNotFoundError into BadInput that names the extra which brings the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = re.escape((error.name or "").partition(".")[0].replace("_", "-"))
        needed = ""
        with contextlib.suppress(metadata.PackageNotFoundError):
            needed = "\n".join(metadata.requires("orce-reproduction") or [])
        extra = re.search(rf"^{package}(?![\w-]).*; extra == [\"'](\w+)", needed, re.MULTILINE)
        if extra is None:
            raise
        where = f"it comes with the extra {extra[1]}; in the checkout: pip install '.[{extra[1]}]'"
        raise BadInput(f"{error.name} is not installed; {where}") from None
