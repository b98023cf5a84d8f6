"""Sampling with transformers: each prompt is computed once, and so is each distinct prefix of its
answers.

The n independent samples of a prompt start as one branch. At every step the samples of a branch
draw their next tokens together, and the branch forks where they differ. The work is one row for
each distinct prefix, and the samples stay independent and identically distributed.
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
from orce.llm.kv_cache import CachedModel, KVCache, check_fits
from orce.runtime.process import USUAL

# Distributions drawn from at once: 64 in float64 take 66 MB for 128,256 words; a core is fastest
# with one in its cache.
AT_ONCE = {"cpu": 1, "cuda": 64}


class TokenSampler:
    """The random stream of a prompt's samples; temperature 0 is greedy decoding."""

    def __init__(self, seed: int, temperature: float, top_p: float):
        self.rng = np.random.default_rng(seed)
        self.temperature = temperature
        self.top_p = top_p


def draw(
    logits: torch.Tensor, samplers: Sequence[TokenSampler], counts: Sequence[int]
) -> list[list[int]]:
    """For each row of logits [R, V] that many samples from softmax(logits / temperature), or from
    its nucleus. samplers: one a row, alike but for their streams. Rows of one stream take its
    numbers in their order.
    """
    temperature = samplers[0].temperature
    top_p = samplers[0].top_p
    if not temperature:
        best = logits.argmax(-1).tolist()
        return [[token] * count for token, count in zip(best, counts, strict=True)]
    rows = AT_ONCE[logits.device.type]
    if len(counts) > rows:
        tokens = []
        for start in range(0, len(counts), rows):
            some = slice(start, start + rows)
            tokens += draw(logits[some], samplers[some], counts[some])
        return tokens
    random = np.zeros((len(counts), max(1, *counts)))
    for row, sampler, count in zip(random, samplers, counts, strict=True):
        row[:count] = sampler.rng.random(count)
    shares = torch.from_numpy(random).to(logits.device)
    # Inverse transform sampling: the first token whose cumulative probability exceeds a random
    # share of the mass.
    weights = torch.softmax(logits.double() / temperature, -1)
    if top_p < 1:
        weights, order = weights.sort(descending=True, stable=True)
        cumulative = weights.cumsum(-1)
        # The nucleus has the fewest tokens that hold at least top_p.
        last = torch.searchsorted(cumulative, torch.full_like(cumulative[:, -1:], top_p))
        mass = cumulative.gather(1, last.clamp(max=cumulative.size(1) - 1))
        tokens = order.gather(1, torch.searchsorted(cumulative, shares * mass, right=True))
    else:
        cumulative = weights.cumsum(-1)
        tokens = torch.searchsorted(cumulative, shares * cumulative[:, -1:], right=True)
    return [row[:count] for row, count in zip(tokens.tolist(), counts, strict=True)]


def load(settings: Mapping[str, Any], longest: int | None = None) -> "Engine":
    batch_tokens = settings.get("batch_tokens", USUAL["batch_tokens"])
    return Engine(language_model.load(settings), batch_tokens)


longest = check_fits  # not sized by its prompts, it refuses those that exceed a sliding window


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
        both = self.generate_with_greedy(prompts, n, temperature, max_tokens, seeds, top_p)
        return [texts for texts, _ in both]

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
        """See orce.llm.engines. The greedy text shares the prompt, and whatever prefix it has in
        common with samples.
        """
        ids = self.ids(prompts, max_tokens)

        def sample(batch: list[int], cache: KVCache) -> Iterator[tuple[list[str], str | None]]:
            samplers = [TokenSampler(seeds[i], temperature, top_p) for i in batch]
            rows = {row for row, i in enumerate(batch) if i in greedy}
            finished = sample_continuations(cache, samplers, n, max_tokens, self.lm.ends, rows)
            for sampler, branches in zip(samplers, finished, strict=True):
                tokens = [branch.tokens for branch in branches]
                written = self.lm.tokenizer.batch_decode(tokens, skip_special_tokens=True)
                texts: list[str] = []
                greedy_text = None
                for text, branch in zip(written, branches, strict=True):
                    text = Text(text, cut=len(branch.tokens) == max_tokens)
                    texts += [text] * branch.count
                    if branch.greedy:
                        greedy_text = text
                # Branches finish in an order that depends on what was sampled.
                yield [texts[i] for i in sampler.rng.permutation(len(texts))], greedy_text

        return self.compute(ids, max_tokens, sample)


def sample_continuations(
    cache: KVCache,
    samplers: list[TokenSampler],
    n: int,
    max_tokens: int,
    ends: set[int],
    greedy: Collection[int] = (),
) -> list[list[Branch]]:
    """Sample `n` continuations of every prompt in `cache`: for each prompt its finished branches.

    samplers: one a prompt. ends: ids that end a continuation, which they are not part of. greedy:
    the prompts (rows) that get a greedy continuation as well.
    """
    finished: list[list[Branch]] = [[] for _ in samplers]
    rows = list(range(len(samplers)))  # of `samplers`, still in the cache
    active = [[Branch(n, row in greedy)] for row in rows]  # of each of these rows
    logits = cache.logits
    while True:
        branches: list[Branch] = []
        streams: list[TokenSampler] = []
        for row, own in zip(rows, active, strict=True):
            branches += own
            streams += [samplers[row]] * len(own)
        drawn = draw(logits, streams, [branch.count for branch in branches])
        best = [-1] * len(branches)
        if any(branch.greedy for branch in branches):
            best = logits.argmax(-1).tolist()
        following = zip(drawn, best, strict=True)
        for i, row in enumerate(rows):
            forked = []
            for branch in active[i]:
                forked += _fork(branch, *next(following), finished[row], ends, max_tokens)
            active[i] = forked
        if not any(active):
            return finished
        busy = [i for i, own in enumerate(active) if own]
        # From half of them on it is worth the copy to drop the others from the cache.
        if len(busy) <= len(rows) // 2:
            cache.keep_rows(busy)
            rows = [rows[i] for i in busy]
            active = [active[i] for i in busy]
        first = cache.appended
        new = [[(branch.tokens[-1], branch.columns) for branch in own] for own in active]
        logits = cache.extend(new)
        for own in active:
            for i, branch in enumerate(own):
                branch.columns = branch.columns + [first + i]  # a new list: branches share theirs


def _fork(
    branch: Branch, drawn: list[int], best: int, finished: list[Branch], ends, max_tokens
) -> list[Branch]:
    """Fork a branch by the next tokens of its samples, and of its greedy text; what ends is moved
    to `finished`.
    """
    active = []
    sampled = Counter(drawn)
    for token in sorted({*sampled, best} if branch.greedy else sampled):
        count = sampled[token]
        greedy = branch.greedy and token == best
        tokens = branch.tokens + [token]
        if token in ends:
            finished.append(Branch(count, greedy, branch.tokens))
        elif len(tokens) == max_tokens:
            finished.append(Branch(count, greedy, tokens))
        else:
            active.append(Branch(count, greedy, tokens, branch.columns))
    return active
