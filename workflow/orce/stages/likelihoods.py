"""Score the greedy answers with the answer LLM itself: token log-probabilities and P(True). Or its
samples: log-probabilities.

Computed at temperature 1, with the prompt under which the answer was given. Measured methods read
the records.
"""

import math
from functools import partial
from typing import Annotated, Self

from msgspec import UNSET

from orce import stages, tasks
from orce.artefacts.records import Example, Tested
from orce.config import picking
from orce.llm.chat import Messages
from orce.runtime.process import say
from orce.settings.schema import Config
from orce.settings.stage import AnswerSettings
from orce.tasks import Task
from orce.text import render
from orce.text.marks import after_thoughts

TRUE, FALSE = "A", "B"  # the letters of P(True)'s prompt


class LikelihoodsSettings(AnswerSettings, kw_only=True):
    """scored: the greedy answers or the samples."""

    scored: str = "greedy"

    @classmethod
    def of(cls, config: Config, dataset: str, model: str, file: str = "likelihoods") -> Self:
        # Read by transformers whatever generated the answers: a server gives no log-probabilities
        # of a given text.
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

    def load(fast):
        from orce.llm import language_model, reading

        say(f"[{settings.label}] loading the answer LLM")
        return reading.Scorer(language_model.load(settings.model), fast["batch_tokens"])

    work = partial(
        score_samples if settings.scored == "samples" else score_greedy, settings=settings
    )
    stages.write_in_chunks(settings, items, out, load, work, kind="confidence", shard=shard)


def score_samples(
    chunk: list[tuple[Example, Tested]], scorer, settings: LikelihoodsSettings
) -> list[dict]:
    """Records {id, sample_logprobs}: of each token of each of the K samples, as `score_greedy`
    has them of the greedy reply.
    """
    task = tasks.get(settings.task)
    given = [stages.answer_prompt(task, example, settings) for example, _ in chunk]
    scored = scorer.logprobs(given, [record.raw for _, record in chunk])
    records = []
    for (example, record), samples in zip(chunk, scored, strict=True):
        pairs = zip(samples, record.raw, strict=True)
        rounded = [round_logprobs(*pair, scorer) for pair in pairs]
        records.append({"id": example["id"], "sample_logprobs": rounded})
    return records


def score_greedy(
    chunk: list[tuple[Example, Tested]], scorer, settings: LikelihoodsSettings
) -> list[dict]:
    """Records {id, logprobs, p_true, p_true_mass}.

    logprobs: of each token of the greedy reply as it was written, without its thoughts and the
    token that ends the turn; empty for an empty reply. p_true: P(A) / (P(A) + P(B)) for A "True"
    and B "False". p_true_mass: P(A) + P(B).
    """
    task = tasks.get(settings.task)
    given = [stages.answer_prompt(task, example, settings) for example, _ in chunk]
    replies = scorer.logprobs(given, [[record.greedy.raw] for _, record in chunk])
    letters = scorer.logprobs(
        [p_true_prompt(task, *item) for item in chunk], [[TRUE, FALSE]] * len(chunk)
    )
    records = []
    for (example, record), (logprobs,), both in zip(chunk, replies, letters, strict=True):
        true, false = map(sum, both)
        p_true = {
            "p_true": 1 / (1 + math.exp(false - true)),
            "p_true_mass": math.exp(true) + math.exp(false),
        }
        records.append(
            {"id": example["id"], "logprobs": round_logprobs(logprobs, record.greedy.raw, scorer)}
            | p_true
        )
    return records


def p_true_prompt(task: Task, example: Example, record: Tested) -> Messages:
    """Kadavath et al.'s question: the samples as ideas, each once in the order of their number, and
    the greedy answer.

    Of samples that mean the same, where the record says so, the most frequent one is the idea.
    """
    read = [task.display(answer, example) for answer in record.answers if answer is not None]
    group = (
        read
        if record.meanings is UNSET
        else [meaning for meaning in record.meanings if meaning is not None]
    )
    of = dict(zip(read, group, strict=True))
    ideas = [
        max((idea for idea in read if of[idea] == label), key=read.count)
        for label in dict.fromkeys(of.values())
    ]
    ideas.sort(key=lambda idea: (-group.count(of[idea]), read.index(idea)))
    answer = task.display(record.greedy.answer, example)
    return [
        {
            "role": "user",
            "content": render(
                "p_true", question=task.question(example), ideas=ideas, answer=answer
            ),
        }
    ]


def round_logprobs(logprobs: list[float], reply: str, scorer) -> list[float]:
    """Those of the tokens after the reply's thoughts, to float32's seven digits."""
    answer = after_thoughts(reply)
    thoughts = 0
    if answer != reply:
        from orce.llm.chat import text_ids

        thoughts = len(text_ids(scorer.lm.tokenizer, reply.removesuffix(answer.lstrip())))
    return [float(f"{value:.7g}") for value in logprobs[thoughts:]]
