"""The program `orce COMMAND ...`, also as `python -m orce COMMAND ...`.

A command is a module of one of three packages, found by its name: users type the ones in orce.apps and orce.plan; the ones in
orce.stages are the stages of the workflow, which can also be run, timed and debugged by hand. Bad input ends with one line
and exit code 2.
"""

import ast
import difflib
import importlib
import importlib.metadata
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import orce
import orce.apps
import orce.plan
from orce import stages
from orce.errors import BadInput, explain
from orce.runtime import modules, startup, tally
from orce.runtime.progress import say

PACKAGE = "orce-reproduction"
TYPED = (
    "measure",
    "score",
    "plan",
    "compare",
    "summary",
    "import",
    "gpu-check",
)  # first in the help
PACKAGES = ("orce.apps", "orce.plan", "orce.stages")
# orce.runtime.progress reports progress; the libraries' own bars would garble the logs of parallel jobs.
QUIET = {
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def main(argv: list[str], program: str = "python -m orce") -> int:
    """Run one command; returns its exit code. `program` is what the user typed before `argv`."""
    names = commands()
    if not argv or argv[0] in ("-h", "--help"):
        print(overview(names, program))
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"orce {orce.__version__}")
        return 0
    name = argv[0]
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"`{program} --help` lists them"
        print(f"orce: no command {name!r}; {hint}", file=sys.stderr)
        return 2
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    try:
        perform(f"{names[name]}.{name.replace('-', '_')}", argv[1:], f"{program} {name}")
    except BrokenPipeError:
        raise
    except (BadInput, OSError) as error:
        say(f"orce {name}: {explain(error)}")
        return 2
    except ModuleNotFoundError as error:
        if not (extra := _extra(error.name or "")):
            raise
        say(
            f"orce {name}: {error.name} is not installed; it comes with the extra {extra}; in the checkout: pip install '.[{extra}]'"
        )
        return 2
    finally:
        tally.report()
    return 0


def perform(module: str, argv: Sequence[str], program: str | None = None) -> None:
    """Run the command in a module. Raises what it raises: BadInput for bad input."""
    stages.run(importlib.import_module(module), argv, program or module)


def _extra(module: str) -> str | None:
    """The extra of this package that brings a module; None for any other module, or where no wheel is installed."""
    try:
        needed = importlib.metadata.requires(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    wanted = module.partition(".")[0].replace("_", "-")
    for line in needed:
        found = re.match(r"([\w-]+).*; extra == [\"'](\w+)", line)
        if found and found[1] == wanted:
            return found[2]
    return None


def commands() -> dict[str, str]:
    """{command: the package that has its module}."""
    return {name.replace("_", "-"): package for package in PACKAGES for name in modules.names(package)}


def overview(names: dict[str, str], program: str) -> str:
    """The help page: each command, with the first sentence of its module's docstring."""
    typed = [_about(name, names[name]) for name in TYPED]
    steps = [_about(name, package) for name, package in names.items() if name not in TYPED]
    return "\n".join(
        [
            f"usage: {program} COMMAND ...    (`{program} COMMAND --help` lists a command's arguments)",
            "",
            "Commands:",
            *typed,
            "",
            "Steps of the workflow, which Snakemake runs:",
            *steps,
        ]
    )


def _about(name: str, package: str) -> str:
    # Parsed, not imported: importing a step may load heavy libraries.
    source = Path(sys.modules[package].__path__[0], f"{name.replace('-', '_')}.py").read_text()
    first = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].partition(". ")[0].rstrip(".")
    return textwrap.fill(
        first, shutil.get_terminal_size().columns, initial_indent=f"  {name:<20}", subsequent_indent=" " * 22
    )


def run() -> None:
    """The console script `orce`."""
    _start("orce")


def _start(program: str) -> None:
    startup.importing()
    signal.signal(signal.SIGTERM, _stop)  # only here: a process that calls main keeps its own handler
    try:
        try:
            code = main(sys.argv[1:], program)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    startup.end(code)


def _stop(signum, frame):
    """On SIGTERM, raise SystemExit so that the step cleans up. Finished work stays on disk."""
    signal.signal(signum, signal.SIG_DFL)
    os.write(2, b"orce: ended by SIGTERM; run again, it goes on from what is finished\n")
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    _start("python -m orce")
