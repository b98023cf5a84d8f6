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

from snakemake import cli, sourcecache


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
