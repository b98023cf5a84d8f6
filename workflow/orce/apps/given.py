"""Confidence in answers already made, without any model: of a record's samples, of a client's response, or as a record states it.

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

    def score(self, records: list[Record]) -> list[Record]:
        """The records with `answer`, `confidence`, and `correct` (of that answer) where judgements or references tell.

        An `answer` that a record has stays; where another text was judged, that is `judged`.
        """
        return [self.prompt(record) for record in records]

    def prompt(self, record: Record) -> Record:
        """The scored record. Raises BadInput if a record is not of the expected form."""
        example: Any = {"context": None, "choices": None, "equality": "normalised"} | record
        example |= {"id": str(record.get("id", "")), "reference": references(record)}
        task = tasks.get(self.task or ("choice" if example["choices"] else "qa"))
        graded, complete = record.get("correct") is not None or bool(example["reference"]), record
        if not graded:  # the judgements are dropped in the end
            n = len(record["answers"]) if isinstance(record.get("answers"), list) else 0
            complete = record | {"correct": [False] * n if "answers" in record else False}
            if (greedy := record.get("greedy")) is not None:
                text = greedy.get("answer") if isinstance(greedy, dict) else greedy
                complete["greedy"] = {"answer": text, "correct": False}
        read = given_records.samples("record", complete, "test", example, task)
        answer, correct, confidence = self._stated(record, read, example, task)
        judged = "answer" if record.get("answer", answer) == answer else "judged"
        found = record | {judged: answer, "correct": correct, "confidence": confidence}
        return found if graded else {key: value for key, value in found.items() if key != "correct"}

    def _stated(self, record: Record, read: Sample, example: Example, task) -> tuple[Any, Any, Number | None]:
        """The answer that is judged, whether it is right, and the confidence in it."""
        greedy = cast(Tested, read).greedy
        if self.method == AS_STATED:
            if "confidence" not in record:
                raise BadInput("no key 'confidence'; name a method that computes it from answers (--method)")
            stated = given_records.confidence("record", record | {"answer": None}, greedy, example, task)
            return stated.answer, stated.correct, stated.confidence
        method = methods.load(self.method)
        if method.state:
            answer, confidence = method.state(read.answers, example, task)
            return answer, given_records.scored(read, answer, example, task).correct, confidence
        assert method.measure is not None  # `names` has measured methods alone
        return greedy.answer, greedy.correct, method.measure(read.seen(), example, task)


def of_response(response: Any, method: str = "likelihood") -> float | None:
    """How sure a model was of its answer: a number from 0 to 1, or None for an empty answer.

    response: a chat completion as an OpenAI-compatible client gives it, an object of the openai package or its dict. A
    method that reads token probabilities (likelihood, sequence_probability, min_likelihood) needs a request with
    logprobs=True; one that compares samples (agreement, consistency, semantic_entropy, ...) needs n of at least 2. The first
    choice is the answer. Raises BadInput for a response without what the method reads.
    """
    from orce.llm.engines.openai import Trouble, texts_of

    if not isinstance(response, dict) and not hasattr(response, "model_dump"):
        raise BadInput(f"response is of type {type(response).__name__}; expected a chat completion, or its dict")
    try:
        texts = texts_of(response if isinstance(response, dict) else response.model_dump())
    except Trouble as trouble:
        raise BadInput(f"response: {trouble}") from None
    of_samples = names()[1:]
    if method in of_samples:
        if len(texts) < 2:
            raise BadInput(f"response: one choice, and {method} compares several; ask for n=5")
        return Samples(method).prompt({"answers": [str(text) for text in texts]})["confidence"]
    of_tokens = sorted(name for name, one in methods.METHODS.items() if one.likelihoods and one.logprobs_suffice)
    if method not in of_tokens:
        raise BadInput(f"unknown method {method!r}; for a response there are {', '.join([*of_tokens, *of_samples])}")
    if texts[0].logprobs is None and texts[0]:
        raise BadInput("response: no log-probabilities of its tokens; ask with logprobs=True")
    measure = methods.METHODS[method].measure
    assert measure is not None
    example = {"question": "", "context": None, "choices": None, "reference": []}
    return measure({"logprobs": texts[0].logprobs or []}, example, tasks.get("qa"))


# Records with references and confidences


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
