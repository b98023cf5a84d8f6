"""The commands of four dry runs, frozen at 372bc3d in tests/frozen: what is there is not computed again.

Frozen anew since: the demo's DPO, in demo and field, which has three epochs (docs/choices.md).

A command that loads a model is equal to the byte, up to the substitutions of RENAMED. The commands of seconds in CHANGED may
differ. Both name their reason. Frozen anew: python tests/test_frozen_commands.py
"""

import gzip
import re
from collections import Counter
from pathlib import Path

import dry_run
import pytest
from conftest import ROOT

FROZEN = ROOT / "tests" / "frozen"
RUNS = {
    "paper": ["--configfile", "tests/data/one_round.yaml"],
    "24gb": ["--configfile", "config/24gb.yaml", "tests/data/one_round.yaml"],
    "demo": ["--configfile", "config/demo.yaml"],
    "field": ["--configfile", "config/demo.yaml", "config/field.yaml"],
}
# (pattern, replacement, reason): applied to the frozen commands and to the new ones.
RENAMED: list[tuple[str, str, str]] = [
    (r'(--task |"task": "|"(?:arithmetic|worldfacts)(?:-validation)?": ")(arithmetic|worldfacts)\b',
     r"\1config/demo/\2.py", "the demo's tasks are own tasks by path"),
    (r'("label": "ordered \w+/smollm2", .*"module": )"ordered"',
     r'\1"evidence/methods/ordered.py"', "ordered is a module by path, as users write theirs"),
    (r'"contents": {("(config/demo|evidence/methods)/\w+\.py": "\w+"(, )?)+}, ',
     "", "the digests of these modules are settings, as of every own module"),
    (r'("label": "conftuner [^"]+", .*"stage": )\{[^}]*\}', r"\1{}", "ConfTuner keeps every value possible, in longer trainings"),
    (" {2,}", " ", "an option that a job does not have leaves no blank"),
]  # fmt: skip
CHANGED: dict[str, str] = {  # {stage: reason}
    **dict.fromkeys(("agree", "derive"), "consistency is a measured method as the others"),
    **dict.fromkeys(("calibrate", "combine", "probe", "fit"), "what is fitted has one rule"),
    "overlap": "the order of its options",
    "fetch": "weights of the hub come before the first job with a GPU",
}


def commands(run: str) -> list[str]:
    code, said = dry_run.snakemake(ROOT, "-p", "--forceall", "--cores", "1", *RUNS[run], "--", "paper_tables")
    assert code == 0, said[-2000:]
    return sorted(re.findall(r"^Shell command: (.*-m orce .*)$", said, re.MULTILINE))


def stage(command: str) -> str:
    return re.search(r"-m orce ([\w-]+)", command)[1]


def kept(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_the_commands_of_a_run_are_the_frozen_ones(run):
    frozen, now = kept(FROZEN / f"{run}.txt.gz"), commands(run)
    for pattern, replacement, _ in RENAMED:
        frozen, now = ([re.sub(pattern, replacement, command) for command in some] for some in (frozen, now))
    before = Counter(command for command in frozen if stage(command) not in CHANGED)
    after = Counter(command for command in now if stage(command) not in CHANGED)
    assert before - after == Counter()
    assert after - before == Counter()


if __name__ == "__main__":
    for run in RUNS:
        lines = "\n".join(commands(run))
        (FROZEN / f"{run}.txt.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
