"""M candidate confidences for every RL pair, drawn from the confidence LLM's distribution over the 101 values.

Drawn once, whatever the reward. The whole distribution stands beside them.
"""

import numpy as np

from orce import tasks
from orce.answers import realised
from orce.llm.chat import statement
from orce.runtime.seeds import seed_of


def items(request: dict) -> list[dict]:
    return realised.load(tasks.get(request["task"]), request["surrogate"], request["prompts"])


def weights(request: dict) -> str:
    return request["weights"]


def prompts(chunk: list[dict], request: dict) -> list:
    """The messages that the confidence LLM reads."""
    return [pair["prompt"] for pair in chunk]


def serve(chunk: list[dict], reader, request: dict) -> list[dict]:
    """A record for each pair, its candidates drawn from the reader's distribution."""

    def drawn(i, logprobs):
        rng = np.random.default_rng(seed_of(request["seed"], "candidates", chunk[i]["id"]))
        return draw(logprobs, request["candidates"], request["temperature"], rng)

    messages = prompts(chunk, request)
    readings = reader.read(messages, state_text=False, draw=drawn, adapter=request["weights"])
    return [record(pair, reading) for pair, reading in zip(chunk, readings, strict=True)]


def record(pair: dict, reading) -> dict:
    """Record {id, kappa, correct, confidences, completion_logprobs, raw, stated, logprobs}.

    completion_logprobs: of each candidate's whole turn, end token included, to float32's seven digits: DPO's reference
    where this model is it. logprobs: of the values 0, 1, .., 100 percent, whatever follows the number.
    """
    return {
        "id": pair["id"],
        "kappa": pair["kappa"],
        "correct": pair["correct"],
        "confidences": [percent / 100 for percent in reading.drawn],
        "completion_logprobs": [float(f"{value:.7g}") for value in reading.drawn_logprobs],
        "raw": [statement(percent) for percent in reading.drawn],
        "stated": reading.greedy / 100,
        "logprobs": [round(float(value), 4) for value in reading.logprobs],
    }


def draw(logprobs: np.ndarray, n: int, temperature: float, rng) -> list[int]:
    """n percents drawn from P(c)^(1/temperature), renormalised over the 101 values."""
    scaled = logprobs.astype(float) / temperature
    weights = np.exp(scaled - scaled.max())
    return rng.choice(101, size=n, p=weights / weights.sum()).tolist()
