"""A task module of the user's own, named by its path: loaded once, and its mistakes told with file and line."""

import contextlib
import importlib.util
import traceback
from functools import cache
from pathlib import Path

from orce.runtime.files import BadInput


@cache
def module(path: str):
    """The module in a Python file. Raises BadInput in one line for whatever goes wrong while it is imported."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    found = importlib.util.module_from_spec(spec)
    with blamed(path):
        spec.loader.exec_module(found)
    return found


@contextlib.contextmanager
def blamed(path: str):
    """An error while a file of the user's own runs: one line with the file, its line and the error's kind.

    Bad input and what the operating system refused pass as they are, and so does everything of the project's own tasks.
    """
    try:
        yield
    except SyntaxError as error:
        if not path.endswith(".py"):
            raise
        raise BadInput(f"{error.filename or path}, line {error.lineno}: {error.msg}") from None
    except Exception as error:
        if isinstance(error, (BadInput, OSError)) or not path.endswith(".py"):
            raise
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadInput(f"{_line(path, error)}: {told}") from error


def _line(path: str, error: Exception) -> str:
    """The last line of the file that the error went through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == Path(path).resolve() or frame.filename == path
    ]
    return f"{path}, line {frames[-1].lineno}" if frames else path
