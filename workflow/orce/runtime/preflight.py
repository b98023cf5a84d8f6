"""Checks of the machine before the first job: the Snakefile's ``onstart``, which a dry run skips."""

import contextlib
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from orce.errors import BadInput
from orce.runtime import lease
from orce.runtime.process import lock_holder, locked


def check(workflow) -> None:
    """Raises BadInput if this machine cannot run the jobs of Snakemake's `workflow`, of which only public attributes are read.

    The jobs' own Snakemake processes come here too, and pass.
    """
    if not workflow.is_main_process or workflow.touch:
        return
    alone()
    jobs = list(workflow.dag.needrun_jobs())
    if not workflow.local_exec:
        unlocked(str(path) for job in jobs for path in job.output)
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
    a_job, given = f"a job needs {lease.in_words(needed)}", f"--resources gpu={limit}"
    if limit is not None and limit < needed:
        raise BadInput(f"{given}, but {a_job}; give it gpu={needed} or more, or {lease.LOWER}")
    if local:
        devices, origin = lease.visible()
        shown = f"this machine shows {len(devices)} ({origin})"
        if needed > len(devices):
            raise BadInput(f"{a_job} and {shown}; run it where there are more, or {lease.LOWER}")
        if limit is not None and limit > len(devices):
            raise BadInput(f"{given}, but {shown}; give it gpu={len(devices)}")
