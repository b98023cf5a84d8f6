"""What a run needs of its machine, looked at once, before the first job: the Snakefile's ``onstart``.

Nothing here runs in a dry run. `workflow` is Snakemake's, of which only public attributes are read.
"""

import fcntl
import os
from pathlib import Path

from orce.runtime import lease
from orce.runtime.files import BadInput, lock_holder

LOCK = Path(".snakemake/orce.lock")


def check(workflow) -> None:
    """Raises BadInput with one line. Jobs that Snakemake starts on other machines come here too, and are let through."""
    if not workflow.is_main_process or workflow.touch:
        return
    alone()
    limit = workflow.global_resources.get("gpu")
    gpus([job.resources for job in workflow.dag.needrun_jobs()], limit and limit.value, workflow.local_exec)


def alone() -> None:
    """One Snakemake a folder. Its own lock outlives a kill -9 and is switched off (profiles/default); this one ends."""
    LOCK.parent.mkdir(exist_ok=True)
    handle = os.open(LOCK, os.O_RDWR | os.O_CREAT)  # left open: the lock ends with this process
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadInput(
            f"another Snakemake runs in {Path.cwd()} ({lock_holder(handle)}); wait for it, or end it first"
        ) from None


def gpus(jobs: list, limit: int | None, local: bool) -> None:
    """`jobs`: the resources of each job to run. `limit`: N of --resources gpu=N, None without it."""
    wanted = max((job.get("gpus_wanted", job.get("gpu", 0)) for job in jobs), default=0)
    if wanted == 0:
        return
    lower = "or lower gpus and training.gpus in the configuration (0 where device is cpu)"
    if limit is not None and limit < wanted:
        raise BadInput(
            f"--resources gpu={limit}, but a job needs {lease.in_words(wanted)}; give it gpu={wanted} or more, {lower}"
        )
    if not local:
        return
    devices, origin = lease.visible()
    shown = f"this machine shows {len(devices)} ({origin})"
    if wanted > len(devices):
        raise BadInput(f"a job needs {lease.in_words(wanted)} and {shown}; run it where there are more, {lower}")
    if limit is not None and limit > len(devices):
        raise BadInput(f"--resources gpu={limit}, but {shown}; give it gpu={len(devices)}")
