"""Ask the answer LLM for answer and confidence together (Top-k, CoT), or for confidence in its
greedy answer (linguistic confidence).

Decoding is greedy. If a reply states no readable confidence, a second question in the same
conversation asks for the confidence alone (the two turns of Tian et al., 2023). The answer always
comes from the first reply, so the confidence is in that answer.
"""

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

STATEMENT_TOKENS = 16  # budget of the reply to the second question, where it asks for a percent
QUESTION_TOKENS = 64  # length of the second question with its chat markup
AGAIN = (
    "That is not in the form that I asked for. Reply with only what I asked for, and nothing else."
)

Item = tuple[Example, Greedy | None]  # the greedy answer, for a method that asks about it


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
    items: list[Item] = [(example, None) for example in stages.read_prompts(prompts)]
    if samples is not None:
        tested = stages.read_tested(prompts, samples)
        items = [(example, record.greedy) for example, record in tested]

    def load():
        asked.read("", *items[0])  # a mistake in a user's method shows before anything is generated
        conversations = [asked.prompt(*item) for item in items]
        return stages.open_engine(settings, conversations, asked.longest)

    stages.write_in_chunks(settings, items, out, load, asked.elicit, kind="answers", shard=shard)


class Elicitation:
    """Asks by one method, and reads the replies: for answer and confidence in one reply, or for
    confidence in the greedy answer.
    """

    def __init__(self, settings: ElicitSettings):
        self.settings = settings
        self.method = methods.load(settings.module)
        self.task = tasks.get(settings.task)
        self.options = settings.options
        self.budget: int = self.options["max_tokens"]
        self.second_budget = self.budget if self.method.ask else STATEMENT_TOKENS
        self.longest = self.budget + QUESTION_TOKENS + self.second_budget

    def elicit(self, items: list[Item], engine) -> list[Confidence]:
        """The answers and confidences; `raw` is the reply, or after a second question (`retried`) a
        list of both replies.
        """
        prompts = [self.prompt(*item) for item in items]
        texts = self.generate(engine, prompts, self.budget, items)
        records = [self.read(text, *item) for text, item in zip(texts, items, strict=True)]
        for record in records:
            record.retried = record.confidence is None
        unread = [i for i, record in enumerate(records) if record.retried]
        if not unread:
            return records
        longer = []
        for i in unread:
            example, _ = items[i]
            longer.append(self.again(prompts[i], texts[i], example))
        replies = self.generate(engine, longer, self.second_budget, [items[i] for i in unread])
        for i, reply in zip(unread, replies, strict=True):
            if self.method.ask:
                records[i].confidence = self.method.read(reply, self.options)
            else:
                records[i].confidence = extract.confidence(reply)
            records[i].raw = [texts[i], reply]
        return records

    def generate(
        self, engine, conversations: list[Messages], budget: int, items: list[Item]
    ) -> list[str]:
        method = f"orce.methods.{self.settings.method}"
        seeds = [seed_of(self.settings.seed, "ask", method, example["id"]) for example, _ in items]
        return [text for (text,) in engine.generate(conversations, 1, 0.0, budget, seeds)]

    def prompt(self, example: Example, greedy: Greedy | None) -> Messages:
        asked = without_reference(example)
        if self.method.ask and greedy:
            return self.method.ask(asked, greedy.answer, self.task, self.options)
        return self.method.prompt(asked, self.task, self.options)

    def read(self, text: str, example: Example, greedy: Greedy | None) -> Confidence:
        if self.method.ask and greedy:
            return Confidence.of(example, greedy, self.method.read(text, self.options), text)
        asked = without_reference(example)
        answer, confidence = self.method.read(text, asked, self.task, self.options)
        scored = Scored.of(answer, text, self.task.score(answer, example))
        return Confidence.of(example, scored, confidence, text)

    def again(self, conversation: Messages, text: str, example: Example) -> Messages:
        """The conversation continued by `text` and a question for the confidence in its answer.

        Each worked example gets the same question, and repeats the confidence that it stated.
        """
        reply = {"role": "assistant", "content": text}
        if self.method.ask:
            return [*conversation, reply, {"role": "user", "content": AGAIN}]
        question = {"role": "user", "content": render("follow_up", what=self.method.answer)}
        asked = without_reference(example)
        longer = []
        for turn in conversation:
            longer.append(turn)
            if turn["role"] != "assistant":
                continue
            _, stated = self.method.read(turn["content"], asked, self.task, self.options)
            if stated is not None:
                repeated = statement(to_percent(stated))
                longer += [question, {"role": "assistant", "content": repeated}]
        return [*longer, reply, question]
