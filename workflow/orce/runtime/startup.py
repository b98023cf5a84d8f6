"""Cuts the cost of starting and ending a step: no garbage collection during imports, no unused imports, no teardown.

They make a million objects that live as long as the process. Python's garbage collector would walk them again and
again: a sixth of the CPU time before the first batch. Where scikit-learn and scipy are installed, transformers imports
them, and pandas with them, for one kind of assisted generation and for the losses of object detection, which no step
uses: a quarter.

At the end the collector would walk them once more, a second; left out, triton's modules complain that they are still
alive. So the process ends without it, as mypy's does.

None of this applies when the library is imported by another program.
"""

import atexit
import contextlib
import ctypes
import gc
import os
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
UNUSED = ("sklearn", "scipy")  # by what transformers does for a step

_starting = False  # from `importing` to `imported`


def importing() -> None:
    """A step starts. Until `imported`, libraries are imported: no collections."""
    global _starting
    _starting = True
    gc.disable()


def imported() -> None:
    """The libraries are there: collect again, and never walk what is alive now."""
    global _starting
    if _starting:
        _starting = False
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def without_unused() -> Iterator[None]:
    """transformers, imported inside, does not find the packages of UNUSED, if a step is starting."""
    hidden = [name for name in UNUSED if _starting and name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # to import statements: not installed
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def keep_memory() -> None:
    """If a step is starting, let glibc keep the memory of freed tensors for the next ones of the same size.

    By default it returns blocks of over 32 MB, such as the logits of a batch, and the kernel clears as many pages anew.
    """
    if not _starting:
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def end(code: int) -> NoReturn:
    """End the process with an exit code, after what others want done at its end (atexit, threads)."""
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if "torch" not in sys.modules or not all(thread.daemon for thread in others):
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
