"""Checks of the machine before the first job: the Snakefile's ``onstart``, which a dry run skips."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from orce.errors import BadInput
from orce.runtime import lease
from orce.runtime.process import lock_holder, locked, say


def check(workflow) -> None:
    """Raises BadInput if this machine cannot run the jobs of Snakemake's `workflow`, of which only public attributes are read.

    The jobs' own Snakemake processes come here too, and pass.
    """
    if not workflow.is_main_process or workflow.touch:
        return
    alone()
    jobs = list(workflow.dag.needrun_jobs())
    planned = {str(path) for job in jobs for path in job.output}
    if not workflow.local_exec:
        unlocked(planned)
    for line in orphans(planned):
        say(line)
    limit = workflow.global_resources.get("gpu")
    gpus([job.resources for job in jobs], limit and limit.value, workflow.local_exec)


def alone() -> None:
    """One Snakemake per folder. Its own lock survives kill -9 and is off (profiles/default); this one ends with it."""
    lock = Path(".snakemake/orce.lock")
    lock.parent.mkdir(exist_ok=True)
    handle = os.open(lock, os.O_RDWR | os.O_CREAT)  # left open: the lock lasts as long as this process
    if not locked(handle, lock):
        raise BadInput(f"another Snakemake runs in {Path.cwd()} ({lock_holder(handle)}); wait for it, or end it first")


def unlocked(planned: Iterable[str]) -> None:
    """Raises BadInput if a job of an earlier run still writes a file of this run.

    On this machine the new job waits for the old one. Under a scheduler the wait would use up the new job's time limit,
    and its retries after that.
    """
    for folder in sorted({parent for path in planned for parent in Path(path).parents[:2]}):
        for path in [*folder.glob(".partial/*/lock"), *folder.glob(".partial/*.lock*")]:
            # A job that has just ended may delete it between the two calls.
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as handle:
                if not locked(handle.fileno(), path, fcntl.LOCK_SH):
                    raise BadInput(
                        f"{path} is being written by a job of an earlier run ({lock_holder(handle.fileno())}); cancel "
                        "it (squeue --me, scancel JOBID) or wait for its end, then start again"
                    )


def gpus(jobs: list, limit: int | None, local: bool) -> None:
    """Raises BadInput if a job needs more GPUs than it can get.

    jobs: the resources of each job to run. limit: N of --resources gpu=N, or None. local: the jobs run on this machine.
    """
    needed = max((job.get("gpus_wanted", job.get("gpu", 0)) for job in jobs), default=0)
    if needed == 0:
        return
    lower = "or lower gpus and training.gpus in the configuration (0 where device is cpu)"
    if limit is not None and limit < needed:
        wanted = f"a job needs {lease.in_words(needed)}; give it gpu={needed} or more"
        raise BadInput(f"--resources gpu={limit}, but {wanted}, {lower}")
    if not local:
        return
    devices, origin = lease.visible()
    shown = f"this machine shows {len(devices)} ({origin})"
    if needed > len(devices):
        raise BadInput(f"a job needs {lease.in_words(needed)} and {shown}; run it where there are more, {lower}")
    if limit is not None and limit > len(devices):
        raise BadInput(f"--resources gpu={limit}, but {shown}; give it gpu={len(devices)}")


def orphans(planned: Iterable[str]) -> Iterator[str]:
    """One line for each job of an earlier run still at work in this folder. `planned`: the outputs of this run, whose first
    job has not begun."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "cwd") != os.getcwd():
                continue
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            environment = b"\0" + (folder / "environ").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if b"\0ORCE_SPEED=" not in environment or "orce" not in words or "--out" not in words:  # each job's variable
            continue
        rule, out = words[words.index("orce") + 1], words[words.index("--out") + 1]
        what = f"process {folder.name} of an earlier run is still at work on {out} ({rule})"
        if any(path == out or path.startswith(f"{out}/") for path in planned):
            yield f"{what}; this run waits for it and goes on from what it leaves"
        else:
            yield f"{what}, which this run does not make; to stop it: kill {folder.name}"
