"""The confidence of a chat completion that a client already has, from the log-probabilities of its tokens."""

from typing import Any

from orce import methods, tasks
from orce.apps import given
from orce.errors import BadInput
from orce.llm.engines.openai import Trouble, texts_of


def of_response(response: Any, method: str = "likelihood") -> float | None:
    """How sure a model was of its answer: a number from 0 to 1, or None for an empty answer.

    response: a chat completion as an OpenAI-compatible client gives it, an object of the openai package or its dict. A
    method that reads token probabilities (likelihood, sequence_probability, min_likelihood) needs a request with
    logprobs=True; one that compares samples (agreement, consistency, semantic_entropy, ...) needs n of at least 2. The first
    choice is the answer. Raises BadInput for a response without what the method reads.
    """
    if not isinstance(response, dict) and not hasattr(response, "model_dump"):
        raise BadInput(f"response is of type {type(response).__name__}; expected a chat completion, or its dict")
    try:
        texts = texts_of(response if isinstance(response, dict) else response.model_dump())
    except Trouble as trouble:
        raise BadInput(f"response: {trouble}") from None
    of_samples = given.names()[1:]
    if method in of_samples:
        if len(texts) < 2:
            raise BadInput(f"response: one choice, and {method} compares several; ask for n=5")
        return given.Samples(method).score([{"answers": [str(text) for text in texts]}])[0]["confidence"]
    of_tokens = sorted(name for name, one in methods.METHODS.items() if one.likelihoods and one.logprobs_suffice)
    if method not in of_tokens:
        raise BadInput(f"unknown method {method!r}; for a response there are {', '.join([*of_tokens, *of_samples])}")
    if texts[0].logprobs is None and texts[0]:
        raise BadInput("response: no log-probabilities of its tokens; ask with logprobs=True")
    example = {"question": "", "context": None, "choices": None, "reference": []}
    measure = methods.METHODS[method].measure
    assert measure is not None
    return measure({"logprobs": texts[0].logprobs or []}, example, tasks.get("qa"))
