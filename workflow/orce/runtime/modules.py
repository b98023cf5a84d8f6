"""Users' own Python files, a task, a method or a reward: `keep_contracts` checks signatures when one
is loaded, and results at each call.
"""

import contextlib
import importlib.util
import inspect
import math
import traceback
from collections.abc import Callable, Iterable
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from orce.errors import BadInput

# folders of the checkout that its configurations name
SHIPPED = ("config/", "docs/examples/", "evidence/")
CHECKOUT = Path(__file__).resolve().parents[3]


_hints_of = cache(get_type_hints)  # which resolves the texts among them anew at each call


def typed(function: Callable[..., Any]) -> Any:
    """Decorates a public function: a text, path or number where its signature says another type, or
    None, raises BadInput.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        hints = _hints_of(function)
        for name, value in signature.bind(*args, **options).arguments.items():
            hint = hints.get(name, object)
            forms = [value]  # a number of numpy is one, too
            forms += [float(value)] if isinstance(value, Real) else []
            forms += [int(value)] if isinstance(value, Integral) else []
            with contextlib.suppress(TypeError):  # isinstance knows no Sequence[str]
                if not any(isinstance(form, hint) for form in forms):
                    expected = getattr(hint, "__name__", hint)
                    raise BadInput(f"{name} is {short(value)}; expected {expected}")
        return function(*args, **options)

    return checked


def locate(path: str) -> Path:
    """Where a relative path of a configuration is: in the current folder, or, if that has no such
    file, in the checkout.

    The configurations of the checkout name its own modules, such as config/demo/arithmetic.py, and
    work from any folder.
    """
    in_the_checkout = CHECKOUT / path
    if not Path(path).exists() and path.startswith(SHIPPED) and in_the_checkout.exists():
        return in_the_checkout
    return Path(path)


def from_file(path: str):
    """The module in a Python file, imported once. Raises BadInput naming the file, and the line
    where its code fails.
    """
    file = locate(path)
    if not file.is_file():
        found = "is a folder" if file.is_dir() else "no such file"
        raise BadInput(f"{path}: {found}; expected a Python module, from {Path.cwd()}")
    return import_file(path, file.resolve())


@cache
def import_file(path: str, resolved: Path):
    spec = importlib.util.spec_from_file_location(resolved.stem, resolved)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path}: not a Python module; expected a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (BadInput, OSError):
        raise
    except SyntaxError as error:
        file = path if error.filename in (None, str(resolved)) else error.filename
        raise BadInput(f"{file}, line {error.lineno}: {error.msg}") from None
    except Exception as error:  # noqa: BLE001 (a user's module may raise anything)
        raise BadInput(f"{path}{_failure(path, error)}") from None
    return module


def _failure(path: str, error: Exception, verb: str = "") -> str:
    """', line 3: ValueError: text', by the last line of a user's file that an error went through,
    if it went through any.
    """
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).resolve() == locate(path).resolve():
            where = f", line {frame.lineno}"
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{where}: {verb}{text}"


def require(module, where: str, names: Iterable[str], what: str) -> None:
    """Raises BadInput naming the first of `names` that a module lacks; `what` is the kind of
    module, for the message.
    """
    for name in names:
        if not hasattr(module, name):
            raise BadInput(f"{where}: no {name}; {what} has {', '.join(names)}")


class Contract:
    """How a function is called and what it gives, as in 'read(text, settings) -> confidence'.
    holds(value, arguments): whether a result keeps the contract; an error in it counts as no.
    takes: the names of its n arguments.
    """

    def __init__(self, line: str, holds: Callable[..., bool] = lambda *_: True):
        self.line = line
        self.holds = holds
        call, _, self.gives = line.partition(" -> ")
        self.name, _, self.takes = call.removesuffix(")").partition("(")
        self.n = self.takes.count(",") + bool(self.takes)


@cache  # by the module itself: the rules ask thousands of times in one plan
def keep_contracts(module: ModuleType, path: str, contracts: tuple[Contract, ...]) -> ModuleType:
    """The module of a user's file with its functions watched: an error in one, or a result outside
    its contract, is BadInput that names the file, the function and the question. Raises BadInput
    for a function with another signature.
    """
    watched = ModuleType(module.__name__, module.__doc__)
    vars(watched).update(vars(module))
    for contract in contracts:
        if hasattr(module, contract.name):
            setattr(watched, contract.name, _watch(getattr(module, contract.name), path, contract))
    return watched


def _watch(function: Any, path: str, contract: Contract) -> Callable:
    if not callable(function):
        raise BadInput(f"{path}: {contract.name} is not a function; expected {contract.line}")
    try:
        inspect.signature(function).bind(*range(contract.n))
    except ValueError:  # some functions written in C have no signature
        pass
    except TypeError:
        called = f"{contract.name}{inspect.signature(function)} cannot be called with {contract.n} arguments"
        raise BadInput(f"{path}: {called}; expected {contract.line}") from None

    @wraps(function)
    def watched(*arguments, **named):
        where = f"{path} {contract.name}()"
        try:
            value = function(*arguments, **named)
        except (BadInput, OSError):
            raise
        except Exception as error:
            deepest = traceback.extract_tb(error.__traceback__)[-1].filename
            if contract.name == "train" and Path(deepest).resolve() != locate(path).resolve():
                raise  # from deep within a training: its traceback says more than a line
            raise BadInput(
                f"{where}{_failure(path, error, 'raised ')}{_question(arguments)}"
            ) from None
        try:
            fine = contract.holds(value, arguments)
        except Exception:  # noqa: BLE001 (a value that cannot even be looked at)
            fine = False
        if not fine:
            raise BadInput(
                f"{where}: returned {short(value)}{_question(arguments)}; expected {contract.gives}"
            )
        return value

    return watched


def _question(arguments: tuple) -> str:
    """Which question a call was about; the text that it was to read, if it saw no question."""
    for argument in arguments:
        if isinstance(argument, dict) and "id" in argument:
            return f" for question {argument['id']!r}"
    if arguments and isinstance(arguments[0], str):
        return f" for the text {short(arguments[0])}"
    return ""


def short(value) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 (a user's class)
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_read(value, *_) -> bool:
    """A confidence, or None for one that could not be read."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or number and 0 <= value <= 1


def is_answer(value, *_) -> bool:
    return value is None or isinstance(value, str | int | float)


def is_pair(value, *_) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and is_answer(value[0])
        and is_read(value[1])
    )


def is_text(value, *_) -> bool:
    return isinstance(value, str)


def is_conversation(value, *_) -> bool:
    turns = [is_text(turn["role"]) and is_text(turn["content"]) for turn in value]
    return isinstance(value, list) and bool(turns) and all(turns)


def is_score(value, *_) -> bool:
    f1 = value["f1"]
    return (
        isinstance(value["correct"], bool | int)
        and value["correct"] in (0, 1)
        and (f1 is None or math.isfinite(f1))
    )


def has_hash(value, *_) -> bool:
    return isinstance(hash(value), int)
