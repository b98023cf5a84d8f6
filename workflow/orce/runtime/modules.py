"""Python files of the user's own, named by path in the configuration: a task, a method, a reward."""

import importlib.util
import traceback
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from orce.runtime.files import BadInput


@cache
def from_file(path: str):
    """The module in a Python file, imported once a process.

    Raises BadInput naming the file, and the line where there is one, if the file is missing or its code fails.
    """
    if not Path(path).is_file():
        raise BadInput(f"{path}: no such file; expected a Python module")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise BadInput(f"{error.filename}, line {error.lineno}: {error.msg}") from None
    except Exception as error:  # noqa: BLE001 (whatever a user's module does at import)
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        where = f"{path}, line {lines[-1]}" if lines else path
        raise BadInput(f"{where}: {type(error).__name__}: {error}") from None
    return module


def require(module, place: str, names: Iterable[str], what: str) -> None:
    """Raises BadInput naming the first of `names` that a module lacks; `what` says what kind of module needs it."""
    for name in names:
        if not hasattr(module, name):
            raise BadInput(f"{place}: no {name}; {what} has {', '.join(names)}")
