"""Text generators with one interface, `Engine`. An engine is a module of this package, found by its
name.

A module has ``load(settings, longest=None) -> Engine``; `longest` is the number of tokens of the
longest prompt plus max_tokens. A module that depends on it, or that has prompts to refuse, has
``longest(settings, prompts, max_tokens)`` too; see the function of that name below.
"""

import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from orce.errors import BadInput
from orce.llm.chat import Messages


class Engine(Protocol):
    """Generates texts with one model."""

    def generate(
        self,
        prompts: Sequence[Messages],
        n: int,
        temperature: float,
        max_tokens: int,
        seeds: Sequence[int],
        top_p=1.0,
    ) -> list[list[str]]:
        """`n` samples for each of the prompts, which are chat messages; temperature 0 is greedy
        decoding. seeds: one integer a prompt. A prompt's samples depend on its own seed and not on
        its neighbours.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release the model."""


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
    engine: Engine,
    prompts: Sequence[Messages],
    n: int,
    temperature: float,
    max_tokens: int,
    seeds: Sequence[int],
    top_p: float = 1.0,
    greedy: Collection[int] = frozenset(),
) -> list[tuple[list[str], str | None]]:
    """For each prompt its n samples and, if its index is in `greedy`, the greedy text (else None)."""
    in_one_pass = getattr(engine, "generate_with_greedy", None)
    if in_one_pass is not None:
        return in_one_pass(prompts, n, temperature, max_tokens, seeds, top_p, greedy)
    samples = engine.generate(prompts, n, temperature, max_tokens, seeds, top_p)
    greedy_texts: dict[int, str] = {}
    if greedy:
        rows = sorted(greedy)
        asked = [prompts[i] for i in rows]
        texts = engine.generate(asked, 1, 0.0, max_tokens, [seeds[i] for i in rows])
        greedy_texts = {i: text for i, (text,) in zip(rows, texts, strict=True)}
    return [(texts, greedy_texts.get(i)) for i, texts in enumerate(samples)]


class Text(str):
    """A text that a model generated. cut: whether it ended at its token budget. logprobs: of its
    tokens, where a server was asked for them and gave them. filtered: whether a server kept it
    back. shortened: whether a server sent more than its budget, which was cut off.
    """

    cut: bool
    logprobs: list[float] | None
    filtered: bool
    shortened: bool

    def __new__(
        cls,
        text: str,
        cut: bool = False,
        logprobs: list[float] | None = None,
        filtered: bool = False,
        shortened: bool = False,
    ):
        generated = super().__new__(cls, text)
        generated.cut = cut
        generated.logprobs = logprobs
        generated.filtered = filtered
        generated.shortened = shortened
        return generated
