"""Data sets, found by name, or by path for your own file. Importing this package is cheap.

A task has METRIC (its accuracy column in the paper's table: 'accuracy' or 'f1'), MAX_TOKENS (budget of an answer),
ANSWER_KIND (what a prompt calls an answer) and
  load(source, split, seed=0)  examples {id, question, context, choices, reference}; `context` and `choices` may be
                               None; ids are unique strings
  question(example)            the question as plain text, with its passage and lettered options
  prompt(example, shots=None)  the answer LLM's chat messages; user and assistant turns only: Mistral has no others
  extract(text, example)       canonical answer, or None if the text states none
  score(answer, example)       {correct: bool, f1: float or None}; an answer of None is wrong
  key(answer, example)         equal for answers with the same meaning
  display(answer, example)     the answer as the confidence LLM reads it, also where it is None
  worked()                     optional: worked examples (question, reply, answer) for the prompts of Top-k and CoT
  twin(example)                optional: equal for questions that ask the same, such as 3 + 5 and 5 + 3
An example may have further keys of the task's own; question and display do without them, as records of orce.score have none.
A source is {hub, config, revision}, or {path} to files in the publisher's layout. Splits keep the source's names.
"""

import importlib
from pathlib import Path
from typing import Any, TypeAlias

from orce.errors import BadInput
from orce.records import Example
from orce.runtime.modules import (
    Contract,
    from_file,
    has_hash,
    is_answer,
    is_conversation,
    is_score,
    is_text,
    kept,
    require,
)


def _are_worked(value, *_) -> bool:
    return isinstance(value, list | tuple) and all([is_text(part) for part in one] == [True] * 3 for one in value)


NAMES = ("choice", "drop", "logiqa", "mmlu", "qa", "reclor")
FUNCTIONS = (
    Contract("load(source, split, seed=0) -> a list of examples"),  # examples.loaded looks at each
    Contract("question(example) -> a text", is_text),
    Contract("prompt(example, shots=None) -> chat messages, a list of {role, content}", is_conversation),
    Contract("extract(text, example) -> the answer as a text, or None", is_answer),
    Contract("score(answer, example) -> {correct: bool, f1: float or None}", is_score),
    Contract("key(answer, example) -> a text, equal for equal answers", has_hash),
    Contract("display(answer, example) -> a text", is_text),
)
OPTIONAL = (
    Contract("worked() -> worked examples, a list of (question, reply, answer)", _are_worked),
    Contract("twin(example) -> a text, equal for questions that ask the same", has_hash),
)
Task: TypeAlias = Any  # a module, or what has the attributes of one


def known(name: str) -> bool:
    """Whether `name` is a task of this package or the path of a Python file that exists."""
    return name in NAMES or (name.endswith(".py") and Path(name).is_file())


def get(name: str) -> Task:
    """A task's module. Raises BadInput that lists the known tasks, or names what your own file lacks."""
    if not known(name):
        raise BadInput(
            f"unknown task {name!r}; tasks are {', '.join(NAMES)}, or the path of a Python file (my/task.py)"
        )
    if name in ("logiqa", "mmlu", "reclor"):
        return importlib.import_module("orce.tasks.benchmarks").PRESETS[name]
    if name in NAMES:
        return importlib.import_module(f"orce.tasks.{name}")
    module = from_file(name)
    require(module, name, ("ANSWER_KIND", "MAX_TOKENS", "METRIC", *(one.name for one in FUNCTIONS)), "a task")
    if module.METRIC not in ("accuracy", "f1"):
        raise BadInput(f"{name}: METRIC is {module.METRIC!r}; expected 'accuracy' or 'f1'")
    if not isinstance(module.MAX_TOKENS, int) or module.MAX_TOKENS < 1:
        raise BadInput(f"{name}: MAX_TOKENS is {module.MAX_TOKENS!r}; expected a number of tokens, from 1 on")
    return kept(module, name, (*FUNCTIONS, *OPTIONAL))


def tried(task: Task, example: Example) -> None:
    """Let a task read a text without an answer, as a model may write it: a mistake shows before anything is generated."""
    task.score(task.extract("", example), example)
    task.display(None, example)
