"""Sampling with transformers: each prompt is computed once, and so is each distinct prefix of its answers.

The n independent samples of a prompt start as one branch. At every step the samples of a branch draw their next tokens
together, and the branch forks where they differ. The work is one row for each distinct prefix, and the samples stay
independent and identically distributed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from orce.llm import batches, language_model
from orce.llm.attention import check_window, sliding_window
from orce.llm.chat import Messages, prompts_ids
from orce.llm.engines import Text
from orce.llm.kv_cache import REMEDY, KVCache
from orce.runtime.process import USUAL
from orce.stage_settings import Model, typed

# Next tokens are drawn where the logits are: only the drawn ones are copied to the host.
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


def load(settings: Mapping[str, Any], longest: int | None = None) -> "Engine":
    """See orce.llm.engines; `longest` is not needed."""
    return Engine(language_model.load(settings), settings.get("batch_tokens", USUAL["batch_tokens"]))


def longest(settings: Mapping[str, Any], prompts: Iterable[Messages], max_tokens: int) -> None:
    """This engine is not sized by its prompts. Raises BadInput if the model has a sliding window that they exceed."""
    model = typed(Model, settings)
    config = language_model.config_at(*language_model.origin(model.source))
    if sliding_window(config) is None:
        return
    template_kwargs = model.template_kwargs or None
    tokenizer, _ = language_model.vocabulary(model.source, template_kwargs)
    lengths = [len(ids) for ids in prompts_ids(tokenizer, prompts, template_kwargs, keep=True)]
    check_window(config, max(lengths, default=0) + max_tokens, REMEDY)


@dataclass
class Branch:
    """Samples of one prompt that agree so far: `count` random ones, and the greedy one if `greedy`.

    tokens: what they have said. columns: the cache columns of these tokens.
    """

    count: int
    greedy: bool = False
    tokens: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)


class Engine:
    """See orce.llm.engines.Engine."""

    def __init__(self, lm: language_model.LanguageModel, batch_tokens: int = USUAL["batch_tokens"]):
        self.lm: Any = lm  # None once closed
        self.batch_tokens = batch_tokens

    def generate(
        self, prompts: Sequence[Messages], n: int, temperature: float, max_tokens: int, seeds: Sequence[int], top_p=1.0
    ) -> list[list[str]]:
        """See orce.llm.engines. With temperature 0 all n samples of a prompt are the same text."""
        both = self.generate_with_greedy(prompts, n, temperature, max_tokens, seeds, top_p)
        return [texts for texts, _ in both]

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
        """See orce.llm.engines. The greedy text shares the prompt, and whatever prefix it has in common with samples."""
        ids = prompts_ids(self.lm.tokenizer, prompts, self.lm.template_kwargs)
        check_window(self.lm.model.config, max(map(len, ids), default=0) + max_tokens, REMEDY)
        found: list = [None] * len(ids)
        for batch in batches.padded(ids, self.batch_tokens, max_tokens):
            cache = KVCache(self.lm.model, [ids[i] for i in batch])
            samplers = [TokenSampler(seeds[i], temperature, top_p) for i in batch]
            rows = {row for row, i in enumerate(batch) if i in greedy}
            finished = sample_continuations(cache, samplers, n, max_tokens, self.lm.ends, rows)
            for i, sampler, branches in zip(batch, samplers, finished, strict=True):
                found[i] = self._decode(branches, sampler, max_tokens)
        return found

    def close(self) -> None:
        """Release the model."""
        self.lm = None

    def _decode(self, branches: list[Branch], sampler: TokenSampler, max_tokens: int) -> tuple[list[str], str | None]:
        """One text a sample, in random order, and the greedy text if there is one.

        Branches finish in an order that depends on what was sampled, hence the permutation.
        """
        written = self.lm.tokenizer.batch_decode([b.tokens for b in branches], skip_special_tokens=True)
        texts = [Text(text, len(b.tokens) == max_tokens) for text, b in zip(written, branches, strict=True)]
        flat = [text for text, branch in zip(texts, branches, strict=True) for _ in range(branch.count)]
        greedy = next((text for text, branch in zip(texts, branches, strict=True) if branch.greedy), None)
        return [flat[i] for i in sampler.rng.permutation(len(flat))], greedy


def sample_continuations(
    cache: KVCache,
    samplers: list[TokenSampler],
    n: int,
    max_tokens: int,
    ends: set[int],
    greedy: Collection[int] = frozenset(),
) -> list[list[Branch]]:
    """Sample `n` continuations of every prompt in `cache`: for each prompt its finished branches.

    samplers: one a prompt. ends: ids that end a continuation, which they are not part of. greedy: the prompts (rows)
    that get a greedy continuation as well.
    """
    finished: list[list[Branch]] = [[] for _ in samplers]
    rows = list(range(len(samplers)))
    active = [[Branch(n, row in greedy)] for row in rows]
    logits = cache.logits
    while True:
        following = _following(
            logits, [(samplers[r], one) for r, mine in zip(rows, active, strict=True) for one in mine]
        )
        active = [
            _fork(branches, following, finished[row], ends, max_tokens)
            for row, branches in zip(rows, active, strict=True)
        ]
        if not any(active):
            return finished
        busy = [i for i, branches in enumerate(active) if branches]
        if len(busy) <= len(rows) // 2:  # from there on it is worth the copy to drop the others from the cache
            cache.keep_rows(busy)
            rows, active = [rows[i] for i in busy], [active[i] for i in busy]
        first = cache.appended
        logits = cache.extend_branches([[(b.tokens[-1], len(b.tokens), b.columns) for b in mine] for mine in active])
        for mine in active:
            for i, branch in enumerate(mine):
                branch.columns = branch.columns + [first + i]


def _following(
    logits: torch.Tensor, branches: list[tuple[TokenSampler, Branch]]
) -> Iterator[tuple[list[int], int | None]]:
    """For each branch (logits [R, V]) the next token of each of its samples and of its greedy text."""
    samplers, counts = [sampler for sampler, _ in branches], [branch.count for _, branch in branches]
    drawn = draw(logits, samplers, counts)
    greedy = [branch.greedy for _, branch in branches]
    best = logits.argmax(-1).tolist() if any(greedy) else [None] * len(greedy)
    for tokens, one, wanted in zip(drawn, best, greedy, strict=True):
        yield tokens, one if wanted else None


def _fork(branches, following, finished, ends, max_tokens) -> list[Branch]:
    """Fork each branch by the next tokens of its samples; branches that end are moved to `finished`."""
    active = []
    for branch in branches:
        drawn, best = next(following)
        sampled = Counter(drawn)
        for token in sorted({*sampled, *([] if best is None else [best])}):
            count, greedy = sampled[token], token == best
            if token in ends:
                finished.append(Branch(count, greedy, branch.tokens))
            elif len(branch.tokens) + 1 == max_tokens:
                finished.append(Branch(count, greedy, branch.tokens + [token]))
            else:
                active.append(Branch(count, greedy, branch.tokens + [token], branch.columns))
    return active
