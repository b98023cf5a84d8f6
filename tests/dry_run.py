"""Snakemake's dry runs, and runs that end before their first job, in the tests' own process: the program's code path
without its start, four fifths of their time."""

import contextlib
import io
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest import mock

import yaml
from conftest import ROOT
from snakemake import cli, sourcecache

from orce.__main__ import main
from orce.apps.planned import Command, commands, in_order
from orce.config import check, picking
from orce.settings.schema import Config
from orce.settings.stage import to_argument


def called(main: Callable[[list[str]], int | None], words: list[str]) -> tuple[int, str]:
    """(exit code, everything said) of a program called in this process, whose environment and SIGTERM it may change."""
    said, handler = io.StringIO(), signal.getsignal(signal.SIGTERM)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), mock.patch.dict(os.environ):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
        finally:
            signal.signal(signal.SIGTERM, handler)
    return code or 0, said.getvalue()


def snakemake(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """(exit code, everything said) of `snakemake -n ARGUMENTS` in a folder; the process is left as it was."""
    return refused(folder, "-n", *arguments, environment=environment)


def refused(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """(exit code, everything said) of `snakemake ARGUMENTS` that shall end before its first job."""
    changed, path = os.environ | (environment or {}), mock.patch.object(sys, "path", [*sys.path])
    with mock.patch.dict(os.environ, changed), path, contextlib.chdir(folder), sources_removed():
        return called(cli.main, [*map(str, arguments)])


def commands_of(folder: Path, *configfiles: str | Path) -> list[Command]:
    """Every command that Snakemake plans for the tables of the folder's configuration, whatever is there already."""
    files = ("--snakefile", ROOT / "Snakefile", "--configfile", *configfiles)
    code, said = snakemake(folder, *files, "-p", "--forceall", "--cores", "1", "--", "paper_tables")
    assert code == 0, said[-3000:]
    return commands(said)


def planned(folder: Path, config: dict) -> list[Command]:
    """The same for a configuration that is in no file, in an empty folder."""
    (folder / "config").symlink_to(ROOT / "config")  # the demo's tasks are there
    (folder / "planned.yaml").write_text(yaml.safe_dump(config))
    return commands_of(folder, "planned.yaml")


def make(folder: Path, config: dict, *targets: str) -> list[Command]:
    """Make some files in a folder, which gets this configuration: every command of the plan, in this process."""
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    code, said = snakemake(folder, "--snakefile", ROOT / "Snakefile", "-p", "--cores", "1", "--", *targets)
    assert code == 0, said[-3000:]
    planned = commands(said)
    with contextlib.chdir(folder):  # the paths of the configuration are from there
        checked = check.check(config)
    run(folder, checked, planned)
    return planned


def run(folder: Path, config: Config, planned: list[Command]) -> None:
    """Run planned commands in this process: what a job takes to start costs more than the tests' models."""
    fast = {"ORCE_SPEED": to_argument(picking.speed_settings(config))}
    with contextlib.chdir(folder), mock.patch.dict(os.environ, fast):
        for command in in_order(planned):
            assert main(command.words) == 0, command


def outputs(planned: list[Command]) -> list[tuple[str, str]]:
    """(stage, what it makes below results/) of each command."""
    return [(command.stage, command.out.removeprefix("results/")) for command in planned]


@contextlib.contextmanager
def sources_removed():
    """Removes Snakemake's folders of sources at the end; it leaves them to the garbage collector, in whatever test that runs."""
    with contextlib.ExitStack() as stack:

        class Removed(tempfile.TemporaryDirectory):
            def __init__(self, *args, **more):
                super().__init__(*args, **more)
                stack.callback(self.cleanup)

        with mock.patch.object(sourcecache.tempfile, "TemporaryDirectory", Removed):
            yield
