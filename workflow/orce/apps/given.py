"""Confidence in the answer of a client's response, without any model of ours; and the metrics of
scored records.
"""

from typing import Any, cast

from orce import methods, tasks
from orce.artefacts.records import Tested
from orce.errors import BadInput
from orce.given import records as given_records
from orce.methods import Method
from orce.metrics import summarise
from orce.runtime.modules import typed
from orce.tasks import rows
from orce.tasks.rows import Record

UNPARSED = 0.5  # as config.yaml's evaluation.unparsed_confidence


@typed
def of_response(response: Any, method: str = "likelihood") -> float | None:
    """How sure a model was of its answer: a number from 0 to 1, or None for an empty answer.

    response: a chat completion as an OpenAI-compatible client gives it, an object of the openai
    package or its dict. A method that reads token probabilities (likelihood, sequence_probability,
    min_likelihood) needs a request with logprobs=True; one that compares samples (agreement,
    consistency, semantic_entropy, ...) needs n of at least 2. The first choice is the answer.
    Raises BadInput for a response without what the method reads.
    """
    from orce.llm.engines.replies import Trouble, texts_of

    if hasattr(response, "model_dump"):
        response = response.model_dump()
    if not isinstance(response, dict):
        raise BadInput(
            f"response is of type {type(response).__name__}; expected a chat completion, or its dict"
        )
    try:
        texts = texts_of(response)
    except (Trouble, BadInput) as trouble:
        raise BadInput(f"response: {trouble}") from None
    known = methods.known()
    by_samples = sorted(name for name, entry in known.items() if entry.compares)
    by_tokens = sorted(
        name for name, entry in known.items() if entry.likelihoods and entry.logprobs_suffice
    )
    if method in by_samples:
        if len(texts) < 2:
            raise BadInput(f"response: one choice, and {method} compares several; ask for n=5")
        return _of_samples([str(text) for text in texts], known[method])
    if method not in by_tokens:
        raise BadInput(
            f"unknown method {method!r}; for a response there are {', '.join([*by_tokens, *by_samples])}"
        )
    logprobs = texts[0].logprobs
    if logprobs is None and texts[0].strip():
        raise BadInput(
            "response: no log-probabilities of the tokens of its text; ask with logprobs=True"
        )
    example = {"question": "", "context": None, "choices": None, "reference": []}
    return known[method].measure({"logprobs": logprobs or []}, example, tasks.get("qa"))


def _of_samples(answers: list[str], method: Method) -> float | None:
    """The confidence by a method that compares the answers to one question."""
    task = tasks.get("qa")
    asked = rows.question_of_record("response", {"answers": answers}).judgeable()
    example = asked.example("qa", id="", equality="normalised")
    read = cast(Tested, given_records.make_sample(asked, "test", example, task))
    if method.state is not None:
        return method.state(read.answers, example, task)[1]
    return method.measure(read.seen(), example, task)


def metrics(records: list[Record]) -> Record:
    """The metrics of records with `confidence`, `correct` and `answer`, with intervals. An
    unreadable confidence, None, counts as UNPARSED.

    Raises BadInput for a record without a judgement.
    """
    for number, record in enumerate(records, 1):
        if record.get("correct") not in (True, False):
            raise BadInput(
                f"record {number} is not judged; metrics need its 'correct', true or false"
            )
    answers = [record.get("answer") for record in records]
    stated = [record["confidence"] for record in records]
    return summarise(
        [UNPARSED if value is None else float(value) for value in stated],
        [bool(record["correct"]) for record in records],
        n_unparsed={"answer": answers.count(None), "confidence": stated.count(None)},
        n_resamples=2000,
    )
