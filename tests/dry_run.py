"""Snakemake's dry runs in the tests' own process: the program's code path without its start, four fifths of their time."""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from snakemake import cli


def snakemake(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """(exit code, everything said) of `snakemake -n ARGUMENTS` in a folder; the process is left as it was."""
    said, changed = io.StringIO(), os.environ | (environment or {})
    here = [mock.patch.dict(os.environ, changed), mock.patch.object(sys, "path", [*sys.path]), contextlib.chdir(folder)]
    with contextlib.ExitStack() as stack:
        for one in (*here, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said)):
            stack.enter_context(one)
        stack.callback(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        try:
            code = cli.main(["-n", *map(str, arguments)])
        except SystemExit as end:
            code = end.code
    return code or 0, said.getvalue()
