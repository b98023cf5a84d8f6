"""Sampling with transformers: each prompt is computed once, and so is each distinct prefix of its
answers.

The n independent samples of a prompt start as one branch. At every step the samples of a branch
draw their next tokens together, and the branch forks where they differ. The work is one row for
each distinct prefix, and the samples stay independent and identically distributed.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from orce.errors import BadInput
from orce.llm import language_model
from orce.llm.chat import Messages
from orce.llm.engines import Text
from orce.llm.kv_cache import NOT_FINITE, CachedModel, KVCache, check_fits
from orce.runtime.process import USUAL

# Distributions drawn from at once: 64 in float64 take 66 MB for 128,256 words; a core is fastest
# with one in its cache.
AT_ONCE = {"cpu": 1, "cuda": 64}


@dataclass
class TokenSampler:
    """The random stream of a prompt's samples, `rng`; temperature 0 is greedy decoding."""

    seed: int
    temperature: float
    top_p: float

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)


def draw(
    logits: torch.Tensor, samplers: Sequence[TokenSampler], counts: Sequence[int]
) -> list[list[int]]:
    """For each row of logits [R, V] that many samples from softmax(logits / temperature), or from
    its nucleus. samplers: one a row, alike but for their streams. Rows of one stream take its
    numbers in their order.
    """
    if samplers[0].temperature == 0:
        best = logits.argmax(-1).tolist()
        return [[token] * count for token, count in zip(best, counts, strict=True)]
    size = AT_ONCE[logits.device.type]
    drawn: list[list[int]] = []
    for start in range(0, len(counts), size):
        rows = slice(start, start + size)
        drawn += _draw_at_once(logits[rows], samplers[rows], counts[rows])
    return drawn


def _draw_at_once(
    logits: torch.Tensor, samplers: Sequence[TokenSampler], counts: Sequence[int]
) -> list[list[int]]:
    """Inverse transform sampling: the first token whose cumulative probability exceeds a random
    share of the mass.
    """
    random = np.zeros((len(counts), max(1, *counts)))
    for row, sampler, count in zip(random, samplers, counts, strict=True):
        row[:count] = sampler.rng.random(count)
    shares = torch.from_numpy(random).to(logits.device)
    weights = torch.softmax(logits.double() / samplers[0].temperature, -1)
    top_p = samplers[0].top_p
    if top_p < 1:
        weights, order = weights.sort(descending=True, stable=True)
        cumulative = weights.cumsum(-1)
        # The nucleus has the fewest tokens that hold at least top_p.
        last = torch.searchsorted(cumulative, torch.full_like(cumulative[:, -1:], top_p))
        mass = cumulative.gather(1, last.clamp(max=cumulative.size(1) - 1))
        tokens = order.gather(1, torch.searchsorted(cumulative, shares * mass, right=True))
    else:
        cumulative = weights.cumsum(-1)
        mass = cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, shares * mass, right=True)
    return [row[:count] for row, count in zip(tokens.tolist(), counts, strict=True)]


def load(settings: Mapping[str, Any], longest: int | None = None) -> "Engine":
    lm = language_model.load(settings)
    return Engine(lm, settings.get("batch_tokens", USUAL["batch_tokens"]))


longest = check_fits  # not sized by its prompts, it refuses those that are too long


@dataclass
class Branch:
    """Samples of a prompt that agree so far: `count` random ones, and the greedy one if `greedy`."""

    row: int  # the prompt
    count: int
    greedy: bool
    tokens: list[int]  # generated so far
    columns: list[int]  # of the cache, of these tokens


class Engine(CachedModel):
    def generate(self, *asked, **options) -> list[list[str]]:
        return [texts for texts, _ in self.generate_with_greedy(*asked, **options)]

    def generate_with_greedy(
        self,
        prompts: Sequence[Messages],
        n: int,
        temperature: float,
        max_tokens: int,
        seeds: Sequence[int],
        top_p: float = 1.0,
        greedy: Collection[int] = frozenset(),
    ) -> list[tuple[list[str], str | None]]:
        """See orce.llm.engines. The greedy text shares the prompt, and whatever prefix it has in
        common with samples.
        """
        ids = self.ids(prompts, max_tokens)

        def sample(batch, cache: KVCache):
            samplers = [TokenSampler(seeds[i], temperature, top_p) for i in batch]
            rows = {row for row, i in enumerate(batch) if i in greedy}
            finished = sample_continuations(cache, samplers, n, max_tokens, self.lm.ends, rows)
            for sampler, branches in zip(samplers, finished, strict=True):
                tokens = [branch.tokens for branch in branches]
                decoded = self.lm.tokenizer.batch_decode(tokens, skip_special_tokens=True)
                texts: list[str] = []
                greedy_text = None
                for text, branch in zip(decoded, branches, strict=True):
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
    active = [Branch(row, n, row in greedy, [], []) for row in range(len(samplers))]
    cached = [*range(len(samplers))]  # the prompts that are still in the cache
    logits = cache.logits
    while True:
        # the largest of a row with nan is nan, whose draw would be a token that there is not
        if not logits.amax(-1).isfinite().all():
            raise BadInput(NOT_FINITE)
        streams = [samplers[branch.row] for branch in active]
        drawn = draw(logits, streams, [branch.count for branch in active])
        best = [-1] * len(active)
        if any(branch.greedy for branch in active):
            best = logits.argmax(-1).tolist()
        forked: list[Branch] = []
        for branch, tokens, likeliest in zip(active, drawn, best, strict=True):
            for fork in _forks(branch, tokens, likeliest):
                if fork.tokens[-1] in ends:
                    fork.tokens.pop()
                    finished[fork.row].append(fork)
                elif len(fork.tokens) == max_tokens:
                    finished[fork.row].append(fork)
                else:
                    forked.append(fork)
        active = forked
        if not active:
            return finished
        busy = sorted({branch.row for branch in active})
        # From half of them on it is worth the copy to drop the others from the cache.
        if len(busy) <= len(cached) // 2:
            cache.keep_rows([cached.index(row) for row in busy])
            cached = busy
        first = cache.appended
        new: dict[int, list] = {row: [] for row in cached}  # (token, columns) of its branches
        for branch in active:
            column = first + len(new[branch.row])
            new[branch.row].append((branch.tokens[-1], branch.columns))
            branch.columns = [*branch.columns, column]  # a new list: forks share theirs
        logits = cache.extend([*new.values()])


def _forks(branch: Branch, drawn: list[int], likeliest: int) -> Iterator[Branch]:
    """Fork a branch by the next tokens of its samples, and of its greedy text."""
    counts = Counter(drawn)
    if branch.greedy:
        counts[likeliest] += 0
    for token, count in sorted(counts.items()):
        greedy = branch.greedy and token == likeliest
        yield Branch(branch.row, count, greedy, [*branch.tokens, token], branch.columns)
