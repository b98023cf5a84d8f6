"""What Snakemake plans, frozen in tests/frozen: the commands of four runs at 372bc3d, since what is there is not computed again, and of
the demo and the paper each job's rule, what it reads and writes, and what it asks of the machine.

Frozen anew since: the demo's DPO, in demo and field, which has three epochs, and its readout, which is the mean (docs/choices.md); the tables, whose settings have the models
and data sets that they show alone.

Of commands is compared what reaches the command line, job by job: the launcher, the stage and every option with its values, up to the
substitutions of RENAMED; not the order of options, nor two forms that the command line reads as one. The commands of stages in
CHANGED may differ. Both name their reason. Frozen anew, with a reason in the commit: python tests/test_frozen_commands.py
"""

import contextlib
import gzip
import logging
import re
import shlex
from collections import Counter
from pathlib import Path

import dry_run
import pytest
from conftest import ROOT, cases

FLAGS = ("--from-reference", "--reasoning")  # options that have no value
FROZEN = ROOT / "tests" / "frozen"
RUNS = {
    "paper": ["config.yaml", "tests/data/one_round.yaml"],
    "24gb": ["config/24gb.yaml", "tests/data/one_round.yaml"],
    "demo": ["config/demo.yaml"],
    "field": ["config/demo.yaml", "config/field.yaml"],
}
# (pattern, replacement, reason): applied to the frozen commands and to the new ones.
RENAMED = cases("frozen_commands")
CHANGED = {  # {stage: reason}
    **dict.fromkeys(("agree", "derive"), "consistency is a measured method as the others"),
    **dict.fromkeys(("calibrate", "combine", "probe", "fit"), "what is fitted has one rule"),
    "overlap": "the order of its options",
    "fetch": "weights of the hub come before the first job with a GPU",
}


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


def told(command: str) -> tuple:
    """What a command tells its stage: (launcher, stage, every option with its values), without what the command line reads as the same.

    Options without a value have their default, a file of frozen prompts is named as its split, and a folder of weights may be
    named by its manifest.
    """
    words = shlex.split(command.partition(" 2>&1 | tee ")[0])
    first = words.index("orce") + 1
    options: dict[str, list[str]] = {}
    for word in words[first + 1 :]:
        if word.startswith("--"):
            values = options[word] = []
        else:
            values.append(word)
    given = {}
    for option, values in options.items():
        if option in ("--prompts", "--fit-on"):
            given[option] = tuple(value if "=" in value else f"{Path(value).stem}={value}" for value in values)
        elif option == "--manifests":
            given[option] = tuple(values)
        else:
            given[option] = tuple(value.removesuffix("/manifest.json") for value in values)
    options_told = [(option, values) for option, values in given.items() if values or option in FLAGS]
    return " ".join(words[:first]), words[first], tuple(sorted(options_told))


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_the_commands_of_a_run_tell_their_stages_what_the_frozen_ones_told(run):
    frozen, now = kept(run), commands(run)
    for pattern, replacement, _ in RENAMED:
        frozen, now = ([re.sub(pattern, replacement, command) for command in some] for some in (frozen, now))
    before, after = (Counter(one for one in map(told, some) if one[1] not in CHANGED) for some in (frozen, now))
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
        planned(RUNS[run][:1], "all")
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
