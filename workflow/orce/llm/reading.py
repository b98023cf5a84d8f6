"""What a model computes from texts: log-probabilities of continuations, hidden states, entailment.

A prompt is computed once for all its continuations, and so is a prefix that they share
(orce.llm.trie).
"""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers.models.auto.tokenization_auto import AutoTokenizer

from orce.errors import BadInput
from orce.llm import language_model
from orce.llm.chat import Messages, text_ids
from orce.llm.kv_cache import NOT_FINITE, CachedModel, KVCache
from orce.llm.trie import TokenTrie, group_by_budget
from orce.runtime import process
from orce.settings.stage import Encoder as EncoderSettings

with process.hide_unused_packages():
    from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification

TOKENS = 2048  # continuation tokens computed together: each has logits over the whole vocabulary


class Scorer(CachedModel):
    def logprobs(
        self, prompts: Sequence[Messages], continuations: Sequence[Sequence[str]]
    ) -> list[list[list[float]]]:
        """log P(token | prompt, tokens before it) of each continuation of each prompt:
        [prompt][continuation][token]. A continuation is the text of an assistant's turn, without
        its end. An empty text has no tokens.
        """
        tokens = []
        inner = []  # nodes with children, of each prompt's trie
        longest = 0
        for texts in continuations:
            of_prompt = [text_ids(self.lm.tokenizer, text) for text in texts]
            tokens.append(of_prompt)
            inner.append(len(TokenTrie.of(of_prompt).inner))
            longest = max([longest, *map(len, of_prompt)])
        ids = self.ids(prompts, longest)

        def score(batch, cache: KVCache):
            # Made anew: a trie that has told its branches keeps half the square of its length.
            own = [TokenTrie.of(tokens[i]) for i in batch]
            sizes = [len(trie.inner) for trie in own]
            following = cache.logits[:0]  # nothing, if no continuation has a second token
            if any(sizes):
                following = cache.extend([trie.branches for trie in own])
            for trie, first, rest in zip(own, cache.logits, following.split(sizes), strict=True):
                logprobs = torch.cat([first[None], rest]).log_softmax(-1)
                chosen = logprobs[trie.logit_rows, trie.tokens]
                if chosen.isnan().any():
                    raise BadInput(NOT_FINITE)
                nodes = chosen.tolist()
                yield [[nodes[node] for node in path] for path in trie.paths]

        def split_batch(batch):
            return group_by_budget(batch, inner.__getitem__, TOKENS)

        return self.compute(ids, 0, score, split_batch)


class Encoder(CachedModel):
    """depths: of the layers whose outputs are read, as shares of the model's: 0.5 is the middle
    layer, 1 the last.
    """

    def __init__(
        self, lm: language_model.LanguageModel, depths: Sequence[float], batch_tokens: int
    ):
        super().__init__(lm, batch_tokens)
        self.depths = depths

    def states(
        self, prompts: Sequence[Messages], replies: Sequence[str]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """[layers, size] of each prompt's last token, and of its reply's; of an empty reply, the
        prompt's.
        """
        after = [text_ids(self.lm.tokenizer, reply) for reply in replies]
        longest = max(map(len, after), default=0)
        ids = self.ids(prompts, longest)
        blocks = self.lm.model.get_decoder().layers
        seen: dict[int, torch.Tensor] = {}  # the outputs of the layers in the latest forward pass

        def keep(i, module, arguments, output):
            seen[i] = output[0] if isinstance(output, tuple) else output

        def stack(index: Any) -> np.ndarray:
            """[B, layers, size], of some columns of the latest forward pass."""
            layers = [seen[i][index].float().cpu() for i in range(len(self.depths))]
            return torch.stack(layers, 1).numpy()

        def encode(batch, cache: KVCache):
            prompt = stack(np.s_[:, -1])
            reply = prompt.copy()
            chains = []  # each token of a reply sees those before it
            for i in batch:
                chains.append([(token, np.arange(k)) for k, token in enumerate(after[i])])
            sizes = list(map(len, chains))
            if any(sizes):
                cache.extend(chains)
                rows = np.flatnonzero(sizes)  # of replies that are not empty
                ends = np.cumsum(sizes) - 1  # of replies in the packed columns
                reply[rows] = stack(np.s_[0, ends[rows]])
            return zip(prompt, reply, strict=True)

        with contextlib.ExitStack() as hooks:
            for i, depth in enumerate(self.depths):
                block = blocks[max(1, round(depth * len(blocks))) - 1]
                hooks.enter_context(block.register_forward_hook(partial(keep, i)))
            return self.compute(ids, longest, encode)


class Nli:
    """The model of `settings` {source, dtype, device}. Raises BadInput for a model without a label
    `entailment`.
    """

    def __init__(self, settings: EncoderSettings, batch_tokens: int):
        self.batch_tokens = batch_tokens
        path, revision = language_model.origin(settings.source)
        with language_model.explained(f"{path}: the NLI model cannot be loaded"):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(
                path, trust_remote_code=False, revision=revision
            )
        model = language_model.pretrained(
            path, revision, AutoModelForSequenceClassification, dtype=settings.dtype
        )
        self.model: Any = model.to(settings.device).eval()
        process.resume_collection()
        self.names = {i: str(name).lower() for i, name in model.config.id2label.items()}
        labels = self.names.values()
        if "entailment" not in labels:
            named = f"its labels are {', '.join(labels)}"
            raise BadInput(f"{path}: {named}; an NLI model has a label `entailment`")

    @torch.inference_mode()
    def labels(self, pairs: list[tuple[str, str]]) -> list[str]:
        """The label of each pair (premise, hypothesis), in lower case."""
        # a token has at least one character
        longest = max((len(a) + len(b) for a, b in pairs), default=1)
        size = max(1, self.batch_tokens // longest)
        labels = []
        for start in range(0, len(pairs), size):
            batch = self.tokenizer(
                pairs[start : start + size], padding=True, truncation=True, return_tensors="pt"
            )
            logits = self.model(**batch.to(self.model.device)).logits
            labels += [self.names[i] for i in logits.argmax(-1).tolist()]
        return labels

    def close(self) -> None:
        self.model = None
