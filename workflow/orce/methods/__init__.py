"""Confidence methods, one module each, found by name. Importing them is cheap: the Snakefile does.

A method has LABEL (its row in the tables) and KIND:
  stated    a confidence LLM reads the question with the answer LLM's greedy answer; WEIGHTS names the folder of its
            weights beside the answers (None: the untrained model)
  prompted  the answer LLM gives answer and confidence in one text: prompt(example, task, settings), read(text, ...)
  sampled   computed from the answers already sampled: state(answers, example, task)
Method names in paths may carry a reward (orce-nrd) and the model that the confidence LLM comes from (sft-from-llama).
"""

import importlib
import pkgutil
from typing import NamedTuple

from orce.runtime.files import BadInput

REWARDS = ("sc", "nrd", "numeric", "sayself", "sc-surrogate")


class Method(NamedTuple):
    """A method name taken apart: module name, reward of an ablation (None: the paper's), source model of a transfer."""

    name: str
    reward: str | None
    source: str | None


def names(kind: str | None = None) -> list[str]:
    """Names of all methods, or of those of one kind."""
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in found if kind in (None, get(name).KIND)]


def get(name: str):
    """The module of a method. Raises BadInput naming the methods there are."""
    if name not in {module.name for module in pkgutil.iter_modules(__path__)}:
        raise BadInput(f"unknown method {name!r}; methods are {', '.join(names())}")
    return importlib.import_module(f"orce.methods.{name}")


def parse(text: str) -> Method:
    """'orce-nrd' or 'sft-from-llama3-8b' taken apart. Raises BadInput for an unknown method or reward."""
    stem, _, source = text.partition("-from-")
    name, _, reward = stem.partition("-")
    get(name)
    if reward and reward not in REWARDS:
        raise BadInput(f"unknown reward {reward!r} in method {text!r}; rewards are {', '.join(REWARDS)}")
    return Method(name, reward or None, source or None)


def weights(method: Method) -> str | None:
    """Folder name of the confidence LLM that a method reads with, the reward of an ablation in it; None without one."""
    folder = getattr(get(method.name), "WEIGHTS", None)
    return folder if folder is None or method.reward in (None, "sc") else f"{folder}-{method.reward}"
