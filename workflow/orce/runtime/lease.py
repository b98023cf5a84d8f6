"""Lease GPUs of this machine for the life of a command: ``python -m orce.runtime.lease N[/WANTED] -- COMMAND ...``.

Snakemake counts GPUs (``--resources gpu=4``) but says to no job which ones are its own. This launcher does: a file lock
for each device, inherited by everything that COMMAND starts, so that a device is free when the last of them has ended,
however it ended. The locks are the kernel's, and there is nothing to clean up. Standard library only; docs/gpus.md.
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

DEVICE = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")
LOCK_FD = 100  # locks live at or above this descriptor, where no script's `3>file` closes them by accident
PATIENCE = 30.0  # seconds before the first word about a wait; it doubles with each further word
SLOWEST_POLL = 1.0


class Refused(Exception):
    """The command cannot run here; the message says why and what to do."""


def available() -> list[str]:
    """Ids of the GPUs that a job started from here may use: CUDA_VISIBLE_DEVICES where it is set, else nvidia-smi's."""
    return visible()[0]


def visible() -> tuple[list[str], str]:
    """The visible devices, and the words for an error message that say where they were read."""
    pinned = os.environ.get("CUDA_VISIBLE_DEVICES")
    if pinned is not None:
        return _pinned(pinned), f"CUDA_VISIBLE_DEVICES={pinned}"
    return _installed()


def _pinned(value: str) -> list[str]:
    """Devices of a CUDA_VISIBLE_DEVICES value. As in CUDA, the first entry that is no device (-1, say) ends the list."""
    devices: list[str] = []
    for entry in map(str.strip, value.split(",")):
        if not DEVICE.fullmatch(entry):
            break
        if entry not in devices:
            devices.append(entry)
    return devices


def _installed() -> tuple[list[str], str]:
    import subprocess  # only here: most launches find CUDA_VISIBLE_DEVICES or need no GPU, and should start quickly

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
    """Wait for `count` free devices, lock them for this process and all that it starts, and mark the environment."""
    folder = _folder(devices)
    # One job at a time stands at the head of the queue and collects what becomes free: a job of two GPUs is not
    # overtaken forever by jobs of one. Jobs that see other devices have a queue of their own.
    queue = folder / f"queue-{zlib.crc32(','.join(devices).encode()):08x}"
    turn, poll = None, 0.05
    started, patience = time.monotonic(), PATIENCE
    while True:
        turn = _lock(queue) if turn is None else turn
        taken = [] if turn is None else _take(folder, devices, count)
        if taken:
            break
        if time.monotonic() - started > patience:
            _say(_waiting(folder, devices, count, time.monotonic() - started))
            patience *= 2
        time.sleep(random.uniform(0.5, 1) * poll)
        poll = min(SLOWEST_POLL, poll * 1.2)
    os.close(turn)
    ids = ",".join(taken)
    os.environ.update(CUDA_VISIBLE_DEVICES=ids, ORCE_LEASE=ids, ORCE_LEASE_FOLDER=str(folder))
    return taken


def _folder(devices: list[str]) -> Path:
    """Folder of the locks: this user's, on this machine; inside a lease, one that only that lease's jobs share."""
    outer, ids = os.environ.get("ORCE_LEASE_FOLDER"), os.environ.get("ORCE_LEASE", "").split(",")
    if outer and set(devices) <= set(ids):
        return _private(Path(outer) / f"within-{_file(ids[0])}")
    # Not $XDG_RUNTIME_DIR: it goes away at logout, under a run that was left going, and cron and su do not have it.
    return _private(Path(tempfile.gettempdir()) / f"orce-gpus-{os.getuid()}")


def _private(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise Refused(f"no folder for the locks: {error}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Refused(
            f"{folder} must be a folder of your own with mode 0700; remove it, or set TMPDIR to another place"
        )
    return folder


def _file(device: str) -> str:
    return device.replace("/", "_")  # MIG-GPU-.../1/0, as older drivers write it


def _lock(path: Path) -> int | None:
    """Descriptor of the locked file, or None where another process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _take(folder: Path, devices: list[str], count: int) -> list[str]:
    """Lock `count` free devices, or none: a job that kept one while it waited for the next could wait forever."""
    free = {device: handle for device in devices if (handle := _lock(folder / _file(device))) is not None}
    used = _marked(folder) if len(free) >= count else {}
    taken = [device for device in free if device not in used][:count]
    if len(taken) < count:
        taken = []
    for device, handle in free.items():
        if device in taken:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            fcntl.fcntl(handle, fcntl.F_DUPFD, LOCK_FD)  # this duplicate is inherited, and the lock lives with it
        os.close(handle)
    return taken


def _marked(folder: Path) -> dict[str, int]:
    """Leased devices with a process that uses each, by the environment of this machine's processes.

    Python starts its children without its open files (subprocess, spawn), so a worker of vllm or of accelerate does
    not inherit a lock; when its parent is killed, it lives on with the GPU and only its environment tells.
    """
    found: dict[str, int] = {}
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        try:
            environment = Path("/proc", pid, "environ").read_bytes()
        except OSError:  # ended meanwhile, or another user's
            continue
        if b"ORCE_LEASE_FOLDER=" not in environment:
            continue
        values = dict(item.partition("=")[::2] for item in os.fsdecode(environment).split("\0"))
        if Path(values.get("ORCE_LEASE_FOLDER", "")).is_relative_to(folder):
            found |= dict.fromkeys(values.get("ORCE_LEASE", "").split(","), int(pid))
    return found


def _waiting(folder: Path, devices: list[str], count: int, seconds: float) -> str:
    used = _marked(folder)
    holders = [f"{device} by process {used.get(device) or _owner(folder / _file(device))}" for device in devices]
    return f"waiting {seconds:.0f} s for {count} of GPU {','.join(devices)}; leased: {', '.join(holders)}"


def _owner(path: Path) -> str:
    """The process that leased a device, as far as is known."""
    handle = _lock(path)
    if handle is not None:
        os.close(handle)
        return "none (free, kept for a job ahead in the queue)"
    return path.read_text().strip()


def main(argv: list[str]) -> int:
    """Become the command, with its GPUs. Returns an exit code only where that is not possible."""
    try:
        count, wanted, command = _arguments(argv)
        check_granted(count, wanted)
        devices, origin = visible() if count else ([], "")
        if count > len(devices):
            raise Refused(
                f"this job needs {in_words(count)} and this machine shows {len(devices)} ({origin}); lower gpus and "
                "training.gpus in the configuration (0 where device is cpu), or run it where there are more"
            )
        # As many as asked for: SLURM, a container or the user has chosen already, and under cgroups every job's only
        # device is called 0.
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
    """Refuse a job that got less than it wants: Snakemake scales it silently down to N of --resources gpu=N."""
    if granted < wanted:
        raise Refused(
            f"this job needs {in_words(wanted)} and --resources gpu={granted} leaves it {granted}; ask for at least "
            f"gpu={wanted}, or lower gpus and training.gpus in the configuration (0 where device is cpu)"
        )


def _become(command: list[str]) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and an ignored signal stays so in the command
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
