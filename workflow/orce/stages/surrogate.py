"""The correctness likelihood kappa of every prompt, and its realised answer (section 3.1)."""

import numpy as np
from msgspec import UNSET

from orce.align.surrogate import Row, kappa, realised_answer, write_surrogate
from orce.artefacts import store
from orce.artefacts.records import Sample
from orce.errors import BadInput
from orce.runtime.process import seed_of
from orce.tasks.examples import TESTED


def run(samples: str, seed: int, out: str):
    """Reads samples.jsonl; writes surrogate.csv: kappa = (right samples) / K of each prompt, and its
    realised answer: a right sample if kappa >= 1/2, else a wrong one (section 3.1).
    """
    rows = []
    for line, record in enumerate(store.records(samples, Sample), 1):
        try:
            rows.append(surrogate_row(record, seed))
        except ValueError as error:
            no_sample = f"no record of the sample step ({error})"
            raise BadInput(f"{samples}, line {line}: {no_sample}; sample it again") from None
    with store.writing(out, {"seed": seed}) as handle:
        write_surrogate(handle, rows)


def surrogate_row(record: Sample, seed: int) -> Row:
    """A row of surrogate.csv. The realised answer follows the paper's rule for training prompts,
    and is the greedy one for validation and test.
    """
    if record.split not in TESTED:
        rng = np.random.default_rng(seed_of(seed, "realised", record.id))
        answer, correct = realised_answer(record.answers, record.correct, rng)
    elif record.greedy is UNSET:
        raise ValueError("no greedy answer")
    else:
        answer = record.greedy.answer
        correct = record.greedy.correct
    return Row(
        id=record.id,
        split=record.split,
        n_correct=sum(record.correct),
        n_samples=len(record.correct),
        kappa=kappa(record.correct),
        answer="" if answer is None else answer,
        answer_correct=int(correct),
    )
