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
