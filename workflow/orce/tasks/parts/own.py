"""A task module of the user's own, named by its path: loaded once, and its mistakes told with file and line."""

import contextlib
import importlib.util
import traceback
from functools import cache
from pathlib import Path

from orce.runtime.files import BadInput


def module(path: str):
    """The module in a Python file. Raises BadInput in one line for whatever goes wrong while it is imported."""
    return _module(path, Path(path).resolve())


@cache
def _module(path: str, place: Path):
    spec = importlib.util.spec_from_file_location(place.stem, place)
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
        place = path if error.filename in (None, str(Path(path).resolve())) else error.filename
        raise BadInput(f"{place}, line {error.lineno}: {error.msg}") from None
    except Exception as error:
        if isinstance(error, (BadInput, OSError)) or not path.endswith(".py"):
            raise
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadInput(f"{_line(path, error)}: {told}") from None


def _line(path: str, error: Exception) -> str:
    """The last line of the file that the error went through."""
    place = Path(path).resolve()
    numbers = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == place]
    return f"{path}, line {numbers[-1]}" if numbers else path
