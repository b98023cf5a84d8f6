"""The correctness likelihood kappa of every prompt, and its realised answer (section 3.1)."""

from typing import Annotated

import numpy as np
from msgspec import UNSET

from orce.align.surrogate import Row, kappa, realised_answer, write_surrogate
from orce.artefacts import store
from orce.artefacts.records import Sample
from orce.errors import BadInput
from orce.runtime.process import seed_of
from orce.tasks.examples import TESTED


def run(
    samples: str,
    seed: int,
    out: str,
    reasoning: Annotated[bool, "keep the whole reply that the answer was read in too"] = False,
):
    """Reads samples.jsonl; writes surrogate.csv: kappa = (right samples) / K of each prompt, and its
    realised answer: a right sample if kappa >= 1/2, else a wrong one (section 3.1); of a prompt for
    validation or test the greedy answer.
    """
    rows = []
    for line, record in enumerate(store.records(samples, Sample), 1):
        try:
            rows.append(surrogate_row(record, seed, reasoning))
        except ValueError as error:
            no_sample = f"no record of the sample step ({error})"
            raise BadInput(f"{samples}, line {line}: {no_sample}; sample it again") from None
    settings = {"seed": seed, "reasoning": True} if reasoning else {"seed": seed}
    with store.writing(out, settings) as handle:
        write_surrogate(handle, rows)


def surrogate_row(record: Sample, seed: int, reasoning: bool = False) -> Row:
    """A row of surrogate.csv. The realised answer follows the paper's rule for training prompts,
    and is the greedy one for validation and test.

    reasoning: with `raw`, the reply that states the answer.
    """
    if record.split not in TESTED:
        rng = np.random.default_rng(seed_of(seed, "realised", record.id))
        replies = [*zip(record.answers, record.raw, strict=True)]
        (answer, reply), correct = realised_answer(replies, record.correct, rng)
    elif record.greedy is UNSET:
        raise ValueError("no greedy answer")
    else:
        answer = record.greedy.answer
        reply = record.greedy.raw
        correct = record.greedy.correct
    return Row(
        id=record.id,
        split=record.split,
        n_correct=sum(record.correct),
        n_samples=len(record.correct),
        kappa=kappa(record.correct),
        answer="" if answer is None else answer,
        answer_correct=int(correct),
        raw=reply if reasoning else UNSET,
    )
