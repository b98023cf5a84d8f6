"""Data sets, one module each, found by name, or by path for a file of your own. Importing this package is cheap.

A task has METRIC (its accuracy column in the paper's table: 'accuracy' or 'f1'), MAX_TOKENS (budget of an answer),
ANSWER_KIND (what a prompt calls an answer) and
  load(source, split, seed=0)  examples {id, question, context, choices, reference}, `context` and `choices` or None;
                               ids are texts and differ
  question(example)            the question as plain text, with its passage and lettered options
  prompt(example, shots=None)  the answer LLM's chat messages; user and assistant turns only, as Mistral has no other
  extract(text, example)       canonical answer, or None if the text gives none
  score(answer, example)       {correct: bool, f1: float or None}; an answer of None is wrong
  key(answer, example)         equal for answers that mean the same
  display(answer, example)     the answer as the confidence LLM reads it
  worked()                     optional: worked examples (question, reply, answer) for the prompts of Top-k and CoT
A source is {hub, config, revision} or {path} of files in the publisher's layout, and a split is the source's own.
"""

import importlib
import pkgutil
from pathlib import Path

from orce.runtime.files import BadInput
from orce.runtime.modules import from_file, require

NEEDED = ("ANSWER_KIND", "MAX_TOKENS", "METRIC", "load", "question", "prompt", "extract", "score", "key", "display")


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)


def known(name: str) -> bool:
    """Whether `name` is a task of this package or the path of a Python file that exists."""
    return name in names() or (name.endswith(".py") and Path(name).is_file())


def get(name: str):
    """The module of a task. Raises BadInput naming the tasks there are, or what a file of your own lacks."""
    if not known(name):
        raise BadInput(
            f"unknown task {name!r}; tasks are {', '.join(names())}, or the path of a Python file (my/task.py)"
        )
    return _complete(name) if name.endswith(".py") else importlib.import_module(f"orce.tasks.{name}")


def _complete(path: str):
    module = from_file(path)
    require(module, path, NEEDED, "a task")
    functions = [name for name in NEEDED if name.islower()]
    wrong = [name for name in functions if not callable(getattr(module, name))]
    if wrong:
        raise BadInput(f"{path}: {wrong[0]} is no function; {', '.join(functions)} are")
    return module
