"""Confidence in answers already made, without any model: of a record's samples, of a client's
response, or as a record states it.

from orce.apps import given list(given.Samples("consistency").score([{"id": "1", "answers":
["Paris", "paris", "Rome"], "correct": [1, 1, 0]}]))
"""

from typing import Any, cast

from orce import methods, tasks
from orce.artefacts import tables
from orce.artefacts.records import Tested
from orce.errors import BadInput
from orce.given import records as given_records
from orce.methods.samples import BY_MEANING, all_apart
from orce.metrics import summarise
from orce.tasks import rows
from orce.tasks.rows import Record

AS_STATED = "given"  # the method of a record that has its confidence


def names() -> list[str]:
    """Methods that need nothing but samples."""
    return [AS_STATED, *sorted(name for name, method in methods.known().items() if method.compares)]


class Samples:
    """States confidences for records of given answers (orce.given.records) by a method that needs
    no model.

    task: how answers are read and compared (default: qa by normalised equality, choice where a
    record has choices).
    """

    def __init__(self, method: str, task: str | None = None):
        if method not in names():
            raise BadInput(
                f"method {method!r} needs a model; without one there are {', '.join(names())}"
            )
        self.method = method
        self.task = task
        # whether no two samples of a record mean the same; None before any are compared
        self.apart: bool | None = None

    def score(self, records: list[Record]) -> list[Record]:
        """The records with `answer`, `confidence`, and `correct` (of that answer) where there are
        judgements or references.

        An `answer` that a record has stays; where another text was judged, that is `judged`.
        """
        return [self.prompt(record) for record in records]

    def prompt(self, record: Record) -> Record:
        """The scored record. Raises BadInput if a record is not of the expected form."""
        asked = rows.from_record("record", record, self.task)
        name = self.task or ("choice" if asked.options else "qa")
        asked.id = asked.id or ""
        task = tasks.get(name)
        example = {"equality": "normalised"} | asked.example(name)
        read = cast(Tested, given_records.make_sample(asked.judgeable(), "test", example, task))
        if self.method in BY_MEANING and sum(answer is not None for answer in read.answers) > 1:
            self.apart = self.apart is not False and all_apart([(read.answers, example)], task)
        method: Any = None if self.method == AS_STATED else methods.load(self.method)
        answer = read.greedy.answer
        correct = read.greedy.correct
        if method is None:
            if "confidence" not in record:
                raise BadInput(
                    "no key 'confidence'; name a method that computes it from answers (--method)"
                )
            confidence = tables.probability("record", record["confidence"])
        elif method.state:
            answer, confidence = method.state(read.answers, example, task)
            correct = given_records.score_answer(read, answer, example, task).correct
        else:
            confidence = method.measure(read.seen(), example, task)
        scored = {
            "answer" if record.get("answer", answer) == answer else "judged": answer,
            "confidence": confidence,
        }
        return record | scored | ({"correct": correct} if asked.labelled else {})


def of_response(response: Any, method: str = "likelihood") -> float | None:
    """How sure a model was of its answer: a number from 0 to 1, or None for an empty answer.

    response: a chat completion as an OpenAI-compatible client gives it, an object of the openai
    package or its dict. A method that reads token probabilities (likelihood, sequence_probability,
    min_likelihood) needs a request with logprobs=True; one that compares samples (agreement,
    consistency, semantic_entropy, ...) needs n of at least 2. The first choice is the answer.
    Raises BadInput for a response without what the method reads.
    """
    from orce.llm.engines.openai import Trouble, texts_of

    if not isinstance(response, dict) and not hasattr(response, "model_dump"):
        raise BadInput(
            f"response is of type {type(response).__name__}; expected a chat completion, or its dict"
        )
    try:
        texts = texts_of(response if isinstance(response, dict) else response.model_dump())
    except (Trouble, BadInput) as trouble:
        raise BadInput(f"response: {trouble}") from None
    by_samples = names()[1:]
    by_tokens = sorted(
        name
        for name, entry in methods.known().items()
        if entry.likelihoods and entry.logprobs_suffice
    )
    if method in by_samples:
        if len(texts) < 2:
            raise BadInput(f"response: one choice, and {method} compares several; ask for n=5")
        return Samples(method).prompt({"answers": [str(text) for text in texts]})["confidence"]
    if method not in by_tokens:
        raise BadInput(
            f"unknown method {method!r}; for a response there are {', '.join([*by_tokens, *by_samples])}"
        )
    if texts[0].logprobs is None and texts[0].strip():
        raise BadInput(
            "response: no log-probabilities of the tokens of its text; ask with logprobs=True"
        )
    measure = methods.known()[method].measure
    assert measure is not None
    example = {"question": "", "context": None, "choices": None, "reference": []}
    return measure({"logprobs": texts[0].logprobs or []}, example, tasks.get("qa"))


def metrics(records: list[Record], unparsed: float = 0.5) -> Record:
    """The metrics of records with `confidence` and `correct`, with intervals; an unreadable
    confidence is counted.

    Raises BadInput if a record has no judgement.
    """
    for number, record in enumerate(records, 1):
        if record.get("correct") not in (True, False):
            raise BadInput(
                f"record {number} is not judged; metrics need its 'correct', or 'references' to judge by"
            )
    answers = [record.get("judged", record.get("answer")) for record in records]
    stated = [record["confidence"] for record in records]
    unread = {"answer": answers.count(None), "confidence": stated.count(None)}
    confidence = [unparsed if value is None else float(value) for value in stated]
    return summarise(
        confidence,
        [bool(record["correct"]) for record in records],
        n_unparsed=unread,
        n_resamples=2000,
    )
