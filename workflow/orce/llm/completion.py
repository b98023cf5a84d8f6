"""The texts in a chat completion, as a server sends it."""

import operator
import re

from orce.llm.engines import Text

THOUGHT = re.compile(r"\s*<think>.*?(</think>\s*|$)", re.DOTALL)


class Trouble(Exception):
    """A request that failed and may succeed later. `wait` is what the server asks for, in seconds."""

    def __init__(self, message: str, wait: float = 0.0):
        super().__init__(message)
        self.wait = wait


def texts_of(reply: dict) -> list[Text]:
    """Texts of a chat completion in the order of its choices; no content (filtered, cut short) is an empty text.

    Thoughts are not part of the answer: servers have them in a field of their own (reasoning_content, reasoning), or at the
    beginning of the content in <think>...</think>.
    """
    try:
        choices = sorted(reply["choices"], key=lambda choice: operator.index(choice.get("index") or 0))
        texts = [choice["message"].get("content") for choice in choices]
    except (KeyError, TypeError, AttributeError):
        raise Trouble("the reply is not a chat completion") from None
    texts = ["" if text is None else text for text in texts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise Trouble("the reply has no choices with a text")
    return [_text(text, choice) for text, choice in zip(texts, choices, strict=True)]


def _text(content: str, choice: dict) -> Text:
    text = Text(THOUGHT.sub("", whole(content), count=1) if content.lstrip().startswith("<think>") else whole(content))
    try:
        given = [float(one["logprob"]) for one in choice["logprobs"]["content"]]
    except (KeyError, TypeError, ValueError):
        given = None
    text.logprobs, text.cut = given or None, choice.get("finish_reason") == "length"
    return text


def cut_short(choice: dict) -> bool:
    """Whether a reply used its budget up before it said anything, as a reasoning model may that thinks first."""
    content = choice["message"].get("content") or ""
    return choice.get("finish_reason") == "length" and not THOUGHT.sub("", content, count=1).strip()


def whole(text: str) -> str:
    r"""The text with U+FFFD for each half of a surrogate pair ("\ud83d" alone), which no file could hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
