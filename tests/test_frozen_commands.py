"""The commands of four dry runs, frozen at 372bc3d in tests/frozen: what is there is not computed again.

Frozen anew since: the demo's DPO, in demo and field, which has three epochs, and its readout, which is the mean (docs/choices.md); the tables, whose settings have the models
and data sets that they show alone.

Compared is what reaches the command line, job by job: the launcher, the stage and every option with its values, up to the
substitutions of RENAMED; not the order of options, nor two forms that the command line reads as one. The commands of seconds in
CHANGED may differ. Both name their reason. Frozen anew: python tests/test_frozen_commands.py
"""

import gzip
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import dry_run
import pytest
from conftest import ROOT, cases

FLAGS = ("--from-reference", "--reasoning")  # options that have no value
FROZEN = ROOT / "tests" / "frozen"
RUNS = {
    "paper": ["--configfile", "tests/data/one_round.yaml"],
    "24gb": ["--configfile", "config/24gb.yaml", "tests/data/one_round.yaml"],
    "demo": ["--configfile", "config/demo.yaml"],
    "field": ["--configfile", "config/demo.yaml", "config/field.yaml"],
}
# (pattern, replacement, reason): applied to the frozen commands and to the new ones.
RENAMED = cases("frozen_commands")
CHANGED = {  # {stage: reason}
    **dict.fromkeys(("agree", "derive"), "consistency is a measured method as the others"),
    **dict.fromkeys(("calibrate", "combine", "probe", "fit"), "what is fitted has one rule"),
    "overlap": "the order of its options",
    "fetch": "weights of the hub come before the first job with a GPU",
}


def commands(run: str) -> list[str]:
    code, said = dry_run.snakemake(ROOT, "-p", "--forceall", "--cores", "1", *RUNS[run], "--", "paper_tables")
    assert code == 0, said[-2000:]
    return sorted(re.findall(r"^Shell command: (.*-m orce .*)$", said, re.MULTILINE))


class Job(NamedTuple):
    """What a command tells its stage: the launcher, and every option with its values, in an order of their own."""

    launcher: str
    stage: str
    options: tuple[tuple[str, tuple[str, ...]], ...]


def job(command: str) -> Job:
    """A command without the order of its options, and without what the command line reads as the same.

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
    told = [(option, values) for option, values in given.items() if values or option in FLAGS]
    return Job(" ".join(words[:first]), words[first], tuple(sorted(told)))


def kept(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_the_commands_of_a_run_tell_their_stages_what_the_frozen_ones_told(run):
    frozen, now = kept(FROZEN / f"{run}.txt.gz"), commands(run)
    for pattern, replacement, _ in RENAMED:
        frozen, now = ([re.sub(pattern, replacement, command) for command in some] for some in (frozen, now))
    before = Counter(told for told in map(job, frozen) if told.stage not in CHANGED)
    after = Counter(told for told in map(job, now) if told.stage not in CHANGED)
    assert len(after) > 20
    assert before - after == Counter()
    assert after - before == Counter()


@pytest.mark.parametrize(("one", "other", "same"), [
    ("state --weights a/sft --prompts b/test.jsonl --shard", "state --prompts b/test.jsonl --weights a/sft/manifest.json", True),
    ("sample --prompts rl=b/rl.jsonl --out c", "sample --prompts b/rl.jsonl --out c", True),
    ("pairs --from-reference --out c", "pairs --out c", False),
    ("sample --prompts b/rl.jsonl --out c", "sample --prompts b/sft.jsonl --out c", False),
    ("state --weights a/sft --out c", "state --weights --out c", False),
])  # fmt: skip
def test_what_a_command_tells_is_compared_and_not_how(one, other, same):
    one, other = (f"python -m orce {command} 2>&1 | tee log" for command in (one, other))
    assert (job(one) == job(other)) is same


if __name__ == "__main__":
    for run in RUNS:
        lines = "\n".join(commands(run))
        (FROZEN / f"{run}.txt.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
