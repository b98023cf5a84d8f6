"""One comparison a module: TITLE, and run(options), which yields Rows; options: repeats, threads, model (SmolLM2's folder)."""

import importlib
import pkgutil


def names() -> list[str]:
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def get(name: str):
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
