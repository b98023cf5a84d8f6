"""The start of a step: what importing torch and transformers need not do.

They make a million objects that live as long as the process. Python's garbage collector would walk them again and
again: a sixth of the CPU time before the first batch. Where scikit-learn is installed, transformers imports it, and
scipy and pandas with it, for one kind of assisted generation that no step uses: another sixth.

In a process of someone else's, which calls this library, nothing of this happens.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator


def importing() -> None:
    """From here on libraries are imported: no collections."""
    gc.disable()


def imported() -> None:
    """The libraries are there: collect again, and never walk what is alive now."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def without_sklearn() -> Iterator[None]:
    """Libraries that are imported inside do not find scikit-learn, if a step is starting."""
    hidden = not gc.isenabled() and "sklearn" not in sys.modules
    if hidden:
        sys.modules["sklearn"] = None  # type: ignore[assignment]  # to import statements: not installed
    try:
        yield
    finally:
        if hidden:
            del sys.modules["sklearn"]
