"""What the hub refuses, in one line with the remedy."""

from orce.errors import BadInput, one_line


def raise_refusal(error: BaseException | None, what: str, hub: str, revision: str | None) -> None:
    """Raises BadInput with the remedy if the hub itself refused `what`, a data set or a model: no
    other way of reading can help.
    """
    from huggingface_hub import errors

    revision = revision or "main"
    gated = "is a gated dataset" in str(error)
    while error is not None:
        refusal = ""
        if gated or isinstance(error, errors.GatedRepoError):  # which is not found either
            refusal = "gated on the hub; accept its terms on its page there, then log in with `hf auth login` or set HF_TOKEN"
        elif isinstance(error, errors.RevisionNotFoundError):
            refusal = (
                f"the hub has no revision {revision!r} of it; expected a branch, a tag or a commit"
            )
        elif isinstance(error, errors.RepositoryNotFoundError):
            refusal = f"no such {what} on the hub, or a private one, which needs `hf auth login`"
        elif isinstance(error, errors.LocalEntryNotFoundError):
            hub = f"{hub}, revision {revision}"
            reason = one_line(error.__cause__ or error)
            refusal = f"not in the local cache, and the hub cannot be reached ({reason})"
        if refusal:
            raise BadInput(f"{hub}: {refusal}") from None
        error = error.__cause__
