"""A generated text and what its engine knows about it."""


class Text(str):
    """A text that a model generated.

    cut: whether it ended at its token budget. logprobs: of its tokens, where a server was asked for them and gave them.
    """

    cut: bool = False
    logprobs: list[float] | None = None


def texts(written: list[str], cut: list[bool]) -> list[str]:
    """Each text as a Text that knows whether it was cut."""
    made: list[str] = []
    for one, ended in zip(written, cut, strict=True):
        text = Text(one)
        text.cut = ended
        made.append(text)
    return made
