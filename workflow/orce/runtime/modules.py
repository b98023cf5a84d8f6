"""Modules by name in the packages of this library, and users' own Python files by path: a task, a method or a reward."""

import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from orce.errors import BadInput


@cache  # the rules ask thousands of times in one plan
def names(package: str) -> tuple[str, ...]:
    """Names of the modules of an imported package, sorted, its subpackages left out."""
    found = pkgutil.iter_modules(sys.modules[package].__path__)
    return tuple(sorted(module.name for module in found if not module.ispkg))


def from_file(path: str):
    """The module in a Python file, imported once per process.

    Raises BadInput naming the file, and the line where its code fails.
    """
    if not Path(path).is_file():
        raise BadInput(f"{path}: no such file; expected a Python module")
    return imported(path, Path(path).resolve())


@cache
def imported(path: str, place: Path):
    """The module in the file at an absolute place; `path` is what the user calls it."""
    spec = importlib.util.spec_from_file_location(place.stem, place)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path}: not a Python module; expected a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (BadInput, OSError):
        raise
    except SyntaxError as error:
        file = path if error.filename in (None, str(place)) else error.filename
        raise BadInput(f"{file}, line {error.lineno}: {error.msg}") from None
    except Exception as error:  # noqa: BLE001 (a user's module may raise anything)
        raise BadInput(f"{path}{line_of(path, error)}: {in_words(error)}") from None
    return module


def require(module, place: str, names: Iterable[str], what: str) -> None:
    """Raises BadInput naming the first of `names` that a module lacks; `what` is the kind of module, for the message."""
    for name in names:
        if not hasattr(module, name):
            raise BadInput(f"{place}: no {name}; {what} has {', '.join(names)}")


def line_of(path: str, error: Exception) -> str:
    """', line 3' for the last line of a user's file that an error went through; '' if it went through none."""
    frames, place = traceback.extract_tb(error.__traceback__), Path(path).resolve()
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == place]
    return f", line {lines[-1]}" if lines else ""


def in_words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
