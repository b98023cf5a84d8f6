"""The commands that Snakemake plans, read from its dry run: what each job reads and writes, and so
which jobs wait for which.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from orce.artefacts.store import RESULTS
from orce.config.check import PAPER
from orce.errors import BadInput

SNAKEFILE = Path(__file__).parents[3] / "Snakefile"
# Options of files that a command writes.
WRITTEN = ("--out", "--manifest", "--extra", "--fit", "--verdicts", "--disagreements", "--meanings")


class Command(NamedTuple):
    """The command of a planned job. stage: its stage; options: {option: its values}, as `orce
    STAGE` takes them.
    """

    stage: str
    options: dict[str, list[str]]

    @property
    def words(self) -> list[str]:
        """What follows `orce`."""
        words = [self.stage]
        for option, values in self.options.items():
            words += [option, *values]
        return words

    @property
    def out(self) -> str:
        return self.options["--out"][0]

    @property
    def writes(self) -> set[str]:
        """The files of the run that it makes."""
        return {*chain.from_iterable(self.options.get(option, []) for option in WRITTEN)}

    @property
    def reads(self) -> set[str]:
        """The files of the run that it is given."""
        given: list[str] = []
        for option, values in self.options.items():
            if option not in WRITTEN:
                given += values
        return {value for value in given if Path(value).parts[0] == RESULTS}


def plan_jobs(configfiles: list[str]) -> list[Command]:
    """The commands of every job of a configuration's tables, whatever is there already. Raises
    BadInput with what Snakemake says.
    """
    if not SNAKEFILE.exists():
        raise BadInput(
            "the jobs are planned by Snakemake, with the rules of the repository: use a checkout"
        )
    if importlib.util.find_spec("snakemake") is None:
        raise BadInput(
            "the jobs are planned by Snakemake, which is not installed: pip install '.[workflow]'"
        )
    files = [*configfiles] if Path("config.yaml").exists() else [str(PAPER), *configfiles]
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE)]
    command += ["--workflow-profile", "none", "--cores", "1"]
    command += ["--dry-run", "--printshellcmds", "--forceall"]
    if files:
        command += ["--configfile", *files]
    command += ["--", "paper_tables"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode:
        raise BadInput(said.strip().splitlines()[-1])
    return commands(said)


def commands(text: str) -> list[Command]:
    """The commands in what Snakemake prints with --printshellcmds, which is in no order, by stage
    and output.
    """
    found = []
    for line in re.findall(r"^Shell command: (.*-m orce .*?) 2>&1 \| tee ", text, re.MULTILINE):
        words = shlex.split(line)
        stage, *arguments = words[words.index("orce") + 1 :]
        options: dict[str, list[str]] = {}
        values: list[str] = []
        for word in arguments:
            if word.startswith("--"):
                values = options[word] = []
            else:
                values.append(word)
        found.append(Command(stage, options))
    return sorted(found, key=lambda command: (command.stage, command.out))


def in_order(planned: list[Command]) -> list[Command]:
    """The commands, each after those that make what it reads. Weights that a command loads by its
    settings are made first.
    """
    order = TopologicalSorter(dict(enumerate(waits(planned)))).static_order()
    return [planned[number] for number in order]


def waits(commands: list[Command]) -> list[set[int]]:
    """For each command, the numbers of the commands that make what it reads."""
    maker = {}
    for number, command in enumerate(commands):
        maker |= dict.fromkeys(command.writes, number)
    return [{maker[path] for path in command.reads if path in maker} for command in commands]
