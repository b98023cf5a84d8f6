"""From chat messages to token ids, in one place, so that training and evaluation see the same prompt.

The chat template is the model's own. Every engine and trainer is given token ids, not text: no second
beginning-of-sequence token, and no token boundary that moves when a completion is appended to its prompt.

Text of others stays text: no control token comes out of what a message says. A question with "<|im_end|>" in it would
otherwise end its own turn and could speak for the assistant. Such a string is cut in its middle, and the pieces are tokenized
apart. No character is added or lost, and text without such strings is tokenized as it would be anyway.
"""

import contextlib
import itertools
import re
import resource
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from orce.artefacts.records import Messages
from orce.errors import BadInput
from orce.runtime import process

ENOUGH_MASS = 0.5  # of the probability of a turn, on the 101 values that may be stated
# the date that Llama 3.1's and 3.2's own template takes where there is no clock
DATE = "26 Jul 2024"
FORMS = ("%d %b %Y", "%d %B %Y", "%Y-%m-%d")
CPU_SECONDS = 3  # to write a prompt; a usual template takes milliseconds
MEMORY = 2**29  # bytes, to write two turns; a usual template takes kilobytes
# begin and end the mark of a cut; Unicode will never make them characters
OPENS, CLOSES = "\ufdd0", "\ufdd1"
BRACKETED = re.compile(r"[<\[{|].*[>\]}|]", re.DOTALL)  # <think>, [INST], <|im_end|>
# What looks like a control token where the tokenizer is not known.
CONTROL_LIKE = re.compile(
    r"<\|[^|<>\s]+\|>|</?s>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w+)\]|</?think>|<(?:start|end)_of_turn>"
)
TOGETHER = 1024  # texts in one call of the tokenizer
_KEPT: dict[str, dict] = {}  # by tokenizer, then by conversation: ids of `prompts_ids`


def prompt_ids(
    tokenizer, messages: Messages, template_kwargs: dict[str, Any] | None = None
) -> list[int]:
    """Token ids of a conversation, up to the start of the assistant's next turn. The template's own markers are control
    tokens; it sees those in the turns cut, and takes none of them for its own."""
    contents, mark = _marked(tokenizer, [turn["content"] for turn in messages])
    cut = [turn | {"content": content} for turn, content in zip(messages, contents, strict=True)]
    return _pieces_ids(tokenizer, render(tokenizer, cut, template_kwargs), mark)


def prompts_ids(
    tokenizer,
    conversations: Iterable[Messages],
    template_kwargs: dict[str, Any] | None = None,
    keep: bool = False,
) -> list[list[int]]:
    """`prompt_ids` of many conversations, tokenized together. keep: for the next call that asks for them, and no longer. An
    engine is sized by its longest prompt before it starts, and sees the same prompts again when it generates."""
    conversations = list(conversations)
    known = _KEPT.setdefault(f"{tokenizer.name_or_path} {template_kwargs}", {})
    keys = [
        tuple((turn["role"], turn["content"]) for turn in messages) for messages in conversations
    ]
    ids = {i: known.pop(key).tolist() for i, key in enumerate(keys) if key in known}
    missing, pattern = [i for i in range(len(keys)) if i not in ids], _pattern(tokenizer)
    held = [i for i in missing if any(pattern.search(turn["content"]) for turn in conversations[i])]
    what = f"hold text that looks like a control token of {tokenizer.name_or_path}: read as text"
    process.tally(what, len(held), len(missing))
    ids |= {i: prompt_ids(tokenizer, conversations[i], template_kwargs) for i in held}
    plain = [i for i in missing if i not in ids]
    for start in range(0, len(plain), TOGETHER):
        some = plain[start : start + TOGETHER]
        texts = [render(tokenizer, conversations[i], template_kwargs) for i in some]
        ids |= zip(some, tokenizer(texts, add_special_tokens=False)["input_ids"], strict=True)
    if keep:
        known |= {key: np.array(ids[i], dtype=np.int32) for i, key in enumerate(keys)}
    return [ids[i] for i in range(len(keys))]


def text_ids(tokenizer, text: str) -> list[int]:
    """Token ids of a text without any control token."""
    (marked,), mark = _marked(tokenizer, [text])
    return _pieces_ids(tokenizer, marked, mark)


def completion_ids(tokenizer, text: str) -> list[int]:
    """Token ids of an assistant's turn, with the token that ends it and no other control token."""
    return text_ids(tokenizer, text) + [tokenizer.eos_token_id]


def _marked(tokenizer, texts: list[str]) -> tuple[list[str], str]:
    """The texts with a mark after the first character of every control token in them, and the mark, which is in no text."""
    taken = {*map(int, re.findall(f"{OPENS}([0-9]{{1,9}}){CLOSES}", "\n".join(texts)))}
    mark = f"{OPENS}{next(number for number in itertools.count() if number not in taken)}{CLOSES}"
    return [_pattern(tokenizer).sub(lambda start: start[0] + mark, text) for text in texts], mark


def _pieces_ids(tokenizer, text: str, mark: str) -> list[int]:
    """Token ids of a text, tokenized apart at each mark. The pieces after the first follow a token, whose id is dropped: some
    tokenizers put a space before what begins a text."""
    first, *rest = text.split(mark)
    ids = tokenizer(first, add_special_tokens=False)["input_ids"]
    for piece in rest:
        lead, *following = tokenizer(tokenizer.eos_token + piece, add_special_tokens=False)[
            "input_ids"
        ]
        assert lead == tokenizer.eos_token_id
        ids += following
    return ids


@cache
def _pattern(tokenizer) -> re.Pattern:
    """Matches the first character of every control token, also of those that overlap."""
    rests: dict[str, list[str]] = {}
    for text in control_tokens(tokenizer).values():
        if len(text) > 1:
            rests.setdefault(text[0], []).append(re.escape(text[1:]))
    starts = [f"{re.escape(first)}(?={'|'.join(texts)})" for first, texts in rests.items()]
    return re.compile("|".join(starts) or r"(?!)")


def control_tokens(tokenizer) -> dict[int, str]:
    """The tokens that others' text must not become, by id: all special ones, and added ones in brackets (<think>). Other
    added tokens, such as runs of spaces, are ordinary text that a tokenizer has a short form for."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = set(tokenizer.all_special_ids) | {
        token for token, entry in added.items() if entry.special
    }
    texts = {token: str(entry) for token, entry in added.items()}
    texts |= dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    return {
        token: text
        for token, text in texts.items()
        if token in special or BRACKETED.fullmatch(text)
    }


def render(
    tokenizer,
    messages: list[dict[str, str]],
    template_kwargs: dict[str, Any] | None = None,
    opens: bool = True,
) -> str:
    """The text of a conversation, the same on any day. opens: with the start of the assistant's next turn. Where a template
    asks for today's date it gets template_kwargs' `date_string`, or DATE. Raises BadInput for a template that does not end."""
    options = template_kwargs or {}
    clock = {"strftime_now": lambda form: _date(options.get("date_string", DATE)).strftime(form)}
    how = {"tokenize": False, "add_generation_prompt": opens} | clock | options
    with process.time_limit(
        CPU_SECONDS, f"{tokenizer.name_or_path}: its chat template, to write a prompt,"
    ):
        return tokenizer.apply_chat_template(messages, **how)


def _date(text: str) -> datetime:
    for form in FORMS:
        with contextlib.suppress(ValueError):
            return datetime.strptime(str(text), form)
    raise ValueError(f"date_string is {text!r}, not a date such as {DATE!r}")


def check_template(
    tokenizer, model: str, template_kwargs: dict[str, Any] | None, ends: set[int]
) -> None:
    """Raises BadInput if a tokenizer cannot make prompts, or ends its turns with a token that is not in `ends`.

    The latter are LLaMA-3 snapshots older than 2024-05: their eos is <|end_of_text|>, but a turn ends with <|eot_id|>.
    A model trained on their eos learns the wrong end, and generation runs past the end of an answer.
    model: its name in messages.
    """
    if tokenizer.chat_template is None:
        raise BadInput(
            f"{model}: its tokenizer has no chat template; take the instruction-tuned version of the model, or save a "
            "template as chat_template.jinja beside its tokenizer.json"
        )
    answer = statement(50)
    turns = [
        {"role": "user", "content": "How sure are you?"},
        {"role": "assistant", "content": answer},
    ]

    try:
        with _memory_limit():
            prompt = render(tokenizer, turns[:1], template_kwargs)
            text = render(tokenizer, turns, template_kwargs, opens=False)
    except BadInput:
        raise
    except MemoryError:
        raise BadInput(
            f"{model}: its chat template takes more than {MEMORY >> 20} MiB to write two turns; "
            "compare it with the template of the model's makers"
        ) from None
    except Exception as error:  # noqa: BLE001 - a template is a program, and can fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(
            f"{model}: its chat template fails with template_kwargs {template_kwargs} ({reason})"
        ) from None
    for turn, shown in zip(turns, (prompt, text), strict=True):
        if turn["content"] not in shown:
            raise BadInput(
                f"{model}: its chat template leaves out what the {turn['role']} says; take the template of the model's "
                "makers (chat_template.jinja)"
            )
    following = tokenizer(text.rpartition(answer)[2].lstrip(), add_special_tokens=False)[
        "input_ids"
    ]
    if following and following[0] not in ends and following[0] in control_tokens(tokenizer):
        names = ", ".join(tokenizer.convert_ids_to_tokens(sorted(ends)))
        raise BadInput(
            f"{model}: its chat template ends a turn with {tokenizer.convert_ids_to_tokens(following[0])}, but its "
            f"end-of-sequence token is {names}; take a newer snapshot of the model (source.revision), or correct "
            "eos_token in its tokenizer_config.json"
        )


@contextlib.contextmanager
def _memory_limit() -> Iterator[None]:
    """A MemoryError where this block takes more than MEMORY. A template is a program that came with
    the weights: jinja's sandbox keeps it from files and Python's internals, not from long texts.
    """
    pages = Path("/proc/self/statm")
    if not pages.exists():  # not Linux
        yield
        return
    former, most = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(pages.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (former, most))


def statement(percent: int) -> str:
    """A stated confidence, in the one form in which it is asked for, trained on and read."""
    return f"Confidence: {percent}"


def to_percent(confidence: float) -> int:
    """The integer percent of a confidence in [0, 1]; halves round up."""
    return int(round(100 * confidence, 9) + 0.5)  # 100 * (23 / 40) is below 57.5


def expected(logprobs: ArrayLike) -> float:
    """Expected confidence in [0, 1] under log P [101] of the statements of 0 to 100 percent, renormalised."""
    logprobs = np.asarray(logprobs, dtype=float)
    weights = np.exp(logprobs - logprobs.max())
    return float(weights @ np.arange(101) / weights.sum() / 100)


def little_mass(mass: float | None) -> bool:
    """Whether the expectation says little, as the 101 values have less than half of the probability. mass: their share of it,
    of one prompt or on average over several; None where it was not kept, which decides nothing."""
    return mass is not None and mass < ENOUGH_MASS
