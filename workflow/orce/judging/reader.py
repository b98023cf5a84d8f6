"""Reading a confidence LLM: the value that it states, and its distribution over the 101 that it could state.

Both come from one computation of the prompt. The stated value is greedy free text, parsed by orce.text.extract like any
other model output. The distribution is the probability that the statement begins with a number: for "7" that no digit
of a longer value follows, for "73" the product over its tokens, however the tokenizer splits numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from orce.llm.chat import Messages, expected, statement
from orce.llm.engines.transformers import TokenSampler, sample_continuations
from orce.llm.kv_cache import CachedModel, KVCache
from orce.llm.language_model import LanguageModel
from orce.llm.trie import TokenTrie, token_logprobs
from orce.runtime.process import USUAL

Sample = Callable[[int, np.ndarray], list[int]]  # (index of the prompt, log P [101]) -> percents sampled for it
STATEMENT_TOKENS = 12  # "Confidence: 100" and its end take 4 to 8 tokens with the tokenizers of the paper's families


def value_trie(tokenizer, *more: list[int]) -> TokenTrie:
    """Trie of the 101 statements without end tokens: path c states c percent. Then any `more` continuations (ids)."""
    values = [tokenizer(statement(p), add_special_tokens=False)["input_ids"] for p in range(101)]
    return TokenTrie.of([*values, *more])


def value_logprobs(nodes: torch.Tensor, trie: TokenTrie) -> torch.Tensor:
    """log P(c) of the 101 values from the log-probabilities of a value trie's nodes: [B, N] -> [B, 101].

    Differentiable. Where a longer value continues a shorter one (7 and 70), the shorter is stated only if none of its
    continuations follows. Continuations outside the trie (105 after 10) are not subtracted: docs/choices.md.
    """
    stops = []
    for path in trie.paths:
        children = trie.children(path[-1])
        continued = nodes[:, children].exp().sum(1) if children else nodes.new_zeros(nodes.size(0))
        stops.append(torch.log1p(-continued.clamp(max=1 - 1e-7)))
    return statement_logprobs(nodes, trie) + torch.stack(stops, dim=1)


def statement_logprobs(nodes: torch.Tensor, trie: TokenTrie) -> torch.Tensor:
    """log P(the statement's tokens), whatever follows them: [B, N] -> [B, 101]. Differentiable."""
    return torch.stack([nodes[:, path].sum(1) for path in trie.paths], dim=1)


def greedy_value(probabilities: list[float], trie: TokenTrie) -> int:
    """The percent that greedy decoding, constrained to the trie of valid statements, states; of each node's probability."""
    values, node = {path[-1]: percent for percent, path in enumerate(trie.paths)}, -1
    while True:
        children = trie.children(node)
        best = max(children, key=lambda child: probabilities[child], default=None)
        stop = 1 - sum(probabilities[child] for child in children) if node in values else -1.0
        if best is None or stop > probabilities[best]:
            return values[node]
        node = best


@dataclass
class Reading:
    """What a confidence LLM says of one prompt.

    logprobs: float32 [101], log P(c | prompt) of c percent. greedy: the percent of constrained greedy decoding.
    text: the free greedy text, if asked for. sampled: percents sampled from the distribution, if asked for.
    sampled_logprobs: for each of these the log-probability of the whole turn, the statement's tokens and the end token;
    DPO calls it log pi(z | prompt).
    """

    logprobs: np.ndarray
    greedy: int
    text: str | None = None
    sampled: list[int] | None = None
    sampled_logprobs: list[float] | None = None

    @property
    def mean(self) -> float:
        """Expected confidence in [0, 1] under the distribution, renormalised over the 101 values."""
        return expected(self.logprobs)

    @property
    def mode(self) -> float:
        """The most probable of the 101 values, in [0, 1]; of several equally probable ones the lowest.

        Greedy decoding need not state it: a first digit is chosen for all the values that begin with it.
        """
        return int(self.logprobs.argmax()) / 100

    @property
    def mass(self) -> float:
        """Probability of stating one of the 101 values at all."""
        return float(np.exp(self.logprobs.astype(float)).sum())


class TransformersReader(CachedModel):
    """Reads confidences from one confidence LLM."""

    def __init__(self, lm: LanguageModel, batch_tokens: int = USUAL["batch_tokens"]):
        super().__init__(lm, batch_tokens)
        self.trie = value_trie(lm.tokenizer)
        self._before = self.trie.before()

    def read(self, prompts: Sequence[Messages], state_text: bool = True, sample: Sample | None = None) -> list[Reading]:
        """One Reading for each prompt; with `state_text` also the greedy text, with `sample` also what it samples."""
        return self.read_ids(self.ids(prompts, STATEMENT_TOKENS), state_text, sample)

    def read_ids(self, ids: list[list[int]], state_text: bool = True, sample: Sample | None = None) -> list[Reading]:
        """The same for prompts as token ids."""
        trie = self.trie

        def work(batch: list[int], cache: KVCache) -> list[Reading]:
            following = cache.extend([trie.branches()] * len(batch)).unflatten(0, (len(batch), -1))
            logits = torch.cat([cache.logits.unsqueeze(1), following], dim=1)  # [B, 1 + inner nodes, V]
            row, token = (
                torch.tensor(each, device=logits.device).expand(len(batch), -1)
                for each in (trie.logit_rows, trie.tokens)
            )
            nodes = token_logprobs(logits, row, token)
            values = value_logprobs(nodes, trie).cpu().numpy().astype(np.float32)
            greedy = [greedy_value(each, trie) for each in nodes.exp().tolist()]
            readings = [Reading(*both) for both in zip(values, greedy, strict=True)]
            if sample is not None:
                percents = [sample(i, each) for i, each in zip(batch, values, strict=True)]
                self._add_samples(cache, nodes, readings, percents)
            if state_text:
                likeliest = (logits.argmax(-1).gather(1, row) == token).tolist()
                for reading, text in zip(readings, self._texts(cache, likeliest), strict=True):
                    reading.text = text
            return readings

        return self.computed(self.batches(ids, len(trie.inner)), ids, work)

    def _add_samples(self, cache: KVCache, nodes: torch.Tensor, readings: list[Reading], samples: list[list[int]]):
        """Add the samples and the log-probabilities of their turns. Each distinct value is computed once."""
        distinct = [sorted(set(percents)) for percents in samples]
        stated = statement_logprobs(nodes, self.trie).tolist()
        for b, logits in enumerate(self._logits_after(cache, distinct)):
            end = (logits[:, self.lm.tokenizer.eos_token_id] - logits.logsumexp(-1)).tolist()
            ends = dict(zip(distinct[b], end, strict=True))
            readings[b].sampled = samples[b]
            readings[b].sampled_logprobs = [stated[b][percent] + ends[percent] for percent in samples[b]]

    def _texts(self, cache: KVCache, likeliest: list[list[bool]]) -> list[str]:
        """The greedy texts. likeliest: whether each node of the trie is the most probable token where it stands.

        Where greedy decoding goes through the trie to a value, only the end of the turn is left to check.
        """
        paths = list(enumerate(self.trie.paths))
        stated = [
            max((len(path), percent) for percent, path in [(0, []), *paths] if all(nodes[node] for node in path))
            for nodes in likeliest
        ]  # (tokens, percent) of the longest statement; no tokens without a statement
        after = self._logits_after(cache, [[percent] for _, percent in stated])
        texts = [
            statement(percent) if length and int(logits.argmax()) in self.lm.ends else None
            for (length, percent), logits in zip(stated, after, strict=True)
        ]
        cache.drop_appended()
        rest = [i for i, text in enumerate(texts) if text is None]
        written: Iterator[str] = iter(())
        if rest:
            cache.keep_rows(rest)
            samplers = [TokenSampler(0, 0, 1.0) for _ in rest]
            branches = sample_continuations(cache, samplers, 1, STATEMENT_TOKENS, self.lm.ends)
            tokens = [branch.tokens for (branch,) in branches]
            written = iter(self.lm.tokenizer.batch_decode(tokens, skip_special_tokens=True))
        return [next(written) if text is None else text for text in texts]

    def _logits_after(self, cache: KVCache, percents: list[list[int]]) -> tuple[torch.Tensor, ...]:
        """Logits of what follows some values of each prompt, where the trie's inner nodes are cached: B x [values, V]."""
        nodes = [[self.trie.paths[percent][-1] for percent in mine] for mine in percents]
        logits = cache.extend([[(self.trie.tokens[node], self._before[node]) for node in mine] for mine in nodes])
        return logits.split([len(mine) for mine in nodes])
