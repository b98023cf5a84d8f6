"""Confidence in answers already made, without any model: from the samples in a record, or as the record states it.

from orce.apps import given
list(given.Samples("consistency").score([{"id": "1", "answers": ["Paris", "paris", "Rome"], "correct": [1, 1, 0]}]))
"""

from typing import Any, cast

import numpy as np

from orce import methods, tasks
from orce.errors import BadInput
from orce.metrics import summarise
from orce.records import Example, Number, Sample, Tested
from orce.tasks import given_records, qa

Record = dict[str, Any]  # a JSON object of a user (orce.tasks.given_records)
AS_STATED = "given"  # the method of a record that has its confidence


def names() -> list[str]:
    """Methods that need nothing but samples."""
    return [AS_STATED, *sorted(name for name, method in methods.METHODS.items() if method.compares)]


class Samples:
    """States confidences for records of given answers (orce.tasks.given_records) by a method that needs no model.

    task: how answers are read and compared (default: qa by normalised equality, choice where a record has choices).
    """

    def __init__(self, method: str, task: str | None = None):
        if method not in names():
            raise BadInput(f"method {method!r} needs a model; without one there are {', '.join(names())}")
        self.method, self.task = method, task

    def prompt(self, record: Record) -> None:
        """Raises BadInput if a record is not of the expected form."""
        self._scored(record)

    def score(self, records: list[Record]) -> list[Record]:
        """The records with `answer`, `confidence`, and `correct` (of that answer) where judgements or references tell.

        An `answer` that a record has stays; where another text was judged, that is `judged`.
        """
        return [self._scored(record) for record in records]

    def _scored(self, record: Record) -> Record:
        example: Any = {"context": None, "choices": None, "equality": "normalised"} | record
        example |= {"id": str(record.get("id", "")), "reference": references(record)}
        task = tasks.get(self.task or ("choice" if example["choices"] else "qa"))
        if record.get("correct") is not None or example["reference"]:
            return self._stated(record, given_records.samples("record", record, "test", example, task), example, task)
        n = len(record["answers"]) if isinstance(record.get("answers"), list) else 0
        unjudged = record | {"correct": [False] * n if "answers" in record else False}
        if (greedy := record.get("greedy")) is not None:
            text = greedy.get("answer") if isinstance(greedy, dict) else greedy
            unjudged["greedy"] = {"answer": text, "correct": False}
        found = self._stated(record, given_records.samples("record", unjudged, "test", example, task), example, task)
        return {key: value for key, value in found.items() if key != "correct"}

    def _stated(self, record: Record, read: Sample, example: Example, task) -> Record:
        greedy = cast(Tested, read).greedy
        if self.method == AS_STATED:
            if "confidence" not in record:
                raise BadInput("no key 'confidence'; name a method that computes it from answers (--method)")
            stated = given_records.confidence("record", record | {"answer": None}, greedy, example, task)
            return judged(record, stated.answer) | {"correct": stated.correct, "confidence": stated.confidence}
        method = methods.load(self.method)
        if method.state:
            answer, confidence = method.state(read.answers, example, task)
            correct = given_records.scored(read, answer, example, task).correct
        else:
            assert method.measure is not None  # `names` has measured methods alone
            confidence = method.measure(read.seen(), example, task)
            answer, correct = greedy.answer, greedy.correct
        return judged(record, answer) | {"correct": correct, "confidence": confidence}


def judged(record: Record, answer: str | Number | None) -> Record:
    """The record with the answer that was judged, without a change of its own."""
    return record | {"answer" if record.get("answer", answer) == answer else "judged": answer}


def references(record: Record) -> list[str] | str:
    """The accepted answers of a record: `references` or `reference`, a text or a list of texts."""
    found = record.get("references", record.get("reference")) or []
    return [found] if isinstance(found, str) and not record.get("choices") else found


def holds(record: Record) -> bool:
    """Whether one of a scored record's accepted answers stands in its answer as whole words."""
    answer = record.get("judged", record.get("answer"))
    return bool(answer) and qa.holds(answer, cast(Example, {"reference": references(record)})) is not None


def metrics(records: list[Record], unparsed: float = 0.5) -> Record:
    """The metrics of records with `confidence` and `correct`, with intervals; an unreadable confidence is counted.

    Raises BadInput if a record has no judgement.
    """
    for number, one in enumerate(records, 1):
        if one.get("correct") not in (True, False):
            raise BadInput(f"record {number} is not judged; metrics need its 'correct', or 'references' to judge by")
    stated = [one["confidence"] for one in records]
    confidence = np.array([unparsed if value is None else value for value in stated], float)
    correct = np.array([bool(one["correct"]) for one in records])
    unread = {
        "answer": sum(one.get("judged", one.get("answer")) is None for one in records),
        "confidence": stated.count(None),
    }
    return summarise(confidence, correct, n_unparsed=unread, n_resamples=2000, seed=0)
