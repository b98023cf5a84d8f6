"""The start and the end of a step: what torch and transformers need not do there.

They make a million objects that live as long as the process. Python's garbage collector would walk them again and
again: a sixth of the CPU time before the first batch. Where scikit-learn is installed, transformers imports it, and
scipy and pandas with it, for one kind of assisted generation that no step uses: another sixth.

At the end the collector would walk them once more, a second; left out, triton's modules complain that they are still
alive. So the process ends without it, as mypy's does.

In a process of someone else's, which calls this library, nothing of this happens.
"""

import atexit
import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn


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


def end(code: int) -> NoReturn:
    """End the process with an exit code, after what others want done at its end (atexit, threads)."""
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if "torch" not in sys.modules or not all(thread.daemon for thread in others):
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
