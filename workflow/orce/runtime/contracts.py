"""What the library expects of the functions in a user's own module: a task, a method, a reward.

`kept` checks the signatures, and gives the module with its functions watched: an error in one, or a value that is not as
agreed, is BadInput that names the user's file, the function and the question.
"""

import inspect
import math
import traceback
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from orce.errors import BadInput


class Contract(NamedTuple):
    """How a function is called, and what it gives.

    takes: its parameters in words, and `n` of them are passed, by position. gives: its result in words. holds(value, arguments):
    whether a result is that; an error in it counts as no.
    """

    name: str
    takes: str
    n: int
    gives: str
    holds: Callable[[Any, tuple], bool]

    def __str__(self) -> str:
        return f"{self.name}({self.takes}) -> {self.gives}"


def agreed(signature: str, holds: Callable[[Any, tuple], bool]) -> Contract:
    """The contract in a line such as 'read(text, settings) -> confidence'."""
    call, _, gives = signature.partition(" -> ")
    name, _, takes = call.removesuffix(")").partition("(")
    return Contract(name, takes, len(takes.split(", ")) if takes else 0, gives, holds)


@cache  # by the module itself: the rules ask thousands of times in one plan
def kept(module: ModuleType, path: str, contracts: tuple[Contract, ...]) -> ModuleType:
    """The module of a user's file, its functions watched. Raises BadInput for one that cannot be called as agreed."""
    watched = ModuleType(module.__name__, module.__doc__)
    vars(watched).update(vars(module))
    for contract in contracts:
        if hasattr(module, contract.name):
            function = getattr(module, contract.name)
            _check_signature(function, path, contract)
            setattr(watched, contract.name, _watched(function, path, contract))
    return watched


def _check_signature(function, path: str, contract: Contract) -> None:
    if not callable(function):
        raise BadInput(f"{path}: {contract.name} is not a function; expected {contract}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of some functions written in C
        return
    try:
        signature.bind(*range(contract.n))
    except TypeError:
        bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
        raise BadInput(
            f"{path}: {contract.name}{inspect.Signature(bare)} cannot be called with {contract.n} arguments; expected {contract}"
        ) from None


def _watched(function: Callable, path: str, contract: Contract) -> Callable:
    @wraps(function)
    def call(*arguments, **named):
        value = _called(function, path, contract.name, arguments, named)
        try:
            fine = contract.holds(value, arguments)
        except Exception:  # noqa: BLE001 (a value that cannot even be looked at)
            fine = False
        if not fine:
            raise BadInput(
                f"{path} {contract.name}(): returned {_short(value)}{_question(arguments)}; expected {contract.gives}"
            )
        return value

    return call


def _called(function: Callable, path: str, name: str, arguments: tuple, named: dict[str, Any]):
    try:
        return function(*arguments, **named)
    except (BadInput, OSError):
        raise
    except Exception as error:
        frames, place = traceback.extract_tb(error.__traceback__), Path(path).resolve()
        lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == place]
        if name == "train" and Path(frames[-1].filename).resolve() != place:
            raise  # from deep within a training: its traceback says more than a line
        where = f", line {lines[-1]}" if lines else ""
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadInput(f"{path} {name}(){where}: raised {what}{_question(arguments)}") from None


def _question(arguments: tuple) -> str:
    """Which question a call was about; the text that it was to read, if it saw no question."""
    of = next((one["id"] for one in arguments if isinstance(one, dict) and "id" in one), None)
    text = next((one for one in arguments[:1] if isinstance(one, str)), None)
    return f" for question {of!r}" if of is not None else "" if text is None else f" for the text {_short(text)}"


def _short(value) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 (a user's class)
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


# What results look like; the arguments of the call are not looked at


def anything(value, *_) -> bool:
    return True


def is_confidence(value, *_) -> bool:
    """A number from 0 to 1 that JSON can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def is_read(value, *_) -> bool:
    """A confidence, or None for one that could not be read."""
    return value is None or is_confidence(value)


def is_answer(value, *_) -> bool:
    return value is None or isinstance(value, str | int | float)


def is_pair(value, *_) -> bool:
    """(answer, confidence)"""
    return isinstance(value, tuple | list) and len(value) == 2 and is_answer(value[0]) and is_read(value[1])


def is_text(value, *_) -> bool:
    return isinstance(value, str)


def is_conversation(value, *_) -> bool:
    """Chat messages."""
    turns = isinstance(value, list) and bool(value) and all(isinstance(turn, dict) for turn in value)
    return turns and all(isinstance(turn.get(key), str) for turn in value for key in ("role", "content"))


def is_score(value, *_) -> bool:
    """What a task says of an answer."""
    f1 = value["f1"]
    return isinstance(value["correct"], bool | int) and value["correct"] in (0, 1) and (f1 is None or math.isfinite(f1))


def has_hash(value, *_) -> bool:
    return isinstance(hash(value), int)
