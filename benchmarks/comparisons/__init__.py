"""One comparison a module: TITLE and ``run(options) -> list of benchmarks.timing.Row``.

`options` has `repeats`, and `model`, the folder of SmolLM2. A module that needs nothing heavy imports nothing heavy.
"""

import importlib
import pkgutil


def names() -> list[str]:
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__) if module.name[0] != "_")


def get(name: str):
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
