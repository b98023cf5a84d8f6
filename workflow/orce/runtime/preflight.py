"""Checks before the first job: of what is there already, and of the machine, in the Snakefile's ``onstart``, which a dry run skips."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from orce.errors import BadInput
from orce.runtime import lease
from orce.runtime.process import lock_holder, locked

OTHERWISE = Path(".snakemake/other_settings")  # names of files that were made with other settings
KEEP = "ORCE_KEEP"


def kept(workflow) -> Callable[[str, str], bool]:
    """Whether Snakemake would keep a file of a rule whatever it was made with: it has no record of it, and is not told to make
    it again. A file that it is to touch gets a record."""
    from snakemake.io import IOFile

    asked = workflow.dag_settings
    forced = {*asked.forcerun, *(asked.targets if asked.forcetargets else ())}

    def unrecorded(file: str, rule: str) -> bool:
        recorded = workflow.persistence.metadata(IOFile(file)) is not None
        return workflow.touch or not (recorded or asked.forceall or {file, rule} & forced)

    return unrecorded


def same_settings(changed: dict[str, list[str]]) -> None:
    """Raises BadInput if files were made with other settings: {file: its settings that have changed}."""
    if not changed or os.environ.get(KEEP):
        return
    with contextlib.suppress(OSError):  # a folder that is only looked at
        OTHERWISE.parent.mkdir(exist_ok=True)
        OTHERWISE.write_text("\n".join(changed) + "\n")
    first, *others = changed
    files = f"{first} and {len(others)} more files" if others else first
    settings = list(dict.fromkeys(setting for settings in changed.values() for setting in settings))
    shown = f" ({'; '.join(settings[:3])}{'; ...' if settings[3:] else ''})" if settings else ""
    raise BadInput(
        f"{files}: made with other settings than now{shown}, and Snakemake would keep them; to make them again: "
        f"-R $(cat {OTHERWISE}); to keep them: {KEEP}=1 before the command"
    )


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
