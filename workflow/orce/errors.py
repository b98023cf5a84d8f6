"""What a user did wrong, in one line. A module of its own, since every room raises it."""

import difflib
import errno
import re
from collections.abc import Iterable

# What may be secret in an address: a name and a password before the host, all up to the last @ (where
# no scheme begins the text, only with a colon, unlike me@host), and a query and a fragment.
LOGIN = re.compile(r"\A(\s*[a-z][a-z0-9+.-]*:/+)?(?(1)|[^@\s]*:).*@", re.IGNORECASE | re.DOTALL)
QUERY = re.compile(r"\A(\s*[a-z][a-z0-9+.-]*:/+[^?#]*[?#]).*", re.IGNORECASE | re.DOTALL)


class BadInput(ValueError):
    """A file or setting is not what the step needs; the message names it and says what would be
    right. It may quote a stranger's text, and Python prints it as it is where nobody catches it.
    """

    def __init__(self, message: object = ""):
        super().__init__(printable_lines(str(message)))


def printable(text: str) -> str:
    """The text with U+FFFD for characters that a terminal would obey: escapes, line ends, changes
    of direction.
    """
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def printable_lines(text: str) -> str:
    """The same, of a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def explain(error: BadInput | OSError) -> str:
    """One line that describes bad input or an error of the operating system, with the file's name."""
    if isinstance(error, BadInput):
        return str(error)
    prefix = f"{error.filename}: " if error.filename else ""
    reason = error.strerror or " ".join(str(error).split())
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason += "; make room and start again: what is finished is kept"
    return prefix + reason


def public(text: str) -> str:
    """A text for a message: an address with *** for what may be secret, both the login and the query of
    "https://me:word@host/v1?key=1".
    """
    return QUERY.sub(r"\1***", LOGIN.sub(r"\1***@", text))


def one_line(error: BaseException) -> str:
    """The beginning of an error's message, without a final full stop; its type if it has none."""
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The hint "did you mean 'sft'? " with the known name that is most like `name`; "" where none is
    like it.
    """
    close = difflib.get_close_matches(name, [*known], 1)
    return f"did you mean {close[0]!r}? " if close else ""
