"""Lease GPUs of this machine for the life of a command: ``python -m orce.runtime.lease N[/WANTED]
-- COMMAND ...``.

Snakemake counts GPUs (``--resources gpu=4``) but assigns none to a job. This launcher does, with
one file lock per device. Everything that COMMAND starts inherits the locks, so a device is free
again once the last of these processes has ended, for whatever reason. The kernel keeps the locks:
there is nothing to clean up (docs/one-node.md).
"""

import contextlib
import fcntl
import itertools
import os
import random
import re
import signal
import stat
import sys
import tempfile
import time
import zlib
from pathlib import Path

from orce.errors import BadInput, printable

SELECTOR = "CUDA_VISIBLE_DEVICES"
DEVICE = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")
LOCK_FD = 100  # lowest descriptor of a lock, out of reach of a script's `3>file`
PATIENCE = 30.0  # seconds before the first message about a wait; doubles with each message
SLOWEST_POLL = 1.0
LOWER = "lower gpus and training.gpus in the configuration (0 where device is cpu)"


def visible() -> tuple[list[str], str]:
    """Ids of the GPUs that a job started from here may use, and where they were read, in words for
    an error message.
    """
    value = os.environ.get(SELECTOR)
    if value is not None:
        # As in CUDA, the first entry that is not a device (-1, say) ends the list.
        entries = itertools.takewhile(DEVICE.fullmatch, map(str.strip, value.split(",")))
        return [*dict.fromkeys(entries)], f"{SELECTOR}={value}"
    # only here: most launches find the variable or need no GPU, and should start quickly
    import subprocess

    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        return [], "there is no nvidia-smi"
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi: {error}"
    if done.returncode:
        return [], "nvidia-smi: " + " ".join((done.stdout + done.stderr).split())[:200]
    return [line for line in done.stdout.split() if line.isdigit()], "nvidia-smi"


def lease(devices: list[str], count: int) -> list[str]:
    """Wait for `count` free devices, lock them for this process and its children, and set the
    environment variables.
    """
    folder = _folder(devices)
    poll = 0.05
    started = time.monotonic()
    patience = PATIENCE
    # Only the job at the head of the queue collects devices, so jobs with one GPU cannot starve a
    # job that needs two. Jobs that see other devices have a queue of their own.
    queue = f"queue-{zlib.crc32(','.join(devices).encode()):08x}"
    turn = None  # the lock of the queue, at its head
    while True:
        if turn is None:
            turn = _lock(folder, queue)
        if turn is not None:
            taken = _take(folder, devices, count)
            if taken:
                break
        waited = time.monotonic() - started
        if waited > patience:
            users = [f"{device} by process {pid}" for device, pid in _users(folder).items()]
            leased = ", ".join(users) or "by an unknown process"
            _say(f"waiting {waited:.0f} s for {count} of GPU {','.join(devices)}; leased: {leased}")
            patience *= 2
        time.sleep(random.uniform(0.5, 1) * poll)
        poll = min(SLOWEST_POLL, poll * 1.2)
    os.close(turn)
    ids = ",".join(taken)
    os.environ.update(CUDA_VISIBLE_DEVICES=ids, ORCE_LEASE=ids, ORCE_LEASE_FOLDER=str(folder))
    return taken


def _folder(devices: list[str]) -> Path:
    """Folder of the locks, one per user and machine; inside a lease, a folder that only its own
    jobs share.
    """
    # not in $XDG_RUNTIME_DIR: it disappears at logout while a run may go on, and cron and su do not
    # set it
    folder = Path(tempfile.gettempdir()) / f"orce-gpus-{os.getuid()}"
    outer = os.environ.get("ORCE_LEASE_FOLDER")
    ids = os.environ.get("ORCE_LEASE", "").split(",")
    if outer and set(devices) <= set(ids):
        folder = Path(outer) / f"within-{ids[0].replace('/', '_')}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise BadInput(f"no folder for the locks: {error}") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise BadInput(
            f"{folder} must be a folder of your own with mode 0700; remove it, or set TMPDIR to another place"
        )
    return folder


def _lock(folder: Path, name: str) -> int | None:
    """Descriptor of the locked file of a device or queue, or None if another process holds the
    lock.
    """
    path = folder / name.replace("/", "_")  # MIG-GPU-.../1/0, as older drivers write it
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        no_locks = f"{path}: its file system has no locks ({error.strerror})"
        raise BadInput(f"{no_locks}; set TMPDIR to a folder on another") from None
    return handle


def _take(folder: Path, devices: list[str], count: int) -> list[str]:
    """Lock `count` free devices, or none: two jobs that each held one and waited for another would
    deadlock.
    """
    free = {}
    for device in devices:
        handle = _lock(folder, device)
        if handle is not None:
            free[device] = handle
    used = _users(folder) if len(free) >= count else {}
    taken = [device for device in free if device not in used][:count]
    if len(taken) < count:
        taken = []
    for device, handle in free.items():
        if device in taken:
            # children inherit this duplicate, which holds the lock
            fcntl.fcntl(handle, fcntl.F_DUPFD, LOCK_FD)
        os.close(handle)
    return taken


def _users(folder: Path) -> dict[str, str]:
    """Leased devices and a process that uses each, found by the environment of this machine's
    processes.

    Python's subprocess and spawn close inherited files, so a worker of vllm or torchrun does not
    inherit the lock. If its parent is killed, the worker still uses the GPU, and only its
    environment shows it.
    """
    users: dict[str, str] = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            entries = os.fsdecode(path.read_bytes()).split("\0")
            environment = dict(entry.split("=", 1) for entry in entries if "=" in entry)
            if Path(environment.get("ORCE_LEASE_FOLDER", "")).is_relative_to(folder):
                leased = environment.get("ORCE_LEASE", "").split(",")
                users |= dict.fromkeys(leased, path.parent.name)
    return users


def main(argv: list[str]) -> int:
    """Replace this process by the command, with its GPUs. Returns an exit code only if that fails."""
    try:
        numbers = re.fullmatch(r"(\d+)(?:/(\d+))?", argv[0]) if argv[1:2] == ["--"] else None
        command = argv[2:]
        if numbers is None or not command:
            raise BadInput(
                "usage: python -m orce.runtime.lease N[/WANTED] -- COMMAND ...   (N: number of GPUs, 0 or more)"
            )
        count = int(numbers[1])
        take(count, int(numbers[2] or count))
    except (BadInput, OSError) as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    # Python ignores it, and the command would inherit that
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def take(count: int, wanted: int) -> None:
    """Lease `count` GPUs for a job that needs `wanted`. Raises BadInput if it cannot have them."""
    if count < wanted:  # Snakemake silently lowers a job's request to N of --resources gpu=N
        raise BadInput(
            f"this job needs {in_words(wanted)} and --resources gpu={count} leaves it {count}; ask for at least "
            f"gpu={wanted}, or {LOWER}"
        )
    if count == 0:
        return
    devices, origin = visible()
    if count > len(devices):
        raise BadInput(
            f"this job needs {in_words(count)} and this machine shows {len(devices)} ({origin}); {LOWER}, or run it "
            "where there are more"
        )
    # If exactly as many devices are visible as needed, SLURM, a container or the user has chosen
    # them. There is nothing to lock: under cgroups the only device of every job is called 0.
    if count == len(devices):
        _say(f"GPU {','.join(devices)}, as given")
    else:
        _say(f"GPU {','.join(lease(devices, count))}")


def in_words(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _say(text: str) -> None:
    print(f"[lease] {printable(text)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
