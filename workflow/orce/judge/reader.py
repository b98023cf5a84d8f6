"""Reading a confidence LLM (section 3.2): the value that it states, and its distribution over the
101 that it could state.

Both come from one computation of the prompt. The stated value is greedy free text, parsed by
orce.text.extract like any other model output. The distribution has the probability of each whole
statement, its tokens and the end of the turn, however the tokenizer splits numbers: "0.9" is not 0
percent, nor "105" 10.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from orce.errors import BadInput
from orce.llm import plain
from orce.llm.chat import (
    ENOUGH_MASS,
    STATEMENT_TOKENS,
    Messages,
    completion_ids,
    expected,
    little_mass,
    statement,
)
from orce.llm.engines.transformers import TokenSampler, sample_continuations
from orce.llm.kv_cache import NOT_FINITE, CachedModel, KVCache
from orce.llm.language_model import LanguageModel
from orce.llm.trie import Ids, TokenTrie, has_own_attention, token_logprobs
from orce.runtime import process

# (index of the prompt, log P [101]) -> percents sampled for it
Sample = Callable[[int, np.ndarray], list[int]]
# Whether the turn ends after a value that no longer one continues, a leaf, takes a token more to
# know. The likeliest leaves are fed, FIRST of them and then as many as so far, until the others
# cannot move the mean by more than MEAN_WITHIN, nor be the mode. Where the 101 values have too
# little of the probability for a mean to say much, MOST_OF_LITTLE are enough.
FIRST = 8
MEAN_WITHIN = 0.005
MOST_OF_LITTLE = 16
PERCENTS = np.arange(101) / 100


@cache
def value_trie(tokenizer, ended: int | None = None) -> TokenTrie:
    """Trie of the 101 statements: path c states c percent. With `ended`, the last path is the whole
    turn that states it.

    Where a longer value continues a shorter one (70 after 7), the shorter one's path has the end of
    the turn as well. The other values are leaves: to know whether the turn ends there, the model
    has to be fed with them too.
    """
    statements = [statement(percent) for percent in range(101)]
    values = tokenizer(statements, add_special_tokens=False)["input_ids"]
    without_ends = TokenTrie.of(values)
    for ids, path in zip(values, without_ends.paths, strict=True):
        if without_ends.children(path[-1]):
            ids.append(tokenizer.eos_token_id)
    if ended is not None:
        values.append(completion_ids(tokenizer, statement(ended)))
    return TokenTrie.of(values)


def greedy_value(logprobs: list[float], trie: TokenTrie) -> int:
    """The percent of greedy decoding that is constrained to a trie of valid statements; logprobs:
    of each node's token.
    """
    node = -1  # the end of the prompt
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
        """The most probable of the 101 values, in [0, 1]; of several equally probable ones the
        lowest. Greedy decoding need not state it: a first digit is chosen for all the values that
        begin with it.
        """
        return int(self.logprobs.argmax()) / 100

    @property
    def mass(self) -> float:
        """Probability of stating one of the 101 values, and nothing else, at all."""
        return float(np.exp(self.logprobs.astype(float)).sum())


class Ends:
    """How often the turn of one prompt ends after each value, as far as the model was fed with it.

    begun: log P of each value's tokens, float64 [101]. A value that is no leaf has its end among
    them. Leaves that were not fed are taken to end as often as those that were do together; it is
    assumed that none ends more often, or more seldom, than every one of these.
    """

    def __init__(self, begun: np.ndarray, is_leaf: np.ndarray):
        self.begun = begun
        self.is_leaf = is_leaf
        self.known = ~is_leaf
        self.ends = np.zeros(101)  # log P of the end, of known leaves
        self.closed: set[int] = set()  # leaves after which an end is the likeliest token

    @property
    def fed(self) -> np.ndarray:
        """Which values are leaves whose end is known, bool [101]."""
        return self.is_leaf & self.known

    def add(self, leaves: list[int], ends: np.ndarray) -> None:
        self.known[leaves] = True
        self.ends[leaves] = ends

    def turns(self) -> np.ndarray:
        """log P of the whole turns that state the 101 values."""
        turns = self.begun + self.ends
        usual = np.logaddexp.reduce(turns[self.fed]) - np.logaddexp.reduce(self.begun[self.fed])
        return np.where(self.known, turns, self.begun + usual)

    def to_feed(self) -> list[int]:
        """The likeliest leaves that are still to be fed, FIRST of them and then as many as so far;
        none once the others change little.
        """
        fed = int(self.fed.sum())
        rest = np.flatnonzero(~self.known)
        if fed and (not rest.size or self.are_enough()):
            return []
        likeliest = rest[np.argsort(-self.begun[rest], kind="stable")]
        return likeliest[: max(FIRST, fed)].tolist()

    def are_enough(self) -> bool:
        """Whether the leaves that were not fed move the mean by at most MEAN_WITHIN and hold no
        mode, be it that they end as often as that of the fed ones which does most, or least.
        """
        turns = self.turns()
        share = np.exp(turns)
        if little_mass(float(share.sum())) and self.fed.sum() >= MOST_OF_LITTLE:
            return True
        rest = ~self.known
        ends = self.ends[self.fed]
        usual = (turns - self.begun)[rest][0]
        most = share[rest] * np.exp(ends.max() - usual)
        least = share[rest] * np.exp(ends.min() - usual)
        away = PERCENTS[rest] - share @ PERCENTS / share.sum()
        # The mean is highest if the values above it end most often and those below it least.
        rise = (np.where(away > 0, most, least) - share[rest]) @ away
        fall = (share[rest] - np.where(away > 0, least, most)) @ away
        moved = max(rise, fall) / (share[self.known].sum() + least.sum())
        return moved <= MEAN_WITHIN and most.max() < share[self.known].max()


class Statement(NamedTuple):
    """What a confidence LLM states, the mean and mode of its distribution, and its mass: the
    probability of a valid value.
    """

    stated: float
    mean: float
    mass: float
    raw: str | list[str]
    retried: bool
    mode: float | None = None  # if asked for

    def to_json(self) -> dict[str, Any]:
        record = self._asdict()
        if self.mode is None:
            del record["mode"]
        return record


class TransformersReader(CachedModel):
    def __init__(self, lm: LanguageModel, batch_tokens: int = process.USUAL["batch_tokens"]):
        super().__init__(lm, batch_tokens)
        self.trie = value_trie(lm.tokenizer)
        self._end = lm.tokenizer.eos_token_id
        # Values that a longer one continues have the turn's end in their path; the others are
        # leaves (see value_trie).
        self._is_leaf = np.ones(101, dtype=bool)
        # after such a value: the node of the end, and the nodes of longer values
        self._ends = []
        for percent, path in enumerate(self.trie.paths):
            if self.trie.tokens[path[-1]] == self._end:
                self._is_leaf[percent] = False
                self._ends.append(self.trie.children(path[-2]))
        self._leaves = np.flatnonzero(self._is_leaf)

    def state(
        self, prompts: Sequence[Messages], constrained: bool = False, mode: bool = False
    ) -> list[Statement]:
        """One Statement for each prompt.

        The model first states its confidence as free text. If no confidence can be read in it,
        greedy decoding constrained to the 101 valid statements replaces it; `raw` then holds both,
        and `retried` is true. With `constrained` there is no free text: every statement is decoded
        in this way, and counted so. With `mode` there is the mode of the distribution too. The log
        counts the prompts where free text and constrained decoding differ, and the prompts of
        little mass. Raises BadInput for probabilities that are not finite.
        """
        statements = []
        differ = 0
        for reading in self.read(prompts, state_text=not constrained):
            mean = reading.mean
            if not math.isfinite(mean):
                raise BadInput(NOT_FINITE)
            decoded = reading.greedy / 100
            confidence = reading.stated
            raw = reading.text or ""
            retried = confidence is None
            if confidence is None:
                confidence = decoded
                again = statement(reading.greedy)
                raw = again if constrained else [raw, again]
            differ += confidence != decoded
            stated = Statement(confidence, mean, reading.mass, raw, retried)
            statements.append(stated._replace(mode=reading.mode) if mode else stated)
        what = "have another value in free text than by constrained decoding"
        process.tally(what, differ, len(prompts))
        little = sum(little_mass(stated.mass) for stated in statements)
        what = f"have less than {ENOUGH_MASS:.0%} of their probability on 0 to 100 percent"
        process.tally(what, little, len(prompts))
        return statements

    def read(
        self, prompts: Sequence[Messages], state_text: bool = True, sample: Sample | None = None
    ) -> list[Reading]:
        """One Reading for each prompt; with `state_text` also the greedy text, with `sample` also
        what it samples.
        """
        return self.read_ids(self.ids(prompts, STATEMENT_TOKENS), state_text, sample)

    def read_ids(
        self, ids: Ids, state_text: bool = True, sample: Sample | None = None
    ) -> list[Reading]:
        """As `read`, of prompts that are token ids."""
        read_batch = partial(self._read_batch, state_text, sample)
        return self.compute(ids, len(self.trie.inner), read_batch)

    def _read_batch(
        self, state_text: bool, sample: Sample | None, batch: list[int], cache: KVCache
    ) -> list[Reading]:
        """The readings of the B prompts in a cache; `batch` has their indices."""
        nodes, likeliest = self._read_trie(cache, len(batch))
        greedy, sampled = self._choose(nodes, batch, sample)
        ends = self._read_ends(cache, nodes, greedy, sampled)
        readings = []
        for b, of_prompt in enumerate(ends):
            reading = make_reading(of_prompt.turns(), greedy[b], sampled[b])
            if state_text and self._is_free_text(greedy[b], likeliest[b], of_prompt.closed):
                reading.text = statement(greedy[b])
            readings.append(reading)
        if state_text:
            self._add_texts(cache, readings)
        return readings

    def _read_trie(self, cache: KVCache, size: int) -> tuple[torch.Tensor, list[list[bool]]]:
        """One forward pass of all inner nodes after each prompt: log P of every node's token [B, N],
        and whether it is the likeliest one there.
        """
        trie = self.trie
        inner = cache.extend([trie.branches] * size).unflatten(0, (size, -1))
        logits = torch.cat([cache.logits.unsqueeze(1), inner], dim=1)  # [B, 1 + inner nodes, V]
        row = torch.tensor(trie.logit_rows, device=logits.device).expand(size, -1)
        token = torch.tensor(trie.tokens, device=logits.device).expand(size, -1)
        nodes = token_logprobs(logits, row, token)
        return nodes, (logits.argmax(-1).gather(1, row) == token).tolist()

    def _choose(
        self, nodes: torch.Tensor, batch: list[int], sample: Sample | None
    ) -> tuple[list[int], list[list[int]]]:
        """What each prompt states if only the 101 statements are valid, and what it samples."""
        constrained = self._constrained(nodes)
        greedy = [greedy_value(logprobs, self.trie) for logprobs in constrained.tolist()]
        if sample is None:
            return greedy, [[] for _ in batch]
        return greedy, list(map(sample, batch, self._values(constrained)))

    def _read_ends(
        self, cache: KVCache, nodes: torch.Tensor, greedy: list[int], sampled: list[list[int]]
    ) -> list[Ends]:
        """Does the turn end after a leaf? Forward passes of leaves after those of `_read_trie`. The
        first has the leaves that are stated or sampled, likely or not.
        """
        trie = self.trie
        # log P of the values' tokens, at leaves whatever follows them
        ends = [Ends(begun, self._is_leaf) for begun in self._values(nodes)]
        fed = []
        for of_prompt, stated, drawn in zip(ends, greedy, sampled, strict=True):
            leaves = np.intersect1d(self._leaves, [stated, *drawn])
            fed.append(np.union1d(of_prompt.to_feed(), leaves).tolist())
        while any(fed):
            branches = []
            for leaves in fed:
                branches.append([trie.branch(trie.paths[percent][-1]) for percent in leaves])
            after = cache.extend(branches).split(list(map(len, fed)))
            for of_prompt, leaves, logits in zip(ends, fed, after, strict=True):
                logprobs = logits[:, self._end] - logits.logsumexp(-1)
                of_prompt.add(leaves, logprobs.double().cpu().numpy())
                for percent, token in zip(leaves, logits.argmax(-1).tolist(), strict=True):
                    if token in self.lm.ends:
                        of_prompt.closed.add(percent)
            fed = [of_prompt.to_feed() for of_prompt in ends]
        return ends

    def _constrained(self, nodes: torch.Tensor) -> torch.Tensor:
        """log P of the nodes [B, N], the end after a value being whatever is not the next digit of
        a longer one.
        """
        nodes = nodes.clone()
        for end, *longer in self._ends:
            # 1 - P(longer values), kept above 0 where they have all of the probability.
            nodes[:, end] = torch.log1p(-nodes[:, longer].exp().sum(1).clamp(max=1 - 1e-7))
        return nodes

    def _values(self, nodes: torch.Tensor) -> np.ndarray:
        """log P of the 101 paths, float64 [B, 101]."""
        sums = torch.stack([nodes[:, path].sum(1) for path in self.trie.paths], dim=1)
        return sums.double().cpu().numpy()

    def _is_free_text(self, percent: int, likeliest: list[bool], closed: set[int]) -> bool:
        """Whether free greedy decoding states `percent` too: each of its tokens is the likeliest,
        and so is the end.
        """
        # A value that is not a leaf has the end in its path.
        ended = percent in closed or not self._is_leaf[percent]
        return ended and all(likeliest[node] for node in self.trie.paths[percent])

    def _add_texts(self, cache: KVCache, readings: list[Reading]) -> None:
        """Set the text of the readings without one, by free greedy decoding of at most
        STATEMENT_TOKENS tokens.
        """
        cache.drop_appended()
        rest = [i for i, reading in enumerate(readings) if reading.text is None]
        if not rest:
            return
        cache.keep_rows(rest)
        greedy = [TokenSampler(seed=0, temperature=0, top_p=1.0) for _ in rest]
        branches = sample_continuations(cache, greedy, 1, STATEMENT_TOKENS, self.lm.ends)
        tokens = [branch.tokens for (branch,) in branches]
        texts = self.lm.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        for i, text in zip(rest, texts, strict=True):
            readings[i].text = text


class PlainReader(TransformersReader):
    """Reads a model whose attention is its own, by whole forward passes: a row of each of the 101
    turns, and one of each token of the text.
    """

    def read_ids(
        self, ids: Ids, state_text: bool = True, sample: Sample | None = None
    ) -> list[Reading]:
        turns = [[self.trie.tokens[node] for node in path] for path in self.trie.paths]
        for percent in self._leaves:
            turns[percent].append(self._end)
        readings = []
        for i, prompt in enumerate(ids):
            scores = plain.token_logprobs(self.lm.model, prompt, turns, self.batch_tokens)
            nodes = torch.empty(1, len(self.trie.tokens))
            for path, score in zip(self.trie.paths, scores, strict=True):
                nodes[0, path] = score[: len(path)]
            (greedy,), (sampled,) = self._choose(nodes, [i], sample)
            logprobs = np.array([score.double().sum().item() for score in scores])
            reading = make_reading(logprobs, greedy, sampled)
            if state_text:
                written = plain.greedy_tokens(self.lm.model, prompt, STATEMENT_TOKENS, self.lm.ends)
                reading.text = self.lm.tokenizer.decode(written, skip_special_tokens=True)
            readings.append(reading)
        return readings


def make_reading(turns: np.ndarray, greedy: int, sampled: list[int]) -> Reading:
    """A reading without its text; turns: log P of the 101 turns, float64."""
    return Reading(turns.astype(np.float32), greedy, None, sampled, turns[sampled].tolist())


def reader_of(
    lm: LanguageModel, batch_tokens: int = process.USUAL["batch_tokens"]
) -> TransformersReader:
    """The reader of a loaded confidence LLM."""
    kind = PlainReader if has_own_attention(lm.model) else TransformersReader
    return kind(lm, batch_tokens)
