"""What a model itself has of texts: log-probabilities of continuations, hidden states, whether one entails another.

A prompt is computed once for all its continuations, and so is a prefix that they share (orce.llm.trie).
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers.models.auto.tokenization_auto import AutoTokenizer

from orce.errors import BadInput
from orce.llm import batches, language_model
from orce.llm.attention import check_window
from orce.llm.chat import Messages, prompts_ids, text_ids
from orce.llm.kv_cache import REMEDY, KVCache
from orce.llm.language_model import LanguageModel
from orce.llm.trie import TokenTrie
from orce.runtime import process
from orce.stage_settings import Encoder as EncoderSettings
from orce.stage_settings import Model, typed

with process.without_unused():
    from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification

TOKENS = 2048  # continuation tokens computed together: each has logits over the whole vocabulary


class Scorer:
    """Scores continuations with one model."""

    def __init__(self, lm: LanguageModel, batch_tokens: int = process.USUAL["batch_tokens"]):
        self.lm, self.batch_tokens = lm, batch_tokens

    def logprobs(self, prompts: Sequence[Messages], continuations: Sequence[Sequence[str]]) -> list[list[list[float]]]:
        """log P(token | prompt, tokens before it) of each continuation of each prompt: [prompt][continuation][token].

        A continuation is the text of an assistant's turn, without its end. An empty text has no tokens.
        """
        ids = prompts_ids(self.lm.tokenizer, prompts, self.lm.template_kwargs)
        tries = [TokenTrie.of([self._tokens(text) for text in texts]) for texts in continuations]
        depth = max((len(path) for trie in tries for path in trie.paths), default=0)
        check_window(self.lm.model.config, max(map(len, ids), default=0) + depth, REMEDY)
        found: list = [None] * len(ids)
        for batch in self._batches(ids, tries):
            cache = KVCache(self.lm.model, [ids[i] for i in batch])
            for i, nodes in zip(batch, node_logprobs(cache, [tries[i] for i in batch]), strict=True):
                found[i] = [[nodes[node] for node in path] for path in tries[i].paths]
        return found

    def close(self) -> None:
        """Release the model."""
        del self.lm

    def _tokens(self, text: str) -> list[int]:
        return text_ids(self.lm.tokenizer, text)

    def _batches(self, ids: list[list[int]], tries: list[TokenTrie]) -> Iterator[list[int]]:
        """Prompts of similar length, as many as batch_tokens and TOKENS allow."""
        for batch in batches.padded(ids, self.batch_tokens):
            part: list[int] = []
            for i in batch:
                if part and sum(len(tries[j].inner) for j in [*part, i]) > TOKENS:
                    yield part
                    part = []
                part.append(i)
            yield part


def scorer(settings: Model | Mapping[str, Any], batch_tokens: int) -> Scorer:
    """A scorer of a model; settings as for orce.llm.language_model.load."""
    return Scorer(language_model.load(settings), batch_tokens)


def node_logprobs(cache: KVCache, tries: list[TokenTrie]) -> list[list[float]]:
    """Log-probability of each node of each prompt's trie, given the prompt and the node's ancestors."""
    following = _following(cache, tries)
    found = []
    for b, trie in enumerate(tries):
        rows = torch.cat([cache.logits[b : b + 1], following[b]]).log_softmax(-1)
        found.append(rows[trie.logit_rows, trie.tokens].tolist() if trie.tokens else [])
    return found


def _following(cache: KVCache, tries: list[TokenTrie]) -> list[torch.Tensor]:
    """Logits [inner nodes, V] of what follows the inner nodes of each prompt's trie."""
    sizes = [len(trie.inner) for trie in tries]
    if not any(sizes):
        return [cache.logits[:0]] * len(tries)
    visible = torch.zeros(sum(sizes), max(sizes), dtype=torch.bool)
    for start, size, trie in zip(_starts(sizes), sizes, tries, strict=True):
        visible[start : start + size, :size] = trie.ancestor_mask()
    tokens = [trie.tokens[node] for trie in tries for node in trie.inner]
    depth = [trie.depth(node) for trie in tries for node in trie.inner]
    return list(cache.extend(sizes, tokens, depth, visible).split(sizes))


def _starts(sizes: list[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]


class States(NamedTuple):
    """[layers, size]: the states of a prompt's last token, and of its reply's."""

    prompt: np.ndarray
    reply: np.ndarray


class Encoder:
    """Reads hidden states of one model.

    depths: of the layers, as shares of the model's: 0.5 is the output of the middle layer, 1 of the last.
    """

    def __init__(self, lm: LanguageModel, depths: Sequence[float], batch_tokens: int):
        self.lm, self.batch_tokens = lm, batch_tokens
        blocks = lm.model.get_decoder().layers
        self.blocks = [blocks[max(1, round(depth * len(blocks))) - 1] for depth in depths]

    def states(self, prompts: Sequence[Messages], replies: Sequence[str]) -> list[States]:
        """The states of each prompt and its reply."""
        ids = prompts_ids(self.lm.tokenizer, prompts, self.lm.template_kwargs)
        after = [text_ids(self.lm.tokenizer, reply) for reply in replies]
        check_window(self.lm.model.config, max(map(len, [*ids, []])) + max(map(len, [*after, []])), REMEDY)
        found: list = [None] * len(ids)
        for batch in batches.padded(ids, self.batch_tokens, max(map(len, after), default=0)):
            for i, one in zip(batch, self._of_batch([ids[i] for i in batch], [after[i] for i in batch]), strict=True):
                found[i] = one
        return found

    def _of_batch(self, ids: list[list[int]], after: list[list[int]]) -> Iterator[States]:
        with self._watched() as seen:
            cache = KVCache(self.lm.model, ids)
            prompt = torch.stack([one[:, -1].float().cpu() for one in seen], 1).numpy()  # [prompts, layers, size]
            reply = prompt.copy()
            sizes = list(map(len, after))
            if any(sizes):
                tokens = [token for one in after for token in one]
                depth = [place for size in sizes for place in range(1, size + 1)]
                visible = torch.arange(max(sizes)) < torch.tensor(depth).unsqueeze(1)
                cache.extend(sizes, tokens, depth, visible)
                ends = np.cumsum(sizes) - 1
                rows = [i for i, size in enumerate(sizes) if size]
                reply[rows] = torch.stack([one[0, ends[rows]].float().cpu() for one in seen], 1).numpy()
        for before, end in zip(prompt, reply, strict=True):
            yield States(before, end)

    @contextlib.contextmanager
    def _watched(self):
        """The outputs of the layers in the latest forward pass, as a list that each pass fills anew."""
        seen: list[Any] = [None] * len(self.blocks)

        def keep(i):
            def hook(_, __, output):
                seen[i] = output[0] if isinstance(output, tuple) else output

            return hook

        hooks = [block.register_forward_hook(keep(i)) for i, block in enumerate(self.blocks)]
        try:
            yield seen
        finally:
            for hook in hooks:
                hook.remove()

    def close(self) -> None:
        """Release the model."""
        del self.lm, self.blocks


def encoder(settings: Model | Mapping[str, Any], depths: Sequence[float], batch_tokens: int) -> Encoder:
    """The encoder of a model; settings as for orce.llm.language_model.load."""
    return Encoder(language_model.load(settings), depths, batch_tokens)


class Nli:
    """The model of `settings` {source, dtype, device}. Raises BadInput for one that names no label `entailment`."""

    def __init__(self, settings: EncoderSettings | Mapping[str, Any], batch_tokens: int):
        settings, self.batch_tokens = typed(EncoderSettings, settings), batch_tokens
        place, revision = language_model.origin(settings.source)
        source: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
        with language_model.explained(f"{place}: the NLI model cannot be loaded"):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(place, **source)
            model = AutoModelForSequenceClassification.from_pretrained(
                place, dtype=getattr(torch, settings.dtype), use_safetensors=True, **source
            )
        self.model: Any = model.to(torch.device(settings.device)).eval()
        process.imported()
        self.names = {i: str(name).lower() for i, name in model.config.id2label.items()}
        if "entailment" not in self.names.values():
            raise BadInput(
                f"{place}: its labels are {', '.join(self.names.values())}; an NLI model has a label `entailment`"
            )

    @torch.inference_mode()
    def labels(self, pairs: list[tuple[str, str]]) -> list[str]:
        """The most probable label of each (premise, hypothesis)."""
        longest = max((len(one) + len(other) for one, other in pairs), default=1)  # a token has at least one character
        size, found = max(1, self.batch_tokens // longest), []
        for start in range(0, len(pairs), size):
            batch = self.tokenizer(pairs[start : start + size], padding=True, truncation=True, return_tensors="pt")
            logits = self.model(**batch.to(self.model.device)).logits
            found += [self.names[i] for i in logits.argmax(-1).tolist()]
        return found

    def close(self) -> None:
        self.model = None
