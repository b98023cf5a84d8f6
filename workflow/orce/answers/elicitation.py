"""The answer LLM gives answer and confidence in its own words (prompted methods: Top-k, CoT).

Decoding is greedy. If a reply states no readable confidence, a second question in the same conversation asks for the
confidence alone (the two turns of Tian et al., 2023). The answer always comes from the first reply, and a confidence is
never attached to the answer of another reply.
"""

from typing import Any

from orce import tasks
from orce.answers.prompted import Prompted
from orce.llm.chat import statement, to_percent
from orce.records import Confidence, Example, Messages, Scored
from orce.runtime.seeds import seed_of
from orce.stage_settings import Elicit
from orce.tasks import Task
from orce.text import extract
from orce.text.prompting import render

STATEMENT_TOKENS = 16  # budget of the reply to the second question
QUESTION_TOKENS = 64  # length of the second question with its chat markup


def messages(examples: list[Example], method: Prompted, options: Elicit) -> list[Messages]:
    """The conversation of every example, as the answer LLM reads it; `method` is the prompted method's module."""
    task = tasks.get(options.task)
    return [method.prompt(example, task, options.options) for example in examples]


def tried(example: Example, method: Prompted, options: Elicit) -> None:
    """Let the method read an empty text: a mistake in a user's method shows before anything is generated."""
    method.read("", example, tasks.get(options.task), options.options)


def longest_reply(options: Elicit) -> int:
    """Tokens by which a conversation may grow: the reply, the second question and the reply to it."""
    return options.options["max_tokens"] + QUESTION_TOKENS + STATEMENT_TOKENS


def records(examples: list[Example], engine, method: Prompted, options: Elicit) -> list[Confidence]:
    """The answers and confidences.

    `raw` is the reply; after a second question (`retried`), a list of both replies.
    """
    task, prompts = tasks.get(options.task), messages(examples, method, options)
    texts = _greedy(engine, prompts, options.options["max_tokens"], examples, options)
    found = [_record(text, example, method, task, options) for text, example in zip(texts, examples, strict=True)]
    unread = [i for i, record in enumerate(found) if record.confidence is None]
    if unread:
        again = [follow_up(prompts[i], texts[i], examples[i], method, task, options.options) for i in unread]
        replies = _greedy(engine, again, STATEMENT_TOKENS, [examples[i] for i in unread], options)
        for i, reply in zip(unread, replies, strict=True):
            found[i].confidence = extract.confidence(reply)
            found[i].raw, found[i].retried = [texts[i], reply], True
    return found


def follow_up(
    conversation: Messages, text: str, example: Example, method: Prompted, task: Task, settings: dict[str, Any]
) -> Messages:
    """The conversation continued by `text` and a question for the confidence in its answer.

    Each worked example gets the same question, and repeats the confidence that it stated.
    """
    question = {"role": "user", "content": render("follow_up", what=getattr(method, "ANSWER", "this answer"))}
    longer = []
    for turn in conversation:
        longer.append(turn)
        if turn["role"] == "assistant":
            _, stated = method.read(turn["content"], example, task, settings)
            if stated is not None:
                longer += [question, {"role": "assistant", "content": statement(to_percent(stated))}]
    return [*longer, {"role": "assistant", "content": text}, question]


def _record(text: str, example: Example, method: Prompted, task: Task, options: Elicit) -> Confidence:
    answer, confidence = method.read(text, example, task, options.options)
    record = Confidence.of(example, Scored.of(answer, text, task.score(answer, example)), confidence, text)
    record.retried = False
    return record


def _greedy(engine, conversations: list[Messages], limit: int, examples: list[Example], options: Elicit) -> list[str]:
    seeds = [seed_of(options.seed, "ask", f"orce.methods.{options.method}", one["id"]) for one in examples]
    return [text for (text,) in engine.generate(conversations, 1, 0.0, limit, seeds)]
