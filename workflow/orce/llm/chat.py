"""From chat messages to token ids, in one place, so that training and evaluation see the same prompt.

The chat template is the model's own. Every engine and trainer is given token ids, not text: no second
beginning-of-sequence token, and no token boundary that moves when a completion is appended to its prompt.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from orce.errors import BadInput
from orce.llm import plain_text, template
from orce.records import Messages
from orce.runtime import process

TOGETHER = 1024  # texts in one call of the tokenizer
_KEPT: dict[str, dict] = {}  # by tokenizer, then by conversation: ids of `prompts_ids`


def prompt_ids(tokenizer, messages: Messages, template_kwargs: dict[str, Any] | None = None) -> list[int]:
    """Token ids of a conversation, up to the start of the assistant's next turn.

    The template's own markers are control tokens. What the turns say is text, whatever it looks like.
    """
    if _holds_control(tokenizer, messages):
        return _cut_ids(tokenizer, messages, template_kwargs)
    return tokenizer(template.render(tokenizer, messages, template_kwargs), add_special_tokens=False)["input_ids"]


def prompts_ids(
    tokenizer, conversations: Iterable[Messages], template_kwargs: dict[str, Any] | None = None, keep: bool = False
) -> list[list[int]]:
    """`prompt_ids` of many conversations, tokenized together. keep: for the next call that asks for them, and no longer.

    An engine is sized by its longest prompt before it starts, and sees the same prompts again when it generates.
    """
    conversations = list(conversations)
    known = _KEPT.setdefault(f"{tokenizer.name_or_path} {template_kwargs}", {})
    keys = [tuple((turn["role"], turn["content"]) for turn in messages) for messages in conversations]
    found = {i: known.pop(key).tolist() for i, key in enumerate(keys) if key in known}
    missing = [i for i in range(len(keys)) if i not in found]
    held = [i for i in missing if _holds_control(tokenizer, conversations[i])]
    what = f"hold text that looks like a control token of {tokenizer.name_or_path}: read as text"
    process.count_prompts(what, len(held), len(missing))
    found |= {i: _cut_ids(tokenizer, conversations[i], template_kwargs) for i in held}
    missing = [i for i in missing if i not in found]
    texts = [template.render(tokenizer, conversations[i], template_kwargs) for i in missing]
    for start in range(0, len(missing), TOGETHER):
        ids = tokenizer(texts[start : start + TOGETHER], add_special_tokens=False)["input_ids"]
        found |= dict(zip(missing[start : start + TOGETHER], ids, strict=True))
    if keep:
        known |= {key: np.array(found[i], dtype=np.int32) for i, key in enumerate(keys)}
    return [found[i] for i in range(len(keys))]


def _holds_control(tokenizer, messages: Messages) -> bool:
    return any(plain_text.holds_control(tokenizer, turn["content"]) for turn in messages)


def _cut_ids(tokenizer, messages: Messages, template_kwargs: dict[str, Any] | None) -> list[int]:
    """`prompt_ids` with the control tokens in the turns cut; the template sees them cut too, and takes none for its own."""
    contents, mark = plain_text.marked(tokenizer, [turn["content"] for turn in messages])
    cut = [turn | {"content": content} for turn, content in zip(messages, contents, strict=True)]
    return plain_text.pieces_ids(tokenizer, template.render(tokenizer, cut, template_kwargs), mark)


def completion_ids(tokenizer, text: str) -> list[int]:
    """Token ids of an assistant's turn, including the token that ends it; no other control token."""
    return plain_text.text_ids(tokenizer, text) + [tokenizer.eos_token_id]


def end_ids(tokenizer, generation_config) -> set[int]:
    """Ids that end a turn: the tokenizer's, and all that the model's generation config names."""
    named = generation_config.eos_token_id
    named = [] if named is None else named if isinstance(named, list) else [named]
    return {tokenizer.eos_token_id, *named}


def check_template(tokenizer, place: str, template_kwargs: dict[str, Any] | None, ends: set[int]) -> None:
    """Raises BadInput if a tokenizer cannot make prompts, or ends its turns with a token that is not in `ends`.

    The latter are LLaMA-3 snapshots older than 2024-05: their eos is <|end_of_text|>, but a turn ends with <|eot_id|>.
    A model trained on their eos learns the wrong end, and generation runs past the end of an answer.
    place: the model's name in messages.
    """
    if tokenizer.chat_template is None:
        raise BadInput(
            f"{place}: its tokenizer has no chat template; take the instruction-tuned version of the model, or save a "
            "template as chat_template.jinja beside its tokenizer.json"
        )
    asked, said = "How sure are you?", statement(50)
    question = [{"role": "user", "content": asked}]
    turns = [*question, {"role": "assistant", "content": said}]

    def render() -> tuple[str, str]:
        return (
            template.render(tokenizer, question, template_kwargs),
            template.render(tokenizer, turns, template_kwargs, opens=False),
        )

    template.trial(render, place, f"{tokenizer.chat_template} {template_kwargs}")
    try:
        prompt, text = render()
    except Exception as error:  # noqa: BLE001 - a template is a program, and can fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{place}: its chat template fails with template_kwargs {template_kwargs} ({reason})") from None
    for turn, content, shown in (("user", asked, prompt), ("assistant", said, text)):
        if content not in shown:
            raise BadInput(
                f"{place}: its chat template leaves out what the {turn} says; take the template of the model's makers "
                "(chat_template.jinja)"
            )
    rest = text.rpartition(said)[2]
    following = tokenizer(rest.lstrip(), add_special_tokens=False)["input_ids"]
    if not following or following[0] in ends or following[0] not in plain_text.control_tokens(tokenizer):
        return
    names = ", ".join(tokenizer.convert_ids_to_tokens(sorted(ends)))
    raise BadInput(
        f"{place}: its chat template ends a turn with {tokenizer.convert_ids_to_tokens(following[0])}, but its "
        f"end-of-sequence token is {names}; take a newer snapshot of the model (source.revision), or correct eos_token "
        "in its tokenizer_config.json"
    )


def statement(percent: int) -> str:
    """A stated confidence, in the one form in which it is asked for, trained on and read."""
    return f"Confidence: {percent}"


def to_percent(confidence: float) -> int:
    """The integer percent of a confidence in [0, 1]; halves round up."""
    return int(100 * confidence + 0.5)


def expected(logprobs: ArrayLike) -> float:
    """Expected confidence in [0, 1] under log P [101] of the statements of 0 to 100 percent, renormalised."""
    logprobs = np.asarray(logprobs, dtype=float)
    weights = np.exp(logprobs - logprobs.max())
    return float(weights @ np.arange(101) / weights.sum() / 100)
