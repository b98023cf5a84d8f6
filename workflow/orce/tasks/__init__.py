"""Data sets, one module each, found by name. Importing this package is cheap.

A task has METRIC (its accuracy column in the paper's table: 'accuracy' or 'f1'), MAX_TOKENS (budget of an answer),
ANSWER_KIND (what a prompt calls an answer) and
  load(source, split, seed=0)  examples {id, question, context, choices, reference}, `context` and `choices` or None
  question(example)            the question as plain text, with its passage and lettered options
  prompt(example, shots=None)  the answer LLM's chat messages; user and assistant turns only, as Mistral has no other
  extract(text, example)       canonical answer, or None if the text gives none
  score(answer, example)       {correct: bool, f1: float or None}; an answer of None is wrong
  key(answer, example)         equal for answers that mean the same
  display(answer, example)     the answer as the confidence LLM reads it
A source is {hub, config, revision} or {path} of files in the publisher's layout, and a split is the source's own.
"""

import importlib
import pkgutil


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def get(name: str):
    """The module of a task. Raises ValueError naming the tasks there are."""
    if name not in names():
        raise ValueError(f"unknown task {name!r}; tasks are {', '.join(names())}")
    return importlib.import_module(f"orce.tasks.{name}")
