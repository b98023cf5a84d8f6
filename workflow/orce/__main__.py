"""The program `orce COMMAND ...`, also as `python -m orce COMMAND ...`.

A command is a module of orce.apps, which users type, or of orce.stages, which Snakemake runs. Bad
input ends with one line and exit code 2.
"""

import ast
import importlib
import logging
import os
import shutil
import signal
import sys
import textwrap
import warnings
from pathlib import Path

import orce
from orce import stages
from orce.errors import BadInput, did_you_mean, explain
from orce.runtime import process
from orce.runtime.preflight import ANSWERING, JUDGING
from orce.runtime.process import say

TYPED = ("measure", "plan", "compare", "show")  # by users: first in the help, in this order
REMOVED = {"score": "`orce measure` does its work"}  # a command of 0.3.0
# Seconds from a signal to the end of the process, which vllm needs on a busy machine. SLURM kills after
# 30 of them (its KillWait).
GRACE = 20
# orce.runtime.process reports progress; the libraries' own bars would garble the logs of parallel
# jobs.
QUIET = {
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",  # TRL would report each trainer that it makes
    "TOKENIZERS_PARALLELISM": "false",
}


def main(argv: list[str], program: str = "python -m orce") -> int:
    """Run one command; returns its exit code. `program` is what the user typed before `argv`."""
    by_name = commands()
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help"):
        print(overview(by_name, program))
        return 0 if argv else 2
    if name == "--version":
        print(f"orce {orce.__version__}")
        return 0
    if name not in by_name:
        hint = (
            REMOVED.get(name)
            or did_you_mean(name, by_name).strip()
            or f"`{program} --help` lists them"
        )
        print(f"orce: no command {name!r}; {hint}", file=sys.stderr)
        return 2
    os.environ.update(QUIET | os.environ)
    if "ORCE_FETCHED" in os.environ and name in (*ANSWERING, *JUDGING):
        # The rule `fetch` has brought their models; vllm would fetch further copies of the weights.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        with process.say_tallies(), process.missing_extra_is_bad_input():
            stages.run(importlib.import_module(by_name[name]), argv[1:], f"{program} {name}")
    except BrokenPipeError:
        raise
    except (BadInput, OSError) as error:
        say(f"orce {name}: {explain(error)}")
        return 2
    return 0


def commands() -> dict[str, str]:
    """{command: its module}."""
    by_name = {name: f"orce.apps.{name}" for name in TYPED}
    for path in sorted(Path(stages.__file__).parent.glob("[a-z]*.py")):
        by_name[path.stem.replace("_", "-")] = f"orce.stages.{path.stem}"
    return by_name


def overview(by_name: dict[str, str], program: str) -> str:
    """The help page: each command with the first sentence of its module's docstring."""
    width = shutil.get_terminal_size().columns
    about = []
    for name, module in by_name.items():
        # Parsed, not imported: importing a stage may load heavy libraries.
        file = Path(__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py")
        paragraph = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0]
        sentence = " ".join(paragraph.split()).partition(". ")[0].rstrip(".")
        about.append(
            textwrap.fill(
                sentence, width, initial_indent=f"  {name:<20}", subsequent_indent=" " * 22
            )
        )
    usage = (
        f"usage: {program} COMMAND ...    (`{program} COMMAND --help` lists a command's arguments)"
    )
    typed = about[: len(TYPED)]
    steps = about[len(TYPED) :]
    return "\n".join(
        [usage, "", "Commands:", *typed, "", "Steps of the workflow, which Snakemake runs:", *steps]
    )


def run(program: str = "orce") -> None:
    """The program: run the command of sys.argv, and end the process."""
    process.pause_collection()
    # only here: a process that calls main keeps its own handler
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)  # Ctrl-C
    try:
        try:
            code = main(sys.argv[1:], program)
        finally:  # here, where a closed pipe is caught
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    process.end(code)


def _stop(signum, frame):
    """On SIGTERM or SIGINT, raise SystemExit so that the stage cleans up. Finished work stays on disk."""
    signal.signal(signum, signal.SIG_DFL)
    name = signal.Signals(signum).name
    os.write(2, f"orce: ended by {name}; run again, it goes on from what is finished\n".encode())
    logging.getLogger("asyncio").disabled = True  # it would tell of each request that is cut off
    warnings.simplefilter("ignore")  # and Python of each coroutine that was not awaited yet
    signal.alarm(GRACE)  # a library may catch what is raised here, and go on
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    run("python -m orce")
