"""What the answer LLM itself thinks of its greedy answers: the log-probabilities of their tokens, and P(True); and the
log-probabilities of its samples' tokens.

Computed at temperature 1, with the prompt under which the answer was given. Measured methods read the records.
"""

import math

from msgspec import UnsetType

from orce import tasks
from orce.answers import asking
from orce.llm.chat import Messages
from orce.records import Example, Tested
from orce.stage_settings import Likelihoods
from orce.tasks import Task
from orce.text.prompting import render

TRUE, FALSE = "A", "B"  # the letters of P(True)'s prompt


def p_true(task: Task, example: Example, record: Tested) -> Messages:
    """Kadavath et al.'s question: the samples as ideas, each once in the order of their number, and the greedy answer.

    Of samples that mean the same, where the record says so, the most frequent one is the idea.
    """
    read = [task.display(answer, example) for answer in record.answers if answer is not None]
    ideas = sorted(dict.fromkeys(read), key=lambda idea: -read.count(idea))
    if not isinstance(record.meanings, UnsetType):
        group = [one for one in record.meanings if one is not None]
        of = dict(zip(read, group, strict=True))
        ideas = list({of[idea]: idea for idea in reversed(ideas)}.values())
        ideas.sort(key=lambda idea: (-group.count(of[idea]), read.index(idea)))
    answer = task.display(record.greedy.answer, example)
    return [{"role": "user", "content": render("p_true", question=task.question(example), ideas=ideas, answer=answer)}]


def of_samples(chunk: list[tuple[Example, Tested]], scorer, options: Likelihoods) -> list[dict]:
    """Records {id, sample_logprobs}: of each token of each of the K samples, as `records` has them of the greedy reply."""
    task = tasks.get(options.task)
    found = scorer.logprobs(
        [asking.prompt(task, example, options) for example, _ in chunk], [record.raw for _, record in chunk]
    )
    return [
        {"id": example["id"], "sample_logprobs": [_rounded(tokens) for tokens in samples]}
        for (example, _), samples in zip(chunk, found, strict=True)
    ]


def records(chunk: list[tuple[Example, Tested]], scorer, options: Likelihoods) -> list[dict]:
    """Records {id, logprobs, p_true, p_true_mass}.

    logprobs: of each token of the greedy reply as it was written, without the token that ends the turn; empty for an
    empty reply. p_true: P(A) / (P(A) + P(B)) for A "True" and B "False". p_true_mass: P(A) + P(B).
    """
    task = tasks.get(options.task)
    given = [asking.prompt(task, example, options) for example, _ in chunk]
    asked = [p_true(task, *item) for item in chunk]
    replies = scorer.logprobs(given, [[record.greedy.raw] for _, record in chunk])
    letters = scorer.logprobs(asked, [[TRUE, FALSE]] * len(chunk))
    return [
        {"id": example["id"], "logprobs": _rounded(logprobs)} | _p_true(*map(sum, both))
        for (example, _), (logprobs,), both in zip(chunk, replies, letters, strict=True)
    ]


def _rounded(logprobs: list[float]) -> list[float]:
    return [float(f"{value:.7g}") for value in logprobs]


def _p_true(true: float, false: float) -> dict:
    return {"p_true": 1 / (1 + math.exp(false - true)), "p_true_mass": math.exp(true) + math.exp(false)}
