"""Reading confidence LLMs with transformers: one model in memory, any number of adapters in turn."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from orce.judging.distribution import (
    STATEMENT_TOKENS,
    Reading,
    Sample,
    greedy_value,
    statement_logprobs,
    value_logprobs,
    value_trie,
)
from orce.llm import batches, language_model
from orce.llm.attention import check_window
from orce.llm.chat import Messages, prompts_ids, statement
from orce.llm.engines.transformers import TokenSampler, sample_continuations
from orce.llm.kv_cache import REMEDY, KVCache
from orce.llm.language_model import AdapterSwitcher, LanguageModel, is_adapter
from orce.llm.trie import TokenTrie, token_logprobs
from orce.runtime.process import USUAL
from orce.stage_settings import Model


class TransformersReader:
    """Reads confidences from one confidence LLM."""

    def __init__(self, lm: LanguageModel, batch_tokens: int = USUAL["batch_tokens"]):
        self.lm, self.batch_tokens = lm, batch_tokens
        self.trie = trie = value_trie(lm.tokenizer)
        self._logit_rows, self._tokens = trie.logit_rows, trie.tokens
        self._logit_row = {node: i + 1 for i, node in enumerate(trie.inner)}  # of what follows an inner node
        self._children = {node: trie.children(node) for node in (-1, *trie.inner)}
        self._values = {path[-1]: percent for percent, path in enumerate(trie.paths)}

    def read(self, prompts: Sequence[Messages], state_text: bool = True, sample: Sample | None = None) -> list[Reading]:
        """One Reading for each prompt; with `state_text` also the greedy text, with `sample` also what it samples."""
        ids = prompts_ids(self.lm.tokenizer, prompts, self.lm.template_kwargs)
        check_window(self.lm.model.config, max(map(len, ids), default=0) + STATEMENT_TOKENS, REMEDY)
        return self.read_ids(ids, state_text, sample)

    def read_ids(self, ids: list[list[int]], state_text: bool = True, sample: Sample | None = None) -> list[Reading]:
        """The same for prompts as token ids."""
        readings: list = [None] * len(ids)
        for batch in batches.padded(ids, self.batch_tokens, len(self.trie.inner)):
            cache = KVCache(self.lm.model, [ids[i] for i in batch])
            logits = trie_logits(cache, self.trie)
            row, token = (torch.tensor(x, device=logits.device) for x in (self._logit_rows, self._tokens))
            nodes = token_logprobs(logits, row.expand(len(batch), -1), token.expand(len(batch), -1))
            values = value_logprobs(nodes, self.trie).cpu().numpy().astype(np.float32)
            found = [Reading(*one) for one in zip(values, greedy_value(nodes, self.trie), strict=True)]
            if sample is not None:
                self._add_samples(cache, nodes, found, [sample(i, row) for i, row in zip(batch, values, strict=True)])
            if state_text:
                for reading, text in zip(found, self._texts(cache, logits), strict=True):
                    reading.text = text
            for i, reading in zip(batch, found, strict=True):
                readings[i] = reading
        return readings

    def _add_samples(
        self, cache: KVCache, nodes: torch.Tensor, readings: list[Reading], samples: list[list[int]]
    ) -> None:
        """Add the samples and the log-probabilities of their turns. Each distinct value is computed once."""
        distinct = [sorted(set(percents)) for percents in samples]
        following = self._logits_after(cache, [[self.trie.paths[p][-1] for p in percents] for percents in distinct])
        end = [(row[:, self.lm.tokenizer.eos_token_id] - row.logsumexp(-1)).tolist() for row in following]
        stated = statement_logprobs(nodes, self.trie).tolist()
        for b, reading in enumerate(readings):
            place = {percent: r for r, percent in enumerate(distinct[b])}
            reading.sampled = samples[b]
            reading.sampled_logprobs = [stated[b][percent] + end[b][place[percent]] for percent in samples[b]]

    def _texts(self, cache: KVCache, logits: torch.Tensor) -> list[str]:
        """The greedy texts. Where greedy decoding reaches a value inside the trie, only its end is left to check."""
        paths = [self._greedy_path(row) for row in logits.argmax(-1).tolist()]
        ended = self._ended(cache, paths)
        cache.drop_appended()
        texts = [statement(path[1]) if path and end else None for path, end in zip(paths, ended, strict=True)]
        rest = [i for i, text in enumerate(texts) if text is None]
        if rest:
            cache.keep_rows(rest)
            for i, text in zip(rest, self._greedy_texts(cache), strict=True):
                texts[i] = text
        return [text for text in texts if text is not None]  # which by now is all of them

    def _greedy_path(self, likeliest: list[int]) -> tuple[int, int] | None:
        """(node, percent) where greedy decoding leaves the trie at a value; None if it leaves it elsewhere.

        likeliest: the most probable token of each logit row.
        """
        node = -1
        while node == -1 or node in self._logit_row:
            token = likeliest[self._logit_row.get(node, 0)]
            following = [child for child in self._children[node] if self.trie.tokens[child] == token]
            if not following:
                break
            node = following[0]
        return (node, self._values[node]) if node in self._values else None

    def _ended(self, cache: KVCache, paths: list[tuple[int, int] | None]) -> list[bool]:
        """Whether the most probable token after each path's last node ends the turn."""
        nodes = [[self.trie.paths[0][-1] if path is None else path[0]] for path in paths]
        return [int(logits[0].argmax()) in self.lm.ends for logits in self._logits_after(cache, nodes)]

    def _logits_after(self, cache: KVCache, nodes: list[list[int]]) -> list[torch.Tensor]:
        """Logits of what follows some nodes of each prompt's value trie, whose inner nodes are cached: B x [nodes, V]."""
        trie = self.trie

        def branch(node: int) -> tuple[int, int, list[int]]:
            return trie.tokens[node], trie.depth(node), [self._logit_row[one] - 1 for one in trie.ancestors(node)]

        logits = cache.extend_branches([[branch(node) for node in mine] for mine in nodes])
        return list(logits.split([len(mine) for mine in nodes]))

    def _greedy_texts(self, cache: KVCache) -> list[str]:
        """Greedy continuations of the prompts in the cache, at most STATEMENT_TOKENS long."""
        samplers = [TokenSampler(0, 0, 1.0) for _ in cache.lengths]
        branches = sample_continuations(cache, samplers, 1, STATEMENT_TOKENS, self.lm.ends)
        return self.lm.tokenizer.batch_decode([one.tokens for (one,) in branches], skip_special_tokens=True)


def trie_logits(cache: KVCache, trie: TokenTrie) -> torch.Tensor:
    """Logits of what follows the prompts and every inner node of the value trie: [B, 1 + inner, V]."""
    count, inner = len(cache.lengths), trie.inner
    tokens, depth = [trie.tokens[node] for node in inner] * count, [trie.depth(node) for node in inner] * count
    following = cache.extend([len(inner)] * count, tokens, depth, trie.ancestor_mask().repeat(count, 1))
    return torch.cat([cache.logits.unsqueeze(1), following.unflatten(0, (count, -1))], dim=1)


class SwitchingReader:
    """Reads from many confidence LLMs, with one base model in memory.

    Adapters are merged into the base model in turn (orce.llm.language_model.AdapterSwitcher); whole models replace it. Nothing is loaded
    before the first call.
    """

    def __init__(self, settings: Model | Mapping[str, Any], batch_tokens: int):
        self.settings, self.batch_tokens = settings, batch_tokens
        self._loaded: tuple[TransformersReader, AdapterSwitcher] | None = None
        self._whole: str | None = None  # folder of the whole model that is loaded; None for the base model

    def read(
        self,
        prompts: Sequence[Messages],
        state_text: bool = True,
        sample: Sample | None = None,
        adapter: str | None = None,
    ) -> list[Reading]:
        """See TransformersReader.read.

        adapter: the folder of a training step, an adapter or a whole model; None is the untrained base model.
        """
        whole = adapter if adapter is not None and not is_adapter(adapter) else None
        if self._loaded is None or whole != self._whole:
            self.close()
            reader = TransformersReader(language_model.load(self.settings, whole), self.batch_tokens)
            self._loaded, self._whole = (reader, AdapterSwitcher(reader.lm.model)), whole
        reader, switcher = self._loaded
        switcher.activate(adapter if whole is None else None)
        return reader.read(prompts, state_text, sample)

    def close(self) -> None:
        """Release the model."""
        self._loaded = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
