"""Text generators with one interface. An engine is a module of this package, found by its name.

A module has ``load(settings, longest=None)``; `longest` is the number of tokens of the longest
prompt plus max_tokens. A module that depends on it, or that has prompts to refuse, has
``longest(settings, prompts, max_tokens)`` too; see the function of that name below. What `load`
returns has

- ``generate(prompts, n, temperature, max_tokens, seeds, top_p=1.0) -> list[list[str]]``: n samples
  for each of the prompts, which are chat messages. Temperature 0 is greedy decoding. seeds: one
  integer a prompt. A prompt's samples depend on its own seed and not on its neighbours.
- ``close()``, which releases the model.
"""

import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from orce.errors import BadInput
from orce.llm.chat import Messages

NAMES = ("openai", "transformers", "vllm")


def get(name: str):
    if name not in NAMES:
        raise BadInput(f"unknown engine {name!r}; engines are {', '.join(NAMES)}")
    return importlib.import_module(f"orce.llm.engines.{name}")


def longest(
    settings: Mapping[str, Any], prompts: Iterable[Messages], max_tokens: int
) -> int | None:
    """Longest of `prompts` plus max_tokens, in tokens, for an engine that is sized by it; None for
    the others.

    settings: the model's and the engine's in one, as `load` takes them. No weights are loaded.
    Raises BadInput if a prompt does not fit the model.
    """
    module = get(settings["name"])
    return module.longest(settings, prompts, max_tokens) if hasattr(module, "longest") else None


def generate_with_greedy(
    engine: Any,
    prompts: Sequence[Messages],
    n: int,
    temperature: float,
    max_tokens: int,
    seeds: Sequence[int],
    top_p: float = 1.0,
    greedy: Collection[int] = frozenset(),
) -> list[tuple[list[str], str | None]]:
    """For each prompt its n samples and, if its index is in `greedy`, the greedy text (else None)."""
    if hasattr(engine, "generate_with_greedy"):
        return engine.generate_with_greedy(
            prompts, n, temperature, max_tokens, seeds, top_p, greedy
        )
    samples = engine.generate(prompts, n, temperature, max_tokens, seeds, top_p)
    rows = sorted(greedy)
    greedy_texts: list[list[str]] = []
    if rows:
        asked = [prompts[i] for i in rows]
        greedy_texts = engine.generate(asked, 1, 0.0, max_tokens, [seeds[i] for i in rows])
    by_row = {i: text for i, (text,) in zip(rows, greedy_texts, strict=True)}
    return [(texts, by_row.get(i)) for i, texts in enumerate(samples)]


class Text(str):
    """A text that a model generated, and what is known of it beside."""

    cut: bool = False  # whether it ended at its token budget
    # of its tokens, where a server was asked for them and gave them
    logprobs: list[float] | None = None
    filtered: bool = False  # whether a server kept it back
    shortened: bool = False  # whether a server sent more than its budget, which was cut off

    def __new__(cls, text: str, **facts: Any):
        generated = super().__new__(cls, text)
        vars(generated).update(facts)
        return generated
