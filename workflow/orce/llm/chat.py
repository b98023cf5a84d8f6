"""From messages to token ids, in one place, so that training and evaluation see the same prompt.

The chat template is the model's own. Ids are made here and handed as ids to every engine and trainer: no second
beginning-of-sequence token, no boundary that moves between a prompt and a prompt with its completion.
"""

import numpy as np
from numpy.typing import ArrayLike

Messages = list[dict[str, str]]


def prompt_ids(tokenizer, messages: Messages, template_kwargs: dict | None = None) -> list[int]:
    """Token ids of a conversation up to where the assistant's next turn begins."""
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **(template_kwargs or {})
    )
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def completion_ids(tokenizer, text: str) -> list[int]:
    """Token ids of an assistant's turn, its end token included."""
    return tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]


def end_ids(tokenizer, generation_config) -> set[int]:
    """Ids that end a turn: the tokenizer's, and all that the model's generation config names."""
    named = generation_config.eos_token_id
    named = [] if named is None else named if isinstance(named, list) else [named]
    return {tokenizer.eos_token_id, *named}


def statement(percent: int) -> str:
    """A stated confidence, the one form in which it is asked for, trained on and read."""
    return f"Confidence: {percent}"


def to_percent(confidence: float) -> int:
    """The integer percent of a confidence in [0, 1]; halves round up."""
    return int(100 * confidence + 0.5)


def expected(logprobs: ArrayLike) -> float:
    """Expected confidence in [0, 1] under log P [101] of the statements of 0 to 100 percent, renormalised."""
    logprobs = np.asarray(logprobs, dtype=float)
    weights = np.exp(logprobs - logprobs.max())
    return float(weights @ np.arange(101) / weights.sum() / 100)
