"""What a user did wrong, in one line. A module of its own, since every room raises it."""

import errno


class BadInput(ValueError):
    """A file or setting is not what the step needs; the message names it and says what would be right."""


def explain(error: BadInput | OSError) -> str:
    """One line that describes bad input or an error of the operating system, with the file's name."""
    if isinstance(error, BadInput):
        return str(error)
    prefix = f"{error.filename}: " if error.filename else ""
    kept = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "; make room and start again: what is finished is kept" if kept else ""
    return f"{prefix}{error.strerror or ' '.join(str(error).split())}{hint}"
