"""Lease GPUs of this machine for the life of a command: ``python -m orce.runtime.lease N[/WANTED] -- COMMAND ...``.

Snakemake counts GPUs (``--resources gpu=4``) but tells no job which ones to use. This launcher does, with one file lock
per device. Everything that COMMAND starts inherits the locks, so a device is free again once the last of these
processes has ended, for whatever reason. The kernel keeps the locks: there is nothing to clean up. Standard library
only; docs/gpus.md.
"""

import fcntl
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

SELECTOR = "CUDA_VISIBLE_DEVICES"
DEVICE = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")
LOCK_FD = 100  # lowest descriptor of a lock, out of reach of a script's `3>file`
PATIENCE = 30.0  # seconds before the first message about a wait; doubles with each message
SLOWEST_POLL = 1.0


class Refused(Exception):
    """The command cannot run here; the message says why and what to do."""


def available() -> list[str]:
    """Ids of the GPUs that a job started from here may use: SELECTOR's, else nvidia-smi's."""
    return visible()[0]


def visible() -> tuple[list[str], str]:
    """The visible devices, and where they were read, in words for an error message."""
    if (pinned := os.environ.get(SELECTOR)) is not None:
        return _pinned(pinned), f"{SELECTOR}={pinned}"
    return _installed()


def _pinned(value: str) -> list[str]:
    """Devices of a CUDA_VISIBLE_DEVICES value. As in CUDA, the first entry that is not a device (-1, say) ends the list."""
    devices: list[str] = []
    for entry in map(str.strip, value.split(",")):
        if not DEVICE.fullmatch(entry):
            break
        if entry not in devices:
            devices.append(entry)
    return devices


def _installed() -> tuple[list[str], str]:
    """The machine's GPUs as nvidia-smi lists them, and its name; with its error if it fails."""
    import shutil  # only here: most launches find CUDA_VISIBLE_DEVICES or need no GPU, and should start quickly
    import subprocess

    name = "nvidia-smi"
    if not shutil.which(name):
        return [], f"there is no {name}"
    try:
        command = [name, "--query-gpu=index", "--format=csv,noheader"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"{name}: {error}"
    if done.returncode:
        return [], f"{name}: " + " ".join((done.stdout + done.stderr).split())[:200]
    return [line for line in done.stdout.split() if line.isdigit()], name


def lease(devices: list[str], count: int) -> list[str]:
    """Wait for `count` free devices, lock them for this process and its children, and set the environment variables."""
    folder = _folder(devices)
    # Only the job at the head of the queue collects devices, so jobs with one GPU cannot starve a job that needs two.
    # Jobs that see other devices have a queue of their own.
    queue = folder / f"queue-{zlib.crc32(','.join(devices).encode()):08x}"
    turn, taken, poll = _lock(queue), [], 0.05
    started, patience = time.monotonic(), PATIENCE
    while turn is None or not (taken := _take(folder, devices, count)):
        if time.monotonic() - started > patience:
            _say(_waiting(folder, devices, count, time.monotonic() - started))
            patience *= 2
        time.sleep(random.uniform(0.5, 1) * poll)
        poll = min(SLOWEST_POLL, poll * 1.2)
        turn = _lock(queue) if turn is None else turn
    os.close(turn)
    ids = ",".join(taken)
    os.environ.update(CUDA_VISIBLE_DEVICES=ids, ORCE_LEASE=ids, ORCE_LEASE_FOLDER=str(folder))
    return taken


def one() -> list[str]:
    """Take one of several visible GPUs for this process and its children; call it before CUDA starts. Raises Refused.

    For programs outside the workflow, which would else use all of them at once.
    """
    devices = available()
    return lease(devices, 1) if len(devices) > 1 else devices


def _folder(devices: list[str]) -> Path:
    """Folder of the locks, one per user and machine; inside a lease, a folder that only its own jobs share."""
    outer, ids = os.environ.get("ORCE_LEASE_FOLDER"), os.environ.get("ORCE_LEASE", "").split(",")
    if outer and set(devices) <= set(ids):
        return _private(Path(outer) / f"within-{_file(ids[0])}")
    # Not $XDG_RUNTIME_DIR: it disappears at logout while a run may go on, and cron and su do not set it.
    return _private(Path(tempfile.gettempdir()) / f"orce-gpus-{os.getuid()}")


def _private(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise Refused(f"no folder for the locks: {error}") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise Refused(
            f"{folder} must be a folder of your own with mode 0700; remove it, or set TMPDIR to another place"
        )
    return folder


def _file(device: str) -> str:
    return device.replace("/", "_")  # MIG-GPU-.../1/0, as older drivers write it


def _lock(path: Path) -> int | None:
    """Descriptor of the locked file, or None if another process holds the lock."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as error:
        os.close(handle)
        raise Refused(
            f"{path}: its file system has no locks ({error.strerror}); set TMPDIR to a folder on another"
        ) from None
    return handle


def _take(folder: Path, devices: list[str], count: int) -> list[str]:
    """Lock `count` free devices, or none: two jobs that each held one and waited for another would deadlock."""
    free = {device: handle for device in devices if (handle := _lock(folder / _file(device))) is not None}
    used = _marked(folder) if len(free) >= count else {}
    taken = [device for device in free if device not in used][:count]
    if len(taken) < count:
        taken = []
    for device, handle in free.items():
        if device in taken:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            fcntl.fcntl(handle, fcntl.F_DUPFD, LOCK_FD)  # children inherit this duplicate, which holds the lock
        os.close(handle)
    return taken


def _marked(folder: Path) -> dict[str, int]:
    """Leased devices and a process that uses each, found by the environment of this machine's processes.

    Python's subprocess and spawn close inherited files, so a worker of vllm or torchrun does not inherit the lock.
    If its parent is killed, the worker still uses the GPU, and only its environment shows it.
    """
    users: dict[str, int] = {}
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        try:
            environment = Path("/proc", pid, "environ").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if b"ORCE_LEASE_FOLDER=" not in environment:
            continue
        entries = (item.partition("=") for item in os.fsdecode(environment).split("\0"))
        values = {name: value for name, _, value in entries}
        if Path(values.get("ORCE_LEASE_FOLDER", "")).is_relative_to(folder):
            users |= dict.fromkeys(values.get("ORCE_LEASE", "").split(","), int(pid))
    return users


def _waiting(folder: Path, devices: list[str], count: int, seconds: float) -> str:
    used = _marked(folder)
    holders = [f"{device} by process {used.get(device) or _owner(folder / _file(device))}" for device in devices]
    return f"waiting {seconds:.0f} s for {count} of GPU {','.join(devices)}; leased: {', '.join(holders)}"


def _owner(path: Path) -> str:
    """The process that leased a device, as far as known, in words."""
    handle = _lock(path)
    if handle is not None:
        os.close(handle)
        return "none (free, kept for a job ahead in the queue)"
    return path.read_text().strip()


def main(argv: list[str]) -> int:
    """Replace this process by the command, with its GPUs. Returns an exit code only if that fails."""
    try:
        count, wanted, command = _arguments(argv)
        check_granted(count, wanted)
        devices, origin = visible() if count else ([], "")
        if count > len(devices):
            raise Refused(
                f"this job needs {in_words(count)} and this machine shows {len(devices)} ({origin}); lower gpus and "
                "training.gpus in the configuration (0 where device is cpu), or run it where there are more"
            )
        # If exactly as many devices are visible as needed, SLURM, a container or the user has chosen them. There is
        # nothing to lock: under cgroups the only device of every job is called 0.
        if 0 < count < len(devices):
            _say(f"GPU {','.join(lease(devices, count))}")
        elif count:
            _say(f"GPU {','.join(devices)}, as given")
        return _become(command)
    except (Refused, OSError) as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        return 130


def _arguments(argv: list[str]) -> tuple[int, int, list[str]]:
    numbers = argv[0].split("/") if argv else []
    if len(argv) < 3 or len(numbers) not in (1, 2) or not all(map(str.isdecimal, numbers)) or argv[1] != "--":
        raise Refused("usage: python -m orce.runtime.lease N[/WANTED] -- COMMAND ...   (N: number of GPUs, 0 or more)")
    return int(numbers[0]), int(numbers[-1]), argv[2:]


def check_granted(granted: int, wanted: int) -> None:
    """Refuse a job that got too few GPUs: Snakemake silently lowers its request to N of --resources gpu=N."""
    if granted < wanted:
        raise Refused(
            f"this job needs {in_words(wanted)} and --resources gpu={granted} leaves it {granted}; ask for at least "
            f"gpu={wanted}, or lower gpus and training.gpus in the configuration (0 where device is cpu)"
        )


def _become(command: list[str]) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the command would inherit that
    try:
        os.execvp(command[0], command)
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def in_words(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _say(text: str) -> None:
    print(f"[lease] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
