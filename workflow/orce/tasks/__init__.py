"""Data sets, found by name, or by path for your own file. Importing this package is cheap.

A task has METRIC (its accuracy column in the paper's table: 'accuracy' or 'f1'), MAX_TOKENS (budget
of an answer), ANSWER_KIND (what a prompt calls an answer), FUNCTIONS, and may have OPTIONAL ones.
An example is {id, question, context, choices, reference}: ids are unique strings; `context` and
`choices` may be None. It may have further keys of the task's own; question and display do not need
them, since records of orce.judge.judge lack them. A source is {hub, config, revision}, or {path} to
files in the publisher's layout. Splits keep the source's names.

Of the functions of a task that `get` gives, `score` alone sees which answer is right (Unlabelled).
"""

import functools
import importlib
from collections.abc import Hashable
from typing import Any, TypeAlias, cast

from orce.artefacts.records import Example, Messages
from orce.errors import BadInput
from orce.runtime import modules
from orce.runtime.modules import Contract
from orce.text import render


def _are_worked(value, *_) -> bool:
    return isinstance(value, list | tuple) and all(
        [isinstance(text, str) for text in example] == [True] * 3 for example in value
    )


NAMES = ("choice", "drop", "logiqa", "mmlu", "qa", "reclor")
FUNCTIONS = (
    # The stage `prompts` checks each example.
    Contract("load(source, split, seed=0) -> a list of examples"),
    # The text has the passage and the lettered options.
    Contract("question(example) -> a text", modules.is_text),
    # For the answer LLM: user and assistant turns alone, since Mistral's template has no others.
    Contract(
        "prompt(example, shots=None) -> chat messages, a list of {role, content}",
        modules.is_conversation,
    ),
    # The answer in canonical form; None if the text states none.
    Contract("extract(text, example) -> the answer as a text, or None", modules.is_answer),
    # An answer of None is wrong.
    Contract("score(answer, example) -> {correct: bool, f1: float or None}", modules.is_score),
    # Answers with the same meaning are equal.
    Contract("key(answer, example) -> a text, equal for equal answers", modules.has_hash),
    # The answer as the confidence LLM reads it, also where it is None.
    Contract("display(answer, example) -> a text", modules.is_text),
)
OPTIONAL = (
    # The prompts of Top-k and CoT show them.
    Contract("worked() -> worked examples, a list of (question, reply, answer)", _are_worked),
    # 3 + 5 and 5 + 3 ask the same.
    Contract("twin(example) -> a text, equal for questions that ask the same", modules.has_hash),
)
Task: TypeAlias = Any  # a module, or an object with a module's attributes
# The keys of an example that `key` gets. None of them is a label; a key of a task's own may be one.
COMPARED = (
    "id",
    "question",
    "context",
    "choices",
    "kind",
    "subject",
    "equality",
    "answer_pattern",
    "answer_marks",
)


def without_reference(example: Example) -> Example:
    """The example for a function that may not see which answer is right."""
    return cast(Example, {key: value for key, value in example.items() if key != "reference"})


def question_alone(example: Example) -> Example:
    """The example for `key`: without the reference, and without keys of the task's own."""
    return cast(Example, {key: example[key] for key in COMPARED if key in example})


class Unlabelled:
    """A task of whose functions `score` alone gets the reference.

    A confidence may not depend on which answer is right. So no function that reads an answer, shows
    it or asks about it can look at the reference, not even in a user's module; and `key`, which
    compares samples with each other, gets the question alone, since another key of a user's task may
    be a label too.
    """

    def __init__(self, task: Task):
        self.task = task
        if hasattr(task, "twin"):
            self.twin = lambda example: task.twin(without_reference(example))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)  # `score` too

    def question(self, example: Example) -> str:
        return self.task.question(without_reference(example))

    def prompt(self, example: Example, shots: int | None = None) -> Messages:
        return self.task.prompt(without_reference(example), shots)

    def extract(self, text: str, example: Example) -> str | None:
        return self.task.extract(text, without_reference(example))

    def display(self, answer: str | None, example: Example) -> str:
        return self.task.display(answer, without_reference(example))

    def key(self, answer: str, example: Example) -> Hashable:
        return self.task.key(answer, question_alone(example))


def get(name: str) -> Task:
    """The task of a name, or in a user's file. Raises BadInput that lists the known tasks, or names
    what the file lacks.
    """
    return _without_labels(_module(name))


_without_labels = functools.cache(Unlabelled)  # one object for each module


def _module(name: str) -> Task:
    if name in ("logiqa", "mmlu", "reclor"):
        return importlib.import_module("orce.tasks.benchmarks").PRESETS[name]
    if name in NAMES:
        return importlib.import_module(f"orce.tasks.{name}")
    if not name.endswith(".py"):
        known = f"{', '.join(NAMES)}, or the path of a Python file (my/task.py)"
        raise BadInput(f"no task {name!r}; tasks are {known}")
    module = modules.from_file(name)
    functions = [contract.name for contract in FUNCTIONS]
    modules.require(module, name, ("ANSWER_KIND", "MAX_TOKENS", "METRIC", *functions), "a task")
    if module.METRIC not in ("accuracy", "f1"):
        raise BadInput(f"{name}: METRIC is {module.METRIC!r}; expected 'accuracy' or 'f1'")
    if not isinstance(module.MAX_TOKENS, int) or module.MAX_TOKENS < 1:
        raise BadInput(
            f"{name}: MAX_TOKENS is {module.MAX_TOKENS!r}; expected a number of tokens, from 1 on"
        )
    return modules.keep_contracts(module, name, (*FUNCTIONS, *OPTIONAL))


def judge_prompt(
    task: Task, example: Example, answer: str | None, reasoning: str | None = None
) -> Messages:
    """The confidence LLM's prompt for a question and an answer, the same for every method that
    reads such pairs. reasoning: the whole reply that ends in the answer, where the confidence LLM
    reads that too (judge_reads: reasoning).
    """
    prompt = render(
        "confidence",
        question=task.question(example),
        answer=task.display(answer, example),
        reasoning=reasoning,
    )
    return [{"role": "user", "content": prompt}]
