"""What Snakemake plans, frozen in tests/frozen: the commands of four runs, without the digests of modules; and of the demo and the paper
each job's rule, what it reads and writes, and what it asks of the machine.

All of it was frozen on 2026-11-30, with the settings of that day. Frozen anew, with a reason in the commit:
python tests/test_frozen_commands.py
"""

import contextlib
import gzip
import logging
import re
from collections import Counter

import dry_run
import pytest
from conftest import ROOT

FROZEN = ROOT / "tests" / "frozen"
RUNS = {
    "paper": ["config.yaml"],
    "24gb": ["config/24gb.yaml"],
    "demo": ["config/demo.yaml"],
    "field": ["config/demo.yaml", "config/field.yaml"],
}
# Digests of modules, which change with each of their lines.
CONTENTS = r'"contents": {("(config/demo|evidence/methods)/\w+\.py": "\w+"(, )?)+}, '


def kept(name: str) -> list[str]:
    return gzip.decompress((FROZEN / f"{name}.txt.gz").read_bytes()).decode().splitlines()


def planned(files: list[str], target: str) -> str:
    words = ["-p", "--forceall", "--cores", "1", "--configfile", *files, "--", target]
    code, said = dry_run.snakemake(ROOT, *words)
    assert code == 0, said[-2000:]
    return said


def commands(run: str) -> list[str]:
    said = planned(RUNS[run], "paper_tables")
    return sorted(re.findall(r"^Shell command: (.*-m orce .*)$", said, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_the_commands_of_a_run_tell_their_stages_what_the_frozen_ones_told(run):
    before, after = (Counter(re.sub(CONTENTS, "", one) for one in some) for some in (kept(run), commands(run)))
    assert len(after) > 20
    assert before - after == Counter()
    assert after - before == Counter()


class Planned(logging.Filter):
    """What Snakemake says of each job to its loggers; on the screen a job with a message of its own is that message alone."""

    def __init__(self):
        super().__init__()
        self.jobs = set()

    def filter(self, job: logging.LogRecord) -> bool:
        if hasattr(job, "rule_name"):
            files = [f"{kind} {' '.join(sorted(getattr(job, kind)))}" for kind in ("input", "output", "log")]
            limits = [f"benchmark {job.benchmark or ''}", f"threads {job.threads}", f"priority {job.priority}"]
            # Other resources are the machine's.
            asked = [f"{name} {job.resources.get(name)}" for name in ("gpu", "gpus_wanted", "mem_mb", "runtime")]
            self.jobs.add("; ".join([job.rule_name, *files, *limits, *asked]))
        return True


def jobs(run: str) -> list[str]:
    found, logger = Planned(), logging.getLogger("snakemake.logging")
    with contextlib.ExitStack() as stack:
        logger.addFilter(found)
        stack.callback(logger.removeFilter, found)
        planned(RUNS[run], "all")
    return sorted(f"{run}: {job}" for job in found.jobs)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["demo", "paper"])
def test_the_jobs_of_a_run_read_write_and_ask_for_what_the_frozen_ones_did(run):
    before, now = {job for job in kept("jobs") if job.startswith(f"{run}: ")}, {*jobs(run)}
    assert len(now) > 50
    assert now - before == set()
    assert before - now == set()


if __name__ == "__main__":
    made = {run: commands(run) for run in RUNS} | {"jobs": [*jobs("demo"), *jobs("paper")]}
    for name, lines in made.items():
        (FROZEN / f"{name}.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
