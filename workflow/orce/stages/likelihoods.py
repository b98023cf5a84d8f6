"""Score answers with the answer LLM itself: token log-probabilities and P(True) of the greedy ones,
or token log-probabilities of the samples.

Computed at temperature 1, with the prompt under which the answer was given. Measured methods read
the records.
"""

import math
from functools import partial
from typing import Annotated, Any, Self

from msgspec import UNSET

from orce import stages, tasks
from orce.artefacts.records import Example, Tested
from orce.config import picking
from orce.llm.chat import Messages
from orce.runtime.process import say, speed
from orce.settings.schema import Config
from orce.settings.stage import AnswerSettings
from orce.tasks import Task
from orce.text import render
from orce.text.marks import after_thoughts

TRUE, FALSE = "A", "B"  # the letters of P(True)'s prompt


class LikelihoodsSettings(AnswerSettings, kw_only=True):
    """scored: the greedy answers or the samples. There is no engine to choose: transformers reads
    them whatever generated them, as a server gives no log-probabilities of a given text.
    """

    scored: str = "greedy"

    @classmethod
    def of(cls, config: Config, dataset: str, model: str, file: str = "likelihoods") -> Self:
        scored = "samples" if file == "sample_likelihoods" else "greedy"
        return picking.pick(cls, config, file.replace("_", " "), dataset, model, scored=scored)


def run(
    settings: LikelihoodsSettings,
    prompts: Annotated[str, "frozen test prompts"],
    samples: Annotated[str, "with the greedy answers"],
    out: str,
    shard: stages.Shard = "0/1",
):
    """Reads prompts and samples; writes likelihoods.jsonl or sample_likelihoods.jsonl: log P(token)
    of the answers under the prompt that asked for them, and P(True).
    """
    items = stages.read_tested(prompts, samples)

    def load():
        from orce.llm import language_model, reading

        say(f"[{settings.label}] loading the answer LLM")
        lm = language_model.load(settings.model)
        return reading.Scorer(lm, speed("confidence")["batch_tokens"])

    work = partial(score, settings=settings)
    stages.write_in_chunks(settings, items, out, load, work, kind="confidence", shard=shard)


def score(chunk: list[tuple[Example, Tested]], scorer, settings: LikelihoodsSettings) -> list[dict]:
    """Records {id, logprobs, p_true, p_true_mass} of the greedy replies, or {id, sample_logprobs}
    of the K samples.

    logprobs: of each token of the reply as it was written, without its thoughts and the token that
    ends the turn; empty for an empty reply.
    """
    task = tasks.get(settings.task)
    greedy = settings.scored == "greedy"
    prompts = [stages.answer_prompt(task, example, settings) for example, _ in chunk]
    replies = [[record.greedy.raw] if greedy else record.raw for _, record in chunk]
    scored = scorer.logprobs(prompts, replies)
    records = []
    for (example, _), texts, of_texts in zip(chunk, replies, scored, strict=True):
        pairs = zip(texts, of_texts, strict=True)
        logprobs = [round_logprobs(text, of_text, scorer) for text, of_text in pairs]
        kept = {"logprobs": logprobs[0]} if greedy else {"sample_logprobs": logprobs}
        records.append({"id": example["id"]} | kept)
    if greedy:
        add_p_true(records, [p_true_prompt(task, *item) for item in chunk], scorer)
    return records


def add_p_true(records: list[dict], prompts: list[Messages], scorer) -> None:
    """Add p_true, P(A) / (P(A) + P(B)) for A "True" and B "False", and p_true_mass, P(A) + P(B)."""
    letters = scorer.logprobs(prompts, [[TRUE, FALSE]] * len(prompts))
    for record, both in zip(records, letters, strict=True):
        true, false = map(sum, both)
        record["p_true"] = 1 / (1 + math.exp(false - true))
        record["p_true_mass"] = math.exp(true) + math.exp(false)


def round_logprobs(reply: str, logprobs: list[float], scorer) -> list[float]:
    """Those of the tokens after the reply's thoughts."""
    answer = after_thoughts(reply)
    thoughts = 0
    if answer != reply:
        from orce.llm.chat import text_ids

        thoughts = len(text_ids(scorer.lm.tokenizer, reply.removesuffix(answer.lstrip())))
    return stages.seven_digits(logprobs[thoughts:])


def p_true_prompt(task: Task, example: Example, record: Tested) -> Messages:
    """Kadavath et al.'s question: the samples as ideas, each once, the most frequent first, and the
    greedy answer.

    Of samples that mean the same, where the record says so, the most frequent one is the idea.
    """
    texts = [task.display(answer, example) for answer in record.answers if answer is not None]
    meanings: list[Any] = texts
    if record.meanings is not UNSET:
        meanings = [meaning for meaning in record.meanings if meaning is not None]
    alike: dict[Any, list[str]] = {}  # by meaning
    for meaning, text in zip(meanings, texts, strict=True):
        alike.setdefault(meaning, []).append(text)
    frequency = {}
    for same in alike.values():
        idea = max(same, key=same.count)
        frequency[idea] = len(same)
    ideas = sorted(frequency, key=lambda idea: (-frequency[idea], texts.index(idea)))
    answer = task.display(record.greedy.answer, example)
    question = render("p_true", question=task.question(example), ideas=ideas, answer=answer)
    return [{"role": "user", "content": question}]
