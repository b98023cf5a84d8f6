"""Confidence in the answer of a client's response, without any model of ours; and the metrics of scored records."""

from typing import Any, cast

from orce import methods, tasks
from orce.artefacts.records import Tested
from orce.errors import BadInput
from orce.given import records as given_records
from orce.metrics import summarise
from orce.tasks import rows
from orce.tasks.rows import Record


def of_response(response: Any, method: str = "likelihood") -> float | None:
    """How sure a model was of its answer: a number from 0 to 1, or None for an empty answer.

    response: a chat completion as an OpenAI-compatible client gives it, an object of the openai package or its dict. A
    method that reads token probabilities (likelihood, sequence_probability, min_likelihood) needs a request with
    logprobs=True; one that compares samples (agreement, consistency, semantic_entropy, ...) needs n of at least 2. The first
    choice is the answer. Raises BadInput for a response without what the method reads.
    """
    from orce.llm.engines.replies import Trouble, texts_of

    if not isinstance(response, dict) and not hasattr(response, "model_dump"):
        raise BadInput(
            f"response is of type {type(response).__name__}; expected a chat completion, or its dict"
        )
    try:
        texts = texts_of(response if isinstance(response, dict) else response.model_dump())
    except (Trouble, BadInput) as trouble:
        raise BadInput(f"response: {trouble}") from None
    by_samples = sorted(name for name, entry in methods.known().items() if entry.compares)
    by_tokens = sorted(
        name
        for name, entry in methods.known().items()
        if entry.likelihoods and entry.logprobs_suffice
    )
    if method in by_samples:
        if len(texts) < 2:
            raise BadInput(f"response: one choice, and {method} compares several; ask for n=5")
        return _of_samples([str(text) for text in texts], method)
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


def _of_samples(answers: list[str], method: str) -> float | None:
    """The confidence by a method that compares the answers to one question."""
    task, compares = tasks.get("qa"), methods.known()[method]
    asked = rows.question_of_record("response", {"answers": answers}).judgeable()
    example = asked.example("qa", id="", equality="normalised")
    read = cast(Tested, given_records.make_sample(asked, "test", example, task))
    if compares.state is not None:
        return compares.state(read.answers, example, task)[1]
    assert compares.measure is not None
    return compares.measure(read.seen(), example, task)


def metrics(records: list[Record], unparsed: float = 0.5) -> Record:
    """The metrics of records with `confidence` and `correct`, with intervals; an unreadable confidence is counted.

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
