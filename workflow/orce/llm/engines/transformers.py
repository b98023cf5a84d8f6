"""Sampling with transformers: each prompt is computed once, and so is each distinct prefix of its answers.

The n independent samples of a prompt start as one branch. At every step the samples of a branch draw their next tokens
together, and the branch forks where they differ. The work is one row for each distinct prefix, and the samples stay
independent and identically distributed.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from orce.llm import language_model
from orce.llm.chat import Messages
from orce.llm.engines import Text
from orce.llm.kv_cache import CachedModel, KVCache, fits
from orce.runtime.process import USUAL

# Distributions drawn from at once: 64 in float64 take 66 MB for 128,256 words; a core is fastest with one in its cache.
AT_ONCE = {"cpu": 1, "cuda": 64}


class TokenSampler:
    def __init__(self, seed: int, temperature: float, top_p: float):
        self.rng, self.temperature, self.top_p = np.random.default_rng(seed), temperature, top_p


def draw(
    logits: torch.Tensor, samplers: Sequence[TokenSampler], counts: Sequence[int]
) -> list[list[int]]:
    """For each row of logits [R, V] that many samples from softmax(logits / temperature), or from its nucleus. samplers: one
    a row, alike but for their streams. Rows of one stream take its numbers in their order."""
    if not samplers[0].temperature:
        return [
            [best] * count for best, count in zip(logits.argmax(-1).tolist(), counts, strict=True)
        ]
    if len(counts) > (rows := AT_ONCE[logits.device.type]):
        slices = [slice(start, start + rows) for start in range(0, len(counts), rows)]
        return [
            tokens for some in slices for tokens in draw(logits[some], samplers[some], counts[some])
        ]
    random = np.zeros((len(counts), max(1, *counts)))
    for row, sampler, count in zip(random, samplers, counts, strict=True):
        row[:count] = sampler.rng.random(count)
    shares, top_p = torch.from_numpy(random).to(logits.device), samplers[0].top_p
    weights, order = torch.softmax(logits.double() / samplers[0].temperature, -1), None
    if top_p < 1:
        weights, order = weights.sort(descending=True, stable=True)
    cumulative = weights.cumsum(-1)
    mass = cumulative[:, -1:]
    if order is not None:  # the mass of the nucleus, the fewest tokens that hold at least top_p
        last = torch.searchsorted(cumulative, torch.full_like(mass, top_p))
        mass = cumulative.gather(1, last.clamp(max=cumulative.size(1) - 1))
    tokens = torch.searchsorted(cumulative, shares * mass, right=True)
    tokens = tokens if order is None else order.gather(1, tokens)
    return [row[:count] for row, count in zip(tokens.tolist(), counts, strict=True)]


def load(settings: Mapping[str, Any], longest: int | None = None) -> "Engine":
    return Engine(
        language_model.load(settings), settings.get("batch_tokens", USUAL["batch_tokens"])
    )


longest = fits  # not sized by its prompts, it refuses those that exceed a sliding window


@dataclass
class Branch:
    """Samples of one prompt that agree so far: `count` random ones, and the greedy one if `greedy`."""

    count: int
    greedy: bool = False
    tokens: list[int] = field(default_factory=list)  # generated so far
    columns: list[int] = field(default_factory=list)  # of the cache, of these tokens


class Engine(CachedModel):
    def generate(
        self,
        prompts: Sequence[Messages],
        n: int,
        temperature: float,
        max_tokens: int,
        seeds: Sequence[int],
        top_p=1.0,
    ) -> list[list[str]]:
        return [
            texts
            for texts, _ in self.generate_with_greedy(
                prompts, n, temperature, max_tokens, seeds, top_p
            )
        ]

    def generate_with_greedy(
        self,
        prompts,
        n,
        temperature,
        max_tokens,
        seeds,
        top_p=1.0,
        greedy: Collection[int] = frozenset(),
    ) -> list[tuple[list[str], str | None]]:
        """See orce.llm.engines. The greedy text shares the prompt, and whatever prefix it has in common with samples."""
        ids = self.ids(prompts, max_tokens)

        def work(batch: list[int], cache: KVCache) -> Iterator[tuple[list[str], str | None]]:
            samplers = [TokenSampler(seeds[i], temperature, top_p) for i in batch]
            rows = {row for row, i in enumerate(batch) if i in greedy}
            finished = sample_continuations(cache, samplers, n, max_tokens, self.lm.ends, rows)
            for sampler, branches in zip(samplers, finished, strict=True):
                written = self.lm.tokenizer.batch_decode(
                    [b.tokens for b in branches], skip_special_tokens=True
                )
                texts = [
                    Text(text, len(b.tokens) == max_tokens)
                    for text, b in zip(written, branches, strict=True)
                ]
                flat = [
                    text
                    for text, branch in zip(texts, branches, strict=True)
                    for _ in range(branch.count)
                ]
                best = next(
                    (text for text, branch in zip(texts, branches, strict=True) if branch.greedy),
                    None,
                )
                # Branches finish in an order that depends on what was sampled.
                yield [flat[i] for i in sampler.rng.permutation(len(flat))], best

        return self.computed(ids, max_tokens, work)


def sample_continuations(
    cache: KVCache,
    samplers: list[TokenSampler],
    n: int,
    max_tokens: int,
    ends: set[int],
    greedy: Collection[int] = (),
) -> list[list[Branch]]:
    """Sample `n` continuations of every prompt in `cache`: for each prompt its finished branches.

    samplers: one a prompt. ends: ids that end a continuation, which they are not part of. greedy: the prompts (rows)
    that get a greedy continuation as well.
    """
    finished: list[list[Branch]] = [[] for _ in samplers]
    rows = list(range(len(samplers)))
    active, logits = [[Branch(n, row in greedy)] for row in rows], cache.logits
    while True:
        branches = [branch for mine in active for branch in mine]
        streams = [samplers[row] for row, mine in zip(rows, active, strict=True) for _ in mine]
        drawn = draw(logits, streams, [branch.count for branch in branches])
        wanted = any(branch.greedy for branch in branches)
        following = zip(
            drawn, logits.argmax(-1).tolist() if wanted else [-1] * len(drawn), strict=True
        )
        active = [
            [
                new
                for branch in mine
                for new in _fork(branch, *next(following), finished[row], ends, max_tokens)
            ]
            for row, mine in zip(rows, active, strict=True)
        ]
        if not any(active):
            return finished
        busy = [i for i, mine in enumerate(active) if mine]
        # from there on it is worth the copy to drop the others from the cache
        if len(busy) <= len(rows) // 2:
            cache.keep_rows(busy)
            rows, active = [rows[i] for i in busy], [active[i] for i in busy]
        first = cache.appended
        logits = cache.extend(
            [[(branch.tokens[-1], branch.columns) for branch in mine] for mine in active]
        )
        for mine in active:
            for i, branch in enumerate(mine):
                branch.columns = branch.columns + [first + i]


def _fork(
    branch: Branch, drawn: list[int], best: int, finished: list[Branch], ends, max_tokens
) -> list[Branch]:
    """Fork a branch by the next tokens of its samples, and of its greedy text; what ends is moved to `finished`."""
    active, sampled = [], Counter(drawn)
    for token in sorted({*sampled, best} if branch.greedy else sampled):
        count, greedy = sampled[token], branch.greedy and token == best
        if token in ends:
            finished.append(Branch(count, greedy, branch.tokens))
        elif len(branch.tokens) + 1 == max_tokens:
            finished.append(Branch(count, greedy, branch.tokens + [token]))
        else:
            active.append(Branch(count, greedy, branch.tokens + [token], branch.columns))
    return active
