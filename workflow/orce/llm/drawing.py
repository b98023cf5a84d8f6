"""Next tokens, drawn where the logits are: only the drawn ones are copied to the host."""

from collections.abc import Sequence

import numpy as np
import torch

# Distributions drawn from at once: 64 in float64 take 66 MB for 128,256 words; a core is fastest with one in its cache.
AT_ONCE = {"cpu": 1, "cuda": 64}


class TokenSampler:
    """One prompt's random stream, and how its tokens are drawn."""

    def __init__(self, seed: int, temperature: float, top_p: float):
        self.rng, self.temperature, self.top_p = np.random.default_rng(seed), temperature, top_p


def draw(logits: torch.Tensor, samplers: Sequence[TokenSampler], counts: Sequence[int]) -> list[list[int]]:
    """For each row of logits [R, V] that many samples from softmax(logits / temperature), or from its nucleus.

    samplers: one a row, alike but for their streams. Rows of one stream take its numbers in their order.
    """
    if not samplers[0].temperature:
        return [[best] * count for best, count in zip(logits.argmax(-1).tolist(), counts, strict=True)]
    found, rows = [], AT_ONCE[logits.device.type]
    for start in range(0, len(counts), rows):
        part = slice(start, start + rows)
        found += _draw(logits[part], samplers[part], counts[part])
    return found


def _draw(logits, samplers, counts) -> list[list[int]]:
    random = np.zeros((len(counts), max(1, *counts)))
    for row, sampler, count in zip(random, samplers, counts, strict=True):
        row[:count] = sampler.rng.random(count)
    places, top_p = torch.from_numpy(random).to(logits.device), samplers[0].top_p
    weights = torch.softmax(logits.double() / samplers[0].temperature, -1)
    order = None
    if top_p < 1:
        weights, order = weights.sort(descending=True, stable=True)
    cumulative = weights.cumsum(-1)
    mass = cumulative[:, -1:] if order is None else nucleus(cumulative, top_p)
    tokens = torch.searchsorted(cumulative, places * mass, right=True)
    tokens = tokens if order is None else order.gather(1, tokens)
    return [row[:count] for row, count in zip(tokens.tolist(), counts, strict=True)]


def nucleus(cumulative: torch.Tensor, top_p: float) -> torch.Tensor:
    """The mass [R, 1] of the fewest tokens that hold at least `top_p` of it; cumulative: [R, V], the most probable first."""
    last = torch.searchsorted(cumulative, torch.full_like(cumulative[:, :1], top_p))
    return cumulative.gather(1, last.clamp(max=cumulative.size(1) - 1))
