"""Reading a confidence LLM (section 3.2): the value that it states, and its distribution over the 101 that it could state.

Both come from one computation of the prompt. The stated value is greedy free text, parsed by orce.text.extract like any
other model output. The distribution has the probability of each whole statement, its tokens and the end of the turn,
however the tokenizer splits numbers: "0.9" is not 0 percent, nor "105" 10.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from msgspec import UNSET, UnsetType

from orce.errors import BadInput
from orce.llm.chat import ENOUGH_MASS, Messages, completion_ids, expected, little_mass, statement
from orce.llm.engines.transformers import TokenSampler, sample_continuations
from orce.llm.kv_cache import CachedModel, KVCache
from orce.llm.language_model import LanguageModel
from orce.llm.trie import TokenTrie, token_logprobs
from orce.runtime import process

# (index of the prompt, log P [101]) -> percents sampled for it
Sample = Callable[[int, np.ndarray], list[int]]
# "Confidence: 100" and its end take 4 to 8 tokens with the tokenizers of the paper's families
STATEMENT_TOKENS = 12
# of the 101 values' probability: less likely ones are not fed to the model to know whether the turn
# ends there
SHARE = 1e-3


@cache
def value_trie(tokenizer, ended: int | None = None) -> TokenTrie:
    """Trie of the 101 statements: path c states c percent. With `ended`, the last path is the whole turn that states it.

    Where a longer value continues a shorter one (70 after 7), the shorter one's path has the end of the turn as well. The
    other values are leaves: to know whether the turn ends there, the model has to be fed with them too.
    """
    values = [
        tokenizer(statement(percent), add_special_tokens=False)["input_ids"]
        for percent in range(101)
    ]
    plain = TokenTrie.of(values)
    ends = [[tokenizer.eos_token_id] * bool(plain.children(path[-1])) for path in plain.paths]
    whole = [] if ended is None else [completion_ids(tokenizer, statement(ended))]
    return TokenTrie.of([ids + end for ids, end in zip(values, ends, strict=True)] + whole)


def greedy_value(logprobs: list[float], trie: TokenTrie) -> int:
    """The percent that greedy decoding, constrained to the trie of valid statements, states; of each node's log P."""
    node = -1
    while children := trie.children(node):
        node = max(children, key=logprobs.__getitem__)
    return [path[-1] for path in trie.paths].index(node)


@dataclass
class Reading:
    """What a confidence LLM says of one prompt."""

    logprobs: np.ndarray  # float32 [101], log P(c | prompt) of the whole turn that states c percent
    greedy: int  # the percent of constrained greedy decoding
    text: str | None = None  # free greedy text, if asked for
    sampled: Sequence[int] = ()  # percents sampled from the distribution, if asked for
    # log P of the turns that state them; DPO calls it log pi(z | prompt)
    sampled_logprobs: Sequence[float] = ()

    @property
    def stated(self) -> float | None:
        """The confidence in the greedy text; None without a text, and where none can be read in it."""
        from orce.text import extract  # not where candidates are sampled

        return None if self.text is None else extract.confidence(self.text)

    @property
    def mean(self) -> float:
        """Expected confidence in [0, 1] under the distribution, renormalised over the 101 values."""
        return expected(self.logprobs)

    @property
    def mode(self) -> float:
        """The most probable of the 101 values, in [0, 1]; of several equally probable ones the lowest. Greedy decoding need
        not state it: a first digit is chosen for all the values that begin with it."""
        return int(self.logprobs.argmax()) / 100

    @property
    def mass(self) -> float:
        """Probability of stating one of the 101 values, and nothing else, at all."""
        return float(np.exp(self.logprobs.astype(float)).sum())


class Stated(NamedTuple):
    """What a confidence LLM states, the mean and mode of its distribution, and its mass: the probability of a valid value."""

    stated: float
    mean: float
    mass: float
    raw: str | list[str]
    retried: bool
    mode: float | UnsetType = UNSET

    def written(self) -> dict[str, Any]:
        return {key: value for key, value in self._asdict().items() if value is not UNSET}


class TransformersReader(CachedModel):
    def __init__(self, lm: LanguageModel, batch_tokens: int = process.USUAL["batch_tokens"]):
        super().__init__(lm, batch_tokens)
        self.trie = value_trie(lm.tokenizer)
        self._before = self.trie.before()
        self._end = lm.tokenizer.eos_token_id
        ended = [self.trie.tokens[path[-1]] == self._end for path in self.trie.paths]
        self._leaves = np.flatnonzero(np.logical_not(ended))
        self._ends = [
            self.trie.children(self.trie.paths[percent][-2]) for percent in np.flatnonzero(ended)
        ]

    def state(
        self, prompts: Sequence[Messages], constrained: bool = False, mode: bool = False
    ) -> list[Stated]:
        """Stated confidences.

        The model first states its confidence as free text. If no confidence can be read in it, greedy decoding constrained to
        the 101 valid statements replaces it; `raw` then holds both, and `retried` is true. With `constrained` there is no free
        text: every statement is decoded in this way, and counted so. With `mode` there is the mode of the distribution too.
        The log counts the prompts where free text and constrained decoding differ, and the prompts of little mass. Raises BadInput for
        probabilities that are not finite.
        """
        stated, differ = [], 0
        for reading in self.read(prompts, state_text=not constrained):
            if not math.isfinite(mean := reading.mean):
                remedy = "its weights are broken: train it again, with a lower learning_rate or dtype: float32"
                raise BadInput(
                    f"the confidence LLM's probabilities are not finite numbers; {remedy}"
                )
            raw, confidence = reading.text or "", reading.stated
            if retried := confidence is None:
                again = statement(reading.greedy)
                raw, confidence = again if constrained else [raw, again], reading.greedy / 100
            differ += confidence != reading.greedy / 100
            kept = reading.mode if mode else UNSET
            stated.append(Stated(confidence, mean, reading.mass, raw, retried, kept))
        process.tally(
            "have another value in free text than by constrained decoding", differ, len(prompts)
        )
        few = sum(little_mass(record.mass) for record in stated)
        named = f"have less than {ENOUGH_MASS:.0%} of their probability on 0 to 100 percent"
        process.tally(named, few, len(prompts))
        return stated

    def read(
        self, prompts: Sequence[Messages], state_text: bool = True, sample: Sample | None = None
    ) -> list[Reading]:
        """One Reading for each prompt; with `state_text` also the greedy text, with `sample` also what it samples."""
        return self.read_ids(self.ids(prompts, STATEMENT_TOKENS), state_text, sample)

    def read_ids(
        self, ids: list[list[int]], state_text: bool = True, sample: Sample | None = None
    ) -> list[Reading]:
        trie = self.trie

        def work(batch: list[int], cache: KVCache) -> list[Reading]:
            following = cache.extend([trie.branches()] * len(batch)).unflatten(0, (len(batch), -1))
            # [B, 1 + inner nodes, V]
            logits = torch.cat([cache.logits.unsqueeze(1), following], dim=1)
            row, token = (
                torch.tensor(each, device=logits.device).expand(len(batch), -1)
                for each in (trie.logit_rows, trie.tokens)
            )
            nodes = token_logprobs(logits, row, token)
            begun, constrained = self._values(nodes), self._constrained(nodes)
            greedy = [greedy_value(each, trie) for each in constrained.tolist()]
            sampled = [[] for _ in batch]
            if sample is not None:
                sampled = [
                    sample(i, each)
                    for i, each in zip(batch, self._values(constrained), strict=True)
                ]
            certain = (logits.argmax(-1).gather(1, row) == token).tolist()
            fed = [self._fed(*each) for each in zip(begun, greedy, sampled, strict=True)]
            readings = []
            for b, after in enumerate(self._logits_after(cache, fed)):
                turns, ends = begun[b].copy(), after[:, self._end] - after.logsumexp(-1)
                turns[fed[b]] += ends.double().cpu().numpy()
                usual = np.logaddexp.reduce(turns[fed[b]]) - np.logaddexp.reduce(begun[b][fed[b]])
                # unlikely: taken to end as the others do
                turns[np.setdiff1d(self._leaves, fed[b])] += usual
                freely = state_text and self._freely(greedy[b], certain[b], fed[b], after)
                text, drawn = statement(greedy[b]) if freely else None, turns[sampled[b]].tolist()
                readings.append(
                    Reading(turns.astype(np.float32), greedy[b], text, sampled[b], drawn)
                )
            if state_text:
                self._add_texts(cache, readings)
            return readings

        return self.computed(ids, len(trie.inner), work)

    def _constrained(self, nodes: torch.Tensor) -> torch.Tensor:
        """log P of the nodes [B, N], the end after a value being whatever is not the next digit of a longer one."""
        nodes = nodes.clone()
        for end, *longer in self._ends:
            nodes[:, end] = torch.log1p(-nodes[:, longer].exp().sum(1).clamp(max=1 - 1e-7))
        return nodes

    def _values(self, nodes: torch.Tensor) -> np.ndarray:
        """log P of the 101 paths, float64 [B, 101]."""
        return (
            torch.stack([nodes[:, path].sum(1) for path in self.trie.paths], dim=1)
            .double()
            .cpu()
            .numpy()
        )

    def _fed(self, begun: np.ndarray, greedy: int, sampled: list[int]) -> list[int]:
        """The leaves after which the turn's end is computed: the likely ones, and those that are stated or sampled."""
        likely = np.flatnonzero(begun - np.logaddexp.reduce(begun) > np.log(SHARE))
        # likely or not: the end after others is taken from some
        first = self._leaves[begun[self._leaves].argmax()]
        return np.intersect1d(self._leaves, [first, *likely, greedy, *sampled]).tolist()

    def _freely(
        self, percent: int, certain: list[bool], fed: list[int], after: torch.Tensor
    ) -> bool:
        """Whether free greedy decoding states `percent` too: each of its tokens is the likeliest, and so is the end."""
        ended = percent not in fed or int(after[fed.index(percent)].argmax()) in self.lm.ends
        return ended and all(certain[node] for node in self.trie.paths[percent])

    def _add_texts(self, cache: KVCache, readings: list[Reading]) -> None:
        cache.drop_appended()
        rest = [i for i, reading in enumerate(readings) if reading.text is None]
        if not rest:
            return
        cache.keep_rows(rest)
        samplers = [TokenSampler(0, 0, 1.0) for _ in rest]
        branches = sample_continuations(cache, samplers, 1, STATEMENT_TOKENS, self.lm.ends)
        texts = self.lm.tokenizer.batch_decode(
            [branch.tokens for (branch,) in branches], skip_special_tokens=True
        )
        for i, text in zip(rest, texts, strict=True):
            readings[i].text = text

    def _logits_after(self, cache: KVCache, percents: list[list[int]]) -> tuple[torch.Tensor, ...]:
        """Logits of what follows some leaves of each prompt, where the trie's inner nodes are cached: B x [values, V]."""
        nodes = [[self.trie.paths[percent][-1] for percent in mine] for mine in percents]
        logits = cache.extend(
            [[(self.trie.tokens[node], self._before[node]) for node in mine] for mine in nodes]
        )
        return logits.split([len(mine) for mine in nodes])
