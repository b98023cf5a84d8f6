"""The jobs of the demo and of the paper as Snakemake plans them, frozen in tests/frozen/jobs.txt.gz: a job's rule, what it reads and
writes, and what it asks of the machine. The commands are frozen beside them (test_frozen_commands.py).

Frozen anew, with a reason in the commit: python tests/test_frozen_jobs.py
"""

import contextlib
import gzip
import logging

import dry_run
import pytest
from conftest import ROOT

FROZEN = ROOT / "tests" / "frozen" / "jobs.txt.gz"
RUNS = {"demo": "config/demo.yaml", "paper": "config.yaml"}
ASKED = ("gpu", "gpus_wanted", "mem_mb", "runtime")  # of the resources; others are the machine's


class Planned(logging.Filter):
    """What Snakemake says of each job to its loggers; on the screen a job with a message of its own is that message alone."""

    def __init__(self):
        super().__init__()
        self.jobs = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, "rule_name"):
            self.jobs.add(described(record))
        return True


def described(job) -> str:
    """A job in a line, the files of each kind in the order of their names."""
    files = [f"{kind} {' '.join(sorted(getattr(job, kind)))}" for kind in ("input", "output", "log")]
    files.append(f"benchmark {job.benchmark or ''}")
    asked = [f"{name} {job.resources.get(name)}" for name in ASKED]
    return "; ".join([job.rule_name, *files, f"threads {job.threads}", f"priority {job.priority}", *asked])


def jobs(run: str) -> list[str]:
    planned, logger = Planned(), logging.getLogger("snakemake.logging")
    files = ("--snakefile", ROOT / "Snakefile", "--configfile", ROOT / RUNS[run])
    with contextlib.ExitStack() as stack:
        logger.addFilter(planned)
        stack.callback(logger.removeFilter, planned)
        code, said = dry_run.snakemake(ROOT, *files, "--forceall", "--cores", "1", "--", "all")
    assert code == 0, said[-2000:]
    return sorted(f"{run}: {job}" for job in planned.jobs)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_the_jobs_of_a_run_read_write_and_ask_for_what_the_frozen_ones_did(run):
    frozen = gzip.decompress(FROZEN.read_bytes()).decode().splitlines()
    before, now = {job for job in frozen if job.startswith(f"{run}: ")}, {*jobs(run)}
    assert len(now) > 50
    assert now - before == set()
    assert before - now == set()


if __name__ == "__main__":
    lines = "\n".join(job for run in RUNS for job in jobs(run))
    FROZEN.write_bytes(gzip.compress(lines.encode(), mtime=0))
