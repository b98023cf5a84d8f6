"""Text generators behind one interface; an engine is a module of this package, found by its name.

Each has ``load(settings, longest=None) -> engine`` with ``engine.generate(prompts, n, temperature, max_tokens, seeds,
top_p=1.0)`` and ``engine.close()``: `prompts` are chat messages, `seeds` one integer a prompt, and the answer is a list
of `n` texts for each prompt. A prompt's samples depend on its own seed, not on its neighbours. `longest` is the number
of tokens that the longest prompt and its answer will take (`longest` below). An engine that saves work by it has
`generate_with_greedy` too, as below.
"""

import importlib
import pkgutil
from collections.abc import Iterable

from orce.runtime.files import BadInput


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def get(name: str):
    """The engine module called `name`. Raises BadInput naming the engines there are."""
    if name not in names():
        raise BadInput(f"unknown engine {name!r}; engines are {', '.join(names())}")
    return importlib.import_module(f"orce.llm.engines.{name}")


def longest(settings: dict, prompts: Iterable, max_tokens: int) -> int | None:
    """Tokens of the longest of `prompts` and its answer, for an engine that is sized by it; None for the others.

    The others do not look at the prompts.

    settings: those of the model and of the engine in one, as `load` takes them. Raises BadInput if it fits no context.
    """
    module = get(settings["name"])
    return module.longest(settings, prompts, max_tokens) if hasattr(module, "longest") else None


def generate_with_greedy(engine, prompts, n, temperature, max_tokens, seeds, top_p=1.0, greedy=frozenset()):
    """(n samples, greedy text) of each prompt, the latter for the prompts whose index is in `greedy`, else None."""
    if hasattr(engine, "generate_with_greedy"):
        return engine.generate_with_greedy(prompts, n, temperature, max_tokens, seeds, top_p, greedy)
    samples = engine.generate(prompts, n, temperature, max_tokens, seeds, top_p)
    asked = sorted(greedy)
    texts = engine.generate([prompts[i] for i in asked], 1, 0.0, max_tokens, [seeds[i] for i in asked]) if asked else []
    best = {i: text for i, (text,) in zip(asked, texts, strict=True)}
    return [(row, best.get(i)) for i, row in enumerate(samples)]
