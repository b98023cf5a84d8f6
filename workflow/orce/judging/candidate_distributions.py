"""M candidate confidences for every RL pair, sampled from the confidence LLM's distribution over the 101 values.

All rewards share them. Each record keeps the whole distribution beside its candidates.
"""

import numpy as np

from orce.llm.chat import statement
from orce.records import Candidate, Realised
from orce.runtime.seeds import seed_of
from orce.stage_settings import Candidates


def records(chunk: list[Realised], reader, weights: str, options: Candidates) -> list[Candidate]:
    """A record for each realised pair, its candidates sampled from the distribution of the confidence LLM `weights`."""

    def sampled(i: int, logprobs: np.ndarray) -> list[int]:
        rng = np.random.default_rng(seed_of(options.seed, "candidates", chunk[i].id))
        return sample(logprobs, options.candidates, options.temperature, rng)

    prompts = [pair.prompt for pair in chunk]
    readings = reader.read(prompts, state_text=False, sample=sampled, adapter=weights)
    return [record(pair, reading) for pair, reading in zip(chunk, readings, strict=True)]


def record(pair: Realised, reading) -> Candidate:
    return Candidate(
        id=pair.id,
        kappa=pair.kappa,
        correct=pair.correct,
        confidences=[percent / 100 for percent in reading.sampled],
        completion_logprobs=[float(f"{value:.7g}") for value in reading.sampled_logprobs],
        raw=[statement(percent) for percent in reading.sampled],
        stated=reading.greedy / 100,
        logprobs=[round(float(value), 4) for value in reading.logprobs],
    )


def sample(logprobs: np.ndarray, n: int, temperature: float, rng) -> list[int]:
    """n percents sampled from P(c)^(1/temperature), renormalised over the 101 values."""
    scaled = logprobs.astype(float) / temperature
    weights = np.exp(scaled - scaled.max())
    return rng.choice(101, size=n, p=weights / weights.sum()).tolist()
