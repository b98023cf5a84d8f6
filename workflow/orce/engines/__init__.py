"""Text generators behind one interface; an engine is a module of this package, found by its name.

Each has ``load(settings) -> engine`` with ``engine.generate(prompts, n, temperature, max_tokens, seeds, top_p=1.0)``:
`prompts` are chat messages, `seeds` one integer a prompt, and the answer is a list of `n` texts for each prompt.
A prompt's samples depend on its own seed, not on its neighbours.
"""

import importlib
import pkgutil

from orce.files import BadInput


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def get(name: str):
    """The engine module called `name`. Raises BadInput naming the engines there are."""
    if name not in names():
        raise BadInput(f"unknown engine {name!r}; engines are {', '.join(names())}")
    return importlib.import_module(f"orce.engines.{name}")
