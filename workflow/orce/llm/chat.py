"""From chat messages to token ids, in one place, so that training and evaluation see the same
prompt.

The chat template is the model's own. Every engine and trainer is given token ids, not text: no
second beginning-of-sequence token, and no token boundary that moves when a completion is appended
to its prompt.

Text of others stays text: no control token comes out of what a message says. A question with
"<|im_end|>" in it would otherwise end its own turn and could speak for the assistant. Such a string
is cut after its first character, and the pieces are tokenized apart. No character is added or lost,
and text without such strings is tokenized as it would be anyway.
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

# "Confidence: 100" and its end take 4 to 8 tokens with the tokenizers of the paper's families
STATEMENT_TOKENS = 12
ENOUGH_MASS = 0.5  # of the probability of a turn, on the 101 values that may be stated
# the date that Llama 3.1's and 3.2's own template takes where there is no clock
DATE = "26 Jul 2024"
FORMS = ("%d %b %Y", "%d %B %Y", "%Y-%m-%d")  # of a date_string
CPU_SECONDS = 3  # to write a prompt; a usual template takes milliseconds
MEMORY = 2**29  # bytes, to write two turns; a usual template takes kilobytes
# Around the number of a cut's mark: code points that Unicode keeps free of characters.
OPENS = "\ufdd0"
CLOSES = "\ufdd1"
BRACKETED = re.compile(r"[<\[{|].*[>\]}|]", re.DOTALL)  # <think>, [INST], <|im_end|>
# What looks like a control token where the tokenizer is not known.
CONTROL_LIKE = re.compile(
    r"<\|[^|<>\s]+\|>|</?s>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w+)\]|</?think>|<(?:start|end)_of_turn>"
)
TOGETHER = 1024  # texts in one call of the tokenizer
# arguments of a chat template, such as {"enable_thinking": False}
TemplateKwargs = dict[str, Any] | None
# {tokenizer and template_kwargs: {conversation: ids}}, for the next call of `prompts_ids`
_KEPT: dict[str, dict] = {}


def prompt_ids(tokenizer, messages: Messages, template_kwargs: TemplateKwargs = None) -> list[int]:
    """Token ids of a conversation, up to the start of the assistant's next turn. The template's own
    markers become control tokens. The turns it is given are marked, so it cannot take a marker in
    one of them for its own.
    """
    contents, mark = _marked(tokenizer, [turn["content"] for turn in messages])
    turns = [turn | {"content": content} for turn, content in zip(messages, contents, strict=True)]
    return _pieces_ids(tokenizer, render(tokenizer, turns, template_kwargs), mark)


def prompts_ids(
    tokenizer,
    conversations: Iterable[Messages],
    template_kwargs: TemplateKwargs = None,
    keep: bool = False,
) -> list[list[int]]:
    """`prompt_ids` of many conversations, tokenized together.

    keep: the ids for the next call that asks for them, and no longer. An engine is sized by its
    longest prompt before it starts, and sees the same prompts again when it generates.
    """
    kept = _KEPT.setdefault(f"{tokenizer.name_or_path} {template_kwargs}", {})
    keys = []
    ids: dict[int, list[int]] = {}  # by the index of the conversation
    plain: dict[int, Messages] = {}  # conversations without text like a control token
    hostile = 0
    for i, messages in enumerate(conversations):
        key = tuple((turn["role"], turn["content"]) for turn in messages)
        keys.append(key)
        if key in kept:
            ids[i] = kept.pop(key).tolist()
        elif any(_pattern(tokenizer).search(content) for _, content in key):
            ids[i] = prompt_ids(tokenizer, messages, template_kwargs)
            hostile += 1
        else:
            plain[i] = messages
    what = f"hold text that looks like a control token of {tokenizer.name_or_path}: read as text"
    process.tally(what, hostile, hostile + len(plain))
    indices = [*plain]
    for start in range(0, len(indices), TOGETHER):
        some = indices[start : start + TOGETHER]
        texts = [render(tokenizer, plain[i], template_kwargs) for i in some]
        ids |= zip(some, tokenizer(texts, add_special_tokens=False)["input_ids"], strict=True)
    if keep:
        for i, key in enumerate(keys):
            kept[key] = np.array(ids[i], dtype=np.int32)
    return [ids[i] for i in range(len(keys))]


def text_ids(tokenizer, text: str) -> list[int]:
    """Token ids of a text without any control token."""
    (marked,), mark = _marked(tokenizer, [text])
    return _pieces_ids(tokenizer, marked, mark)


def completion_ids(tokenizer, text: str) -> list[int]:
    """Token ids of an assistant's turn, with the token that ends it and no other control token."""
    return text_ids(tokenizer, text) + [tokenizer.eos_token_id]


def _marked(tokenizer, texts: list[str]) -> tuple[list[str], str]:
    """The texts with a mark after the first character of every control token in them, and the mark,
    which is in no text.
    """
    taken = set(re.findall(f"{OPENS}([0-9]+){CLOSES}", "\n".join(texts)))
    free = next(number for number in map(str, itertools.count()) if number not in taken)
    mark = OPENS + free + CLOSES
    pattern = _pattern(tokenizer)
    return [pattern.sub(lambda first: first[0] + mark, text) for text in texts], mark


def _pieces_ids(tokenizer, text: str, mark: str) -> list[int]:
    """Token ids of a text, tokenized apart at each mark."""
    first, *rest = text.split(mark)
    ids = tokenizer.encode(first, add_special_tokens=False)
    for piece in rest:
        # After a token, whose id is dropped: some tokenizers put a space before what begins a text.
        text = tokenizer.eos_token + piece
        end, *following = tokenizer.encode(text, add_special_tokens=False)
        assert end == tokenizer.eos_token_id
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
    """The tokens that others' text must not become, by id: all special ones, and added ones in
    brackets (<think>). Other added tokens, such as runs of spaces, are ordinary text that a
    tokenizer has a short form for.
    """
    controls = {}
    for token, entry in tokenizer.added_tokens_decoder.items():
        if entry.special or BRACKETED.fullmatch(str(entry)):
            controls[token] = str(entry)
    special = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    return controls | dict(special)


def render(
    tokenizer, messages: Messages, template_kwargs: TemplateKwargs = None, opens: bool = True
) -> str:
    """The text of a conversation, the same on any day. Raises BadInput for a template that does not
    end.

    opens: with the start of the assistant's next turn. A template that asks for today's date gets
    template_kwargs' `date_string`, or DATE.
    """
    options = template_kwargs or {}
    clock = {"strftime_now": lambda form: _date(options.get("date_string", DATE)).strftime(form)}
    how = {"tokenize": False, "add_generation_prompt": opens} | clock | options
    what = f"{tokenizer.name_or_path}: its chat template, to write a prompt,"
    with process.time_limit(CPU_SECONDS, what):
        return tokenizer.apply_chat_template(messages, **how)


def _date(text: str) -> datetime:
    for form in FORMS:
        with contextlib.suppress(ValueError):
            return datetime.strptime(str(text), form)
    raise ValueError(f"date_string is {text!r}, not a date such as {DATE!r}")


def check_template(tokenizer, model: str, template_kwargs: TemplateKwargs, ends: set[int]) -> None:
    """Raises BadInput if a tokenizer cannot make prompts, or ends its turns with a token that is not
    in `ends`.

    The latter are LLaMA-3 snapshots older than 2024-05: their eos is <|end_of_text|>, but a turn
    ends with <|eot_id|>. A model trained on their eos learns the wrong end, and generation runs past
    the end of an answer. model: its name in messages.
    """
    if tokenizer.chat_template is None:
        raise BadInput(
            f"{model}: its tokenizer has no chat template; take the instruction-tuned version of the model, or save a "
            "template as chat_template.jinja beside its tokenizer.json"
        )
    if tokenizer.eos_token is None:
        raise BadInput(
            f"{model}: its tokenizer has no eos_token, which ends a turn; name it in its tokenizer_config.json"
        )
    answer = statement(50)
    turns = [
        {"role": "user", "content": "How sure are you?"},
        {"role": "assistant", "content": answer},
    ]
    its = f"{model}: its chat template"
    with _explained(its, template_kwargs):
        prompt = render(tokenizer, turns[:1], template_kwargs)
        text = render(tokenizer, turns, template_kwargs, opens=False)
    for turn, shown in zip(turns, (prompt, text), strict=True):
        if turn["content"] not in shown:
            raise BadInput(
                f"{its} leaves out what the {turn['role']} says; take the template of the model's makers (chat_template.jinja)"
            )
    after = text.rpartition(answer)[2].lstrip()
    following = tokenizer.encode(after, add_special_tokens=False)
    end = following[0] if following else None
    if end in control_tokens(tokenizer) and end not in ends:
        names = ", ".join(tokenizer.convert_ids_to_tokens(sorted(ends)))
        raise BadInput(
            f"{its} ends a turn with {tokenizer.convert_ids_to_tokens(end)}, but its end-of-sequence token is {names}; "
            "take a newer snapshot of the model (source.revision), or correct eos_token in its tokenizer_config.json"
        )


@contextlib.contextmanager
def _explained(its: str, template_kwargs: TemplateKwargs) -> Iterator[None]:
    """One line for whatever a template does wrong in this block; `its`: the line's beginning."""
    try:
        with _memory_limit():
            yield
    except BadInput:
        raise
    except MemoryError:
        raise BadInput(
            f"{its} takes more than {MEMORY >> 20} MiB to write two turns; compare it with the template of the model's makers"
        ) from None
    except Exception as error:  # noqa: BLE001 - a template is a program, and can fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{its} fails with template_kwargs {template_kwargs} ({reason})") from None


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
    limit = taken + MEMORY if most == resource.RLIM_INFINITY else min(taken + MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
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
    """Expected confidence in [0, 1] under log P [101] of the statements of 0 to 100 percent,
    renormalised.
    """
    logprobs = np.asarray(logprobs, dtype=float)
    weights = np.exp(logprobs - logprobs.max())
    return float(weights @ np.arange(101) / weights.sum() / 100)


def little_mass(mass: float | None) -> bool:
    """Whether the 101 values have less than half of the probability, so that their mean says little.
    mass: their share of it, of one prompt or on average over several; None where it was not kept,
    which decides nothing.
    """
    return mass is not None and mass < ENOUGH_MASS
