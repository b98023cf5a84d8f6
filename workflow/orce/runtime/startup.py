"""The start of a step: Python's garbage collector waits until the libraries are imported.

Importing torch and transformers makes a million objects that live as long as the process. The collector would walk them
again and again: a sixth of the CPU time before the first batch.
"""

import gc


def importing() -> None:
    """From here on libraries are imported: no collections."""
    gc.disable()


def imported() -> None:
    """The libraries are there: collect again, and never walk what is alive now."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
