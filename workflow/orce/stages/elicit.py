"""Ask the answer LLM for answer and confidence together (Top-k, CoT), or for confidence in its
greedy answer (linguistic confidence).

Decoding is greedy. If a reply states no readable confidence, a second question in the same
conversation asks for the confidence alone (the two turns of Tian et al., 2023). The answer always
comes from the first reply, and a confidence is never attached to the answer of another reply.
"""

from functools import partial
from typing import Annotated, Any, Self

from orce import methods, stages, tasks
from orce.artefacts.records import Confidence, Example, Greedy, Messages, Scored
from orce.config import picking
from orce.llm.chat import statement, to_percent
from orce.runtime.process import seed_of
from orce.settings.schema import Config
from orce.settings.stage import ModelSettings
from orce.tasks import without_reference
from orce.text import extract, render

STATEMENT_TOKENS = 16  # budget of the reply to the second question
QUESTION_TOKENS = 64  # length of the second question with its chat markup
AGAIN = (
    "That is not in the form that I asked for. Reply with only what I asked for, and nothing else."
)


class ElicitSettings(ModelSettings, kw_only=True):
    """options: the method's own settings."""

    engine: str
    method: str
    module: str
    options: dict[str, Any]
    seed: int

    @classmethod
    def of(cls, config: Config, dataset: str, model: str, method: str) -> Self:
        registry = methods.of(config)
        options = {"shots": config.models[model].shots} | registry.settings(method)
        more = {"method": method, "module": registry.module(method), "options": options}
        return picking.pick(cls, config, method, dataset, model, **more)


def run(
    settings: ElicitSettings,
    prompts: str,
    out: str,
    samples: Annotated[
        str | None, "with the greedy answers, for a method that asks about them"
    ] = None,
    shard: stages.Shard = "0/1",
):
    """Reads prompts, and greedy answers for a method that asks about them; writes confidences.jsonl
    with the replies.
    """
    asked = Elicitation(settings)
    items: list = [(example, None) for example in stages.read_prompts(prompts)]
    if samples is not None:
        items = [
            (example, record.greedy) for example, record in stages.read_tested(prompts, samples)
        ]

    def load(fast):
        asked.read("", *items[0])  # a mistake in a user's method shows before anything is generated
        return stages.open_engine(
            settings, fast, [asked.prompt(*item) for item in items], asked.longest
        )

    work = partial(elicit_chunk, asked=asked, settings=settings)
    stages.write_in_chunks(settings, items, out, load, work, kind="answers", shard=shard)


class Elicitation:
    """Asks and reads by one method: for answer and confidence in one reply, or for confidence in
    the greedy answer.
    """

    def __init__(self, settings: ElicitSettings):
        self.method = methods.load(settings.module)
        self.task = tasks.get(settings.task)
        self.options = settings.options
        self.again_tokens = self.options["max_tokens"] if self.method.ask else STATEMENT_TOKENS
        self.longest = self.options["max_tokens"] + QUESTION_TOKENS + self.again_tokens

    def prompt(self, example: Example, greedy: Greedy | None = None) -> Messages:
        asked = without_reference(example)
        if self.method.ask and greedy:
            return self.method.ask(asked, greedy.answer, self.task, self.options)
        return self.method.prompt(asked, self.task, self.options)

    def read(self, text: str, example: Example, greedy: Greedy | None = None) -> Confidence:
        if self.method.ask and greedy:
            return Confidence.of(example, greedy, self.method.read(text, self.options), text)
        answer, confidence = self.method.read(
            text, without_reference(example), self.task, self.options
        )
        return Confidence.of(
            example, Scored.of(answer, text, self.task.score(answer, example)), confidence, text
        )

    def again(self, conversation: Messages, text: str, example: Example) -> Messages:
        """The conversation continued by `text` and a question for the confidence in its answer.

        Each worked example gets the same question, and repeats the confidence that it stated.
        """
        reply = {"role": "assistant", "content": text}
        if self.method.ask:
            return [*conversation, reply, {"role": "user", "content": AGAIN}]
        question = {"role": "user", "content": render("follow_up", what=self.method.answer)}
        longer = []
        for turn in conversation:
            longer.append(turn)
            if turn["role"] == "assistant":
                _, stated = self.method.read(turn["content"], example, self.task, self.options)
                if stated is not None:
                    longer += [
                        question,
                        {"role": "assistant", "content": statement(to_percent(stated))},
                    ]
        return [*longer, reply, question]


def elicit_chunk(
    items: list, engine, asked: Elicitation, settings: ElicitSettings
) -> list[Confidence]:
    """The answers and confidences; `raw` is the reply, or after a second question (`retried`) a
    list of both replies.
    """

    def generate(conversations: list[Messages], limit: int, about: list) -> list[str]:
        seeds = [
            seed_of(settings.seed, "ask", f"orce.methods.{settings.method}", row["id"])
            for row, _ in about
        ]
        return [text for (text,) in engine.generate(conversations, 1, 0.0, limit, seeds)]

    prompts = [asked.prompt(*item) for item in items]
    texts = generate(prompts, settings.options["max_tokens"], items)
    answers = [asked.read(text, *item) for text, item in zip(texts, items, strict=True)]
    for record in answers:
        record.retried = False
    if unread := [i for i, record in enumerate(answers) if record.confidence is None]:
        longer = [asked.again(prompts[i], texts[i], items[i][0]) for i in unread]
        replies = generate(longer, asked.again_tokens, [items[i] for i in unread])
        for i, reply in zip(unread, replies, strict=True):
            confidence = (
                asked.method.read(reply, asked.options)
                if asked.method.ask
                else extract.confidence(reply)
            )
            answers[i].confidence, answers[i].raw, answers[i].retried = (
                confidence,
                [texts[i], reply],
                True,
            )
    return answers
