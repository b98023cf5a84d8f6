"""What a user did wrong, in one line. A module of its own, since every room raises it."""

import errno
import re

# A name and a password before the host of an address; a query and a fragment after it.
LOGIN = re.compile(r"\A(\s*[a-z][a-z0-9+.-]*:/+)?(?(1)|[^@\s]*:).*@", re.IGNORECASE | re.DOTALL)
QUERY = re.compile(r"\A(\s*[a-z][a-z0-9+.-]*:/+[^?#]*[?#]).*", re.IGNORECASE | re.DOTALL)


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


def public(text: str) -> str:
    """A text for a message: an address without what may be secret in it. "https://me:word@host/v1?key=1" has two secrets."""
    return QUERY.sub(r"\1***", LOGIN.sub(lambda login: f"{login[1] or ''}***@", text))


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


def raise_refusal(error: BaseException | None, what: str, hub: str, revision: str | None) -> None:
    """Raises BadInput with the remedy if the hub itself refused `what`, a data set or a model: no other way of reading can help."""
    from huggingface_hub import errors

    revision, gated = revision or "main", "is a gated dataset" in str(error)
    while error is not None:
        reason = one_line(error.__cause__ or error)
        refusals = {  # the first that holds; a gated repository is not found either
            errors.GatedRepoError: "gated on the hub; accept its terms on its page there, then log in with `hf auth login` or set HF_TOKEN",
            errors.RevisionNotFoundError: f"the hub has no revision {revision!r} of it; expected a branch, a tag or a commit",
            errors.RepositoryNotFoundError: f"no such {what} on the hub, or a private one, which needs `hf auth login`",
            errors.LocalEntryNotFoundError: f"not in the local cache, and the hub cannot be reached ({reason})",
        }
        for kind, refusal in refusals.items():
            if isinstance(error, kind) or (gated and kind is errors.GatedRepoError):
                at = f", revision {revision}" if kind is errors.LocalEntryNotFoundError else ""
                raise BadInput(f"{hub}{at}: {refusal}") from None
        error = error.__cause__
