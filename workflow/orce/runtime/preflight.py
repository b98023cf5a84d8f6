"""Checks before the first job, in the Snakefile's ``onstart``, which a dry run skips: no other run in
this folder, a machine that can run the jobs, sources that the hub gives.
"""

import atexit
import contextlib
import fcntl
import os
import re
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

from orce.errors import BadInput, explain
from orce.runtime import machine
from orce.runtime.process import lock_holder, say, try_lock

RESULTS_LOCK = Path("results/.orce.lock")
LONGEST_NAME = 4096  # bytes of a folder's name in a lock
_held: dict[Path, int] = {}  # descriptors of this process's locks, open as long as it lives
# Stages that load the answer LLM of their cell.
ANSWERING = ("sample", "elicit", "likelihoods", "states")
# Stages that load its confidence LLM.
JUDGING = ("sft", "train", "candidates", "dpo", "state", "states")


def check(workflow, config) -> None:
    """Raises BadInput if this machine cannot run the jobs of Snakemake's `workflow`, of which only
    public attributes are read. The jobs' own Snakemake processes come here too, and pass.
    """
    if not workflow.is_main_process:
        return
    if workflow.touch:
        hold(RESULTS_LOCK)
        return
    jobs = list(workflow.dag.needrun_jobs())
    if not workflow.local_exec:
        refuse_running_jobs(map(str, chain.from_iterable(job.output for job in jobs)))
    limit = workflow.global_resources.get("gpu")
    resources = [job.resources for job in jobs]
    needed = machine.gpus_needed(resources, limit and limit.value, workflow.local_exec)
    lacks = []
    # under a scheduler, the jobs run on other machines
    if needed and workflow.local_exec and config.device == "cuda":
        lacks += machine.missing_here(config.python, config.dtype)
    lacks += machine.broken_weights(config, _loaded(config, jobs))
    if lacks:
        raise BadInput("\n".join(lacks))
    machine.check_hub(_asked_of_the_hub(config, jobs))
    hold(RESULTS_LOCK)  # last: a run that is refused leaves no folder


def _loaded(config, jobs) -> set[str]:
    """The models that some jobs load."""
    loaded = set()
    for job in jobs:
        stage = job.rule.name.removeprefix("tune_")
        if stage in ANSWERING:
            loaded.add(job.wildcards.model)
        if stage in JUDGING:
            name = job.wildcards.model
            loaded.add(config.models[name].confidence or name)
    return loaded


def _asked_of_the_hub(config, jobs) -> dict[tuple[str, str | None], str]:
    """{(name, revision): "model" or "data set"} of what some jobs fetch."""
    asked = {}
    for job in jobs:
        if job.rule.name == "fetch":
            source = config.models[job.wildcards.model].source
            asked[source["hub"], source.get("revision")] = "model"
        if job.rule.name == "prompts":
            source = config.datasets[job.wildcards.dataset].source
            if "hub" in source:
                asked[source["hub"], source.get("revision")] = "data set"
    return asked


def tell_replaced(tables: list[str], planned: Collection[str]) -> None:
    """Say that a run puts its tables where those of another configuration are."""
    document = Path("paper_tables/tables.tex")
    if str(document) not in planned or not document.exists():
        return
    text = document.read_text(encoding="utf-8")
    there = re.findall(r"^\\input\{(.+)\.tex\}$", text, re.MULTILINE)
    if not {*there} <= {*tables}:
        replaced = f"are replaced: they show {', '.join(there)}, now {', '.join(tables)}"
        remedy = "to keep the former, copy the folder, or run in another (--directory)"
        say(f"paper_tables/tables.* and comparison.* {replaced}; {remedy}")


def hold(lock: Path) -> None:
    """Keep the lock of a file as long as this process lives, with the folder of this run in it.
    Raises BadInput naming the run that holds it.

    One Snakemake per folder of results, which several clones may have as a link: each would delete
    what the other makes. Snakemake's own lock survives kill -9 and is off
    (profiles/default); these end with the process.
    """
    here = str(Path.cwd())
    try:
        lock.parent.mkdir(exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise BadInput(explain(error)) from None
    known = _held.get(lock.resolve())
    if known is not None and os.path.samestat(os.fstat(known), os.fstat(handle)):
        os.close(handle)  # an earlier run in this process
        return
    if not try_lock(handle, lock):
        holder = lock_holder(handle)
        there = os.pread(handle, LONGEST_NAME, 0).decode("utf-8", "replace") or here
        os.close(handle)
        shared = f" and writes to {lock.parent.resolve()} as this one does" if there != here else ""
        raise BadInput(
            f"another Snakemake runs in {there} ({holder}){shared}; wait for it, or end it first"
        )
    os.ftruncate(handle, 0)
    os.pwrite(handle, here.encode(errors="replace"), 0)
    _held[lock.resolve()] = handle
    atexit.register(os.ftruncate, handle, 0)  # results that are published name no folder


def refuse_running_jobs(planned: Iterable[str]) -> None:
    """Raises BadInput if a job of an earlier run still writes a file of this run. On this machine
    the new job waits for the old one. Under a scheduler the wait would use up the new job's time
    limit, and its retries after that.
    """
    # of a file and, where that is a folder of weights, of its manifest
    folders = {*chain.from_iterable(Path(path).parents[:2] for path in planned)}
    for folder in sorted(folders):
        for path in [*folder.glob(".partial/*/lock"), *folder.glob(".partial/*.lock*")]:
            # A job that has just ended may delete it between the two calls.
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as handle:
                if not try_lock(handle.fileno(), path, fcntl.LOCK_SH):
                    raise BadInput(
                        f"{path} is being written by a job of an earlier run ({lock_holder(handle.fileno())}); cancel "
                        "it (squeue --me, scancel JOBID) or wait for its end, then start again"
                    )
