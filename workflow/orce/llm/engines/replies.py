"""What a chat completion of an OpenAI-compatible server says: its texts, how each ended, their
log-probabilities and the tokens that were counted. A reply is a stranger's, and may be anything.
"""

import contextlib
import email.utils
import operator
import re
import time
from typing import Any

from orce.errors import BadInput
from orce.llm.engines import Text
from orce.text.marks import after_thoughts, occurrences

# Why a text ended, in the words of servers: at its budget, at a filter, or by an error.
CUT = re.compile(r"length|max_(?:output_)?tokens", re.IGNORECASE)
FILTERED = re.compile(
    r"filter|refus|safety|recitation|sensitive|prohibited|blocklist|spii|toxic|guardrail",
    re.IGNORECASE,
)
FAILED = re.compile(r"error|abort|fail|cancel|timeout|insufficient", re.IGNORECASE)
# Types of the parts of a content that are its text; the others are thoughts or calls.
WRITTEN = ("text", "output_text")
# What tokens are compared without: white space, which they may lack or write in signs of its own,
# and pieces of characters.
UNCOMPARED = re.compile(r"[\s▁ĠĊ\ufffd]+|<0x[0-9A-F]{2}>")
IN_PIECES = re.compile(r"(?:\ufffd|<0x[0-9A-F]{2}>)*")
ROUNDING = 1e-6  # above zero, of a log-probability of 0
LEAST = -9999.0  # in place of minus infinity, which no JSON file holds; its probability is 0 too
# Where servers count tokens, in the order of preference. Cached ones are part of the prompt's,
# thoughts of the completion's.
USAGE = {
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "cached_tokens": (
        "prompt_tokens_details.cached_tokens",
        "prompt_cache_hit_tokens",
        "cache_read_input_tokens",
    ),
    "completion_tokens": ("completion_tokens", "output_tokens"),
    "reasoning_tokens": ("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
}


class Trouble(Exception):
    """A request that failed and may succeed later. `wait` is what the server asks for, in seconds."""

    def __init__(self, message: str, wait: float = 0.0):
        super().__init__(message)
        self.wait = wait


def texts_of(reply: dict, n: int | None = None, longest: int | None = None) -> list[Text]:
    """Texts of a chat completion in the order of its choices, or of the first n; no content
    (filtered, cut short) is an empty text.

    Thoughts are not part of the answer: servers have them in a field of their own
    (reasoning_content, reasoning), in parts of the content, or in its beginning. longest: characters
    of a text, after which it is cut. Raises Trouble for anything but a chat completion, and BadInput
    for log-probabilities that are none.
    """
    try:
        choices = sorted(reply["choices"], key=_index)[:n]
        contents = [_written(choice["message"].get("content")) for choice in choices]
    except (KeyError, TypeError, AttributeError):
        raise Trouble("the reply is not a chat completion") from None
    if not contents or not all(isinstance(content, str) for content in contents):
        raise Trouble("the reply has no choices with a text")
    return [
        _text_of(content, choice, longest)
        for content, choice in zip(contents, choices, strict=True)
    ]


def _index(choice: dict) -> int:
    return operator.index(choice.get("index") or 0)


def _written(content: Any) -> Any:
    """The text in the content of a message, which may have it in parts; what is neither text nor
    parts as it is.
    """
    if content is None:
        return ""
    if not isinstance(content, list | dict):
        return content
    texts = []
    for part in [content] if isinstance(content, dict) else content:
        if isinstance(part, str):
            texts.append(part)
        elif part.get("type", "text") in WRITTEN:
            texts.append(part["text"])
    return "".join(texts)


def _text_of(content: str, choice: dict, longest: int | None) -> Text:
    """The text of a choice. A filtered one is empty, whatever the filter let pass; one that was cut
    has no log-probabilities.
    """
    reason = choice.get("finish_reason")
    ended = str(reason.get("type") if isinstance(reason, dict) else reason)
    refused = not content and bool(choice["message"].get("refusal"))
    filtered = refused or bool(FILTERED.search(ended))
    if filtered:
        content = ""
    elif FAILED.search(ended):
        raise Trouble(f"the reply ended with {ended!r}")
    # U+FFFD for each half of a surrogate pair ("\ud83d" alone), which no file could hold.
    whole = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    shortened = longest is not None and len(whole) > longest
    whole = whole[:longest]
    answer = after_thoughts(whole)
    if answer != whole:
        answer = answer.lstrip()
    logprobs = None
    try:
        if not shortened:
            logprobs = _logprobs_of(answer, choice["logprobs"]["content"], longest)
    except BadInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        pass  # no list of tokens with numbers
    return Text(
        answer,
        cut=shortened or bool(CUT.search(ended)),
        logprobs=logprobs,
        filtered=filtered,
        shortened=shortened,
    )


def _logprobs_of(answer: str, tokens: list[dict], longest: int | None) -> list[float] | None:
    """The log-probabilities of the tokens whose texts make an answer; None where none do. Thoughts
    before it, white space around it and what ends the turn are no part of it. longest: characters,
    beyond which the tokens are not of this answer. Raises BadInput for a number that is no
    log-probability.
    """
    texts = [_text_of_token(token) for token in tokens]
    pieces = [UNCOMPARED.sub("", text) for text in texts]
    whole = "".join(pieces)
    known = set(whole)
    # Signs that the tokens lack are in pieces there.
    sought = "".join(sign for sign in UNCOMPARED.sub("", answer) if sign in known)
    if not tokens or not answer.strip() or (whole and not sought):
        return None
    if longest is not None and len(whole) > longest:
        return None
    span = _last_span(sought, pieces) if whole else (0, len(texts))
    if span is None:
        return None
    first, stop = span
    while first and IN_PIECES.fullmatch(texts[first - 1]):
        first -= 1
    while stop < len(texts) and texts[stop] and IN_PIECES.fullmatch(texts[stop]):
        stop += 1
    values = [float(token["logprob"]) for token in tokens[first:stop]]
    for value in values:
        if not value <= ROUNDING:
            raise BadInput(
                f"a reply has {value} as the log-probability of a token; expected a number of at most 0"
            )
    return [max(LEAST, min(value, 0.0)) for value in values]


def _text_of_token(token: dict) -> str:
    sent = token.get("bytes")
    if sent and isinstance(sent, list):  # bytes(10**10) would be as many zeros
        return bytes(sent).decode(errors="replace")
    return token["token"]


def _last_span(sought: str, pieces: list[str]) -> tuple[int, int] | None:
    """(first, stop) of the last tokens whose pieces make a text; None where each place at which it
    stands begins or ends within a token.
    """
    starts: dict[int, int] = {}  # {place in the whole text at which a token begins: its number}
    stops: dict[int, int] = {}  # {place at which a token ends: the next one's number}
    end = 0
    for i, piece in enumerate(pieces):
        if piece:
            starts[end] = i
            end += len(piece)
            stops[end] = i + 1
    span = None
    for place in occurrences(sought, "".join(pieces)):
        if place in starts and place + len(sought) in stops:
            span = (starts[place], stops[place + len(sought)])
    return span


def tokens(usage) -> dict[str, int]:
    """The counts in a reply's `usage`; values that are not counts are skipped."""
    counts: dict[str, int] = {}
    for name, paths in USAGE.items():
        for path in paths:
            value = usage
            for key in path.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if type(value) is int and 0 <= value < 2**53:
                counts.setdefault(name, value)
    return counts


def seconds_of(retry_after: str | None) -> float:
    """Seconds that a Retry-After header asks for, given as a number or as a date; 0 for anything
    else.
    """
    with contextlib.suppress(ValueError):
        return max(0.0, float(retry_after or 0))
    # no date, or one beyond the calendar
    with contextlib.suppress(TypeError, ValueError, OverflowError, OSError):
        date = email.utils.parsedate_to_datetime(retry_after or "")
        return max(0.0, date.timestamp() - time.time())
    return 0.0
