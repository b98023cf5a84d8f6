"""The KV cache of a batch of prompts, and the branches that continue them.

The prefix that all prompts share is computed and stored once for the whole batch. Branches are
packed: a call computes exactly the tokens that it is given, however unevenly they are spread over
the prompts, and only attention scores are padded. Each new token is one more cache column, which a
mask shows to its own descendants alone, so that no cache is copied when a branch forks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from orce.errors import BadInput
from orce.llm.chat import Messages, prompts_ids
from orce.llm.language_model import LanguageModel, config_of, prompt_lengths
from orce.llm.trie import (
    OWN_ATTENTION,
    Batches,
    Ids,
    additive_mask,
    check_window,
    common_prefix,
    padded_batches,
)
from orce.runtime import process

with process.hide_unused_packages():
    from transformers import AttentionInterface, DynamicCache

ATTENTION = "orce_branches"
# attention features of some families that this kernel lacks
UNSUPPORTED = ("softcap", "s_aux", "position_bias")
NOT_FINITE = (
    "the model's logits are not finite numbers; its weights are broken (if they were trained here: train again, with a "
    "lower learning_rate), or too large for 16 bits; try dtype: float32"
)
REMEDY = (
    "the engine transformers lacks this; set engine.name to vllm for answers, or take another model"
)


class KVCache:
    """The cache of a batch of B prompts and of the columns appended to them. Inference only.

    logits: [B, V], predict each prompt's next token. appended: the number of columns after the
    prompts. shared, own: for each layer [keys, values], of the shared prefix [H, S, D] and of each
    prompt's own columns [B, H, C, D]. In the forward pass of new tokens it takes the place of a
    transformers cache.
    """

    def __init__(self, model, prompts: Ids):
        """Compute the prompts (token ids). Raises BadInput if the model's attention is not
        supported.
        """
        if not model._supports_attention_backend:
            raise BadInput(f"{type(model).__name__} {OWN_ATTENTION}; {REMEDY}")
        self.model = model
        self.device = model.device
        self.longest = max(map(len, prompts))
        self.appended = 0
        cache = DynamicCache()
        shared = common_prefix(prompts)
        if shared:
            prefix = torch.tensor([prompts[0][:shared]])
            self._forward(prefix, torch.arange(shared)[None], cache, 1)
            cache.batch_repeat_interleave(len(prompts))
        self.logits = self._prefill(prompts, shared, cache)
        layers: list[Any] = cache.layers
        self.shared: list[list[torch.Tensor]] = []
        self.own: list[list[torch.Tensor]] = []
        for layer in layers:
            stored = (layer.keys, layer.values)
            self.shared.append([states[0, :, :shared].contiguous() for states in stored])
            self.own.append([states[:, :, shared:].contiguous() for states in stored])

    def _prefill(self, prompts: Ids, shared: int, cache: DynamicCache) -> torch.Tensor:
        """Compute what follows the shared prefix, padded on the left: logits [B, V]."""
        own = [torch.tensor(prompt[shared:]) for prompt in prompts]
        ids = pad_sequence(own, batch_first=True, padding_side="left")
        width = ids.size(1)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        positions = lengths[:, None] - width + torch.arange(width)
        real = positions >= shared
        self.lengths = lengths.to(self.device)
        self.real = real.to(self.device)
        visible = real.unsqueeze(1) & torch.ones(width, width, dtype=torch.bool).tril()
        # padding attends to itself: a softmax over nothing would be nan
        visible |= torch.eye(width, dtype=torch.bool)
        prefix = torch.ones(len(prompts), width, shared, dtype=torch.bool)
        visible = torch.cat([prefix, visible], dim=2).unsqueeze(1).to(self.device)
        mask = additive_mask(visible, self.model.dtype)
        # A tensor, not an int: a slice would make the LM head reread its weights for every row.
        last = torch.tensor([width - 1])
        return self._forward(ids, positions * real, cache, last, attention_mask=mask)[:, 0]

    @torch.inference_mode()
    def _forward(self, ids, positions, cache, keep, **options) -> torch.Tensor:
        return self.model(
            input_ids=ids.to(self.device),
            position_ids=positions.to(self.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
            **options,
        ).logits.float()

    def extend(self, branches: Sequence[Sequence[tuple[int, Any]]]) -> torch.Tensor:
        """Append T tokens and return the logits of what follows each: [T, V], the first prompt's
        tokens first.

        branches: for each prompt its new tokens, each with the columns (a list or an array) of the
        tokens that come between the prompt and it. The i-th new token of a prompt becomes column
        appended + i.
        """
        self.width = max(map(len, branches))
        visible = np.zeros((sum(map(len, branches)), self.appended + self.width), dtype=bool)
        tokens = []
        for row, new in enumerate(branches):
            for place, (token, columns) in enumerate(new):
                seen = visible[len(tokens)]
                seen[columns] = True
                seen[self.appended + place] = True
                tokens.append((row, place, token, len(columns)))
        packed = torch.tensor(tokens)
        check_window(self.model.config, self.longest + int(packed[:, 3].max()) + 1, REMEDY)
        # Where the packed tokens belong in a padded block: token t is the place[t]-th of `width` in
        # row[t].
        self.row, self.place, ids, depth = packed.to(self.device).unbind(1)
        mask = torch.cat([self.real[self.row], torch.from_numpy(visible).to(self.device)], dim=1)
        positions = self.lengths[self.row] + depth
        # For this pass alone: prompts run through the model's usual attention.
        config = self.model.config
        usual = config._attn_implementation
        config._attn_implementation = ATTENTION
        try:
            logits = self._forward(
                ids[None], positions[None], self, len(tokens), branches=(self, mask)
            )
        finally:
            config._attn_implementation = usual
        self.appended += self.width
        return logits[0]

    def update(self, keys, values, layer: int, *_, **__) -> list[torch.Tensor]:
        """Store the keys and values [1, H, T, D] of the packed tokens; return all of the layer's
        own columns.
        """
        grown = []
        for states, new in zip(self.own[layer], (keys, values), strict=True):
            grown.append(torch.cat([states, self.pad(new[0].transpose(0, 1))], dim=2))
        self.own[layer] = grown
        return grown

    def pad(self, packed: torch.Tensor) -> torch.Tensor:
        """[T, H, ...] -> [B, H, width, ...], zeros where there is no token."""
        padded = packed.new_zeros(len(self.lengths), packed.size(1), self.width, *packed.shape[2:])
        padded[self.places(packed)] = packed
        return padded

    def places(self, states: torch.Tensor) -> tuple[torch.Tensor, slice, torch.Tensor]:
        """The index of the packed tokens in a padded block, for the device of a layer's states: the
        layers may be on several.
        """
        return self.row.to(states.device), slice(None), self.place.to(states.device)

    def drop_appended(self) -> None:
        """Forget all columns after the prompts."""
        for layer, stored in enumerate(self.own):
            end = stored[0].size(2) - self.appended
            self.own[layer] = [states[:, :, :end] for states in stored]
        self.appended = 0

    def keep_rows(self, rows: list[int]) -> None:
        """Forget all prompts but some."""
        index = torch.tensor(rows, device=self.device)
        for layer, stored in enumerate(self.own):
            self.own[layer] = [states[index.to(states.device)] for states in stored]
        self.lengths = self.lengths[index]
        self.real = self.real[index]
        self.logits = self.logits[index]


def branch_attention(
    module, query, key, value, attention_mask, scaling=None, branches=None, **features
):
    """Attention of T packed tokens, query [1, Hq, T, D], to the shared prefix and to their own
    prompt's columns.

    A transformers attention function. key, value: [B, H, C, D] as KVCache.update returns them;
    branches: (the cache, bool [T, C], the columns that each token sees). Query heads that share a
    key head are grouped, so that no key is copied. A sliding window is left out: KVCache refuses
    whatever exceeds it.
    """
    if lacking := [name for name in UNSUPPORTED if features.get(name) is not None]:
        raise BadInput(f"{type(module).__name__} has {', '.join(lacking)}; {REMEDY}")
    assert branches is not None  # every call comes from KVCache.extend
    cache, visible = branches
    shared_keys, shared_values = cache.shared[module.layer_idx]
    heads, shared, size = shared_keys.shape
    groups = query.size(1) // heads
    t = query.size(2)
    q = query[0].view(heads, groups, t, size) * (size**-0.5 if scaling is None else scaling)

    def by_token(x):  # [heads, groups * T, N] -> [T, heads, groups, N]
        return x.view(heads, groups, t, -1).permute(2, 0, 1, 3)

    def times_own(x, keys):  # [T, heads, groups, N] times [B, heads, N, M] -> [T, heads, groups, M]
        padded = cache.pad(x)
        out = (padded.flatten(2, 3) @ keys).view(*padded.shape[:4], -1)
        return out[cache.places(out)]

    to_shared = by_token(q.flatten(1, 2) @ shared_keys.transpose(1, 2))
    to_own = times_own(q.permute(2, 0, 1, 3), key.transpose(2, 3))
    to_own = to_own.masked_fill(~visible[:, None, None], torch.finfo(to_own.dtype).min)
    weights = torch.cat([to_shared, to_own], dim=-1).float().softmax(-1).to(query.dtype)
    on_shared, on_own = weights.split([shared, key.size(2)], dim=-1)
    out = by_token(on_shared.permute(1, 2, 0, 3).reshape(heads, groups * t, shared) @ shared_values)
    return (out + times_own(on_own, value)).reshape(1, t, heads * groups, size), None


AttentionInterface.register(ATTENTION, branch_attention)


class CachedModel:
    """Computes prompts with one model, at most batch_tokens tokens of them together, each prompt
    once.
    """

    def __init__(self, lm: LanguageModel, batch_tokens: int = process.USUAL["batch_tokens"]):
        self.lm: Any = lm  # None once closed
        self.batch_tokens = batch_tokens

    def ids(self, prompts: Iterable[Messages], more: int) -> Ids:
        """Token ids. Raises BadInput if a prompt and `more` tokens exceed the model's context or
        sliding window.
        """
        ids = prompts_ids(self.lm.tokenizer, prompts, self.lm.template_kwargs)
        check_window(self.lm.model.config, max(map(len, ids), default=0) + more, REMEDY)
        known = self.lm.model.get_input_embeddings().num_embeddings
        token = max(map(max, ids), default=0)
        if token >= known:
            text = self.lm.tokenizer.decode([token])
            named = f"{text!r} is token {token} of the tokenizer"
            raise BadInput(
                f"{named}, and the model has {known} embeddings; give it its own tokenizer"
            )
        return ids

    def compute(
        self,
        ids: Ids,
        more: int,
        of_batch: Callable[[list[int], KVCache], Iterable],
        split_batch: Callable[[list[int]], Batches] = lambda batch: [batch],
    ) -> list[Any]:
        """For each prompt its result. more: tokens that will follow each. of_batch: (indices of the
        prompts in a batch, their cache) -> a result for each. split_batch: cuts a batch into smaller
        ones.
        """
        results: dict[int, Any] = {}
        for padded in padded_batches(ids, self.batch_tokens, more):
            for batch in split_batch(padded):
                cache = KVCache(self.lm.model, [ids[i] for i in batch])
                results |= zip(batch, of_batch(batch, cache), strict=True)
        return [results[i] for i in range(len(ids))]

    def close(self) -> None:
        self.lm = None


def check_fits(settings: Mapping[str, Any], prompts: Iterable[Messages], max_tokens: int) -> None:
    """Raises BadInput, before weights are loaded, if a prompt and max_tokens exceed the context or
    the sliding window of a model.
    """
    longest = max(prompt_lengths(settings, prompts), default=0)
    check_window(config_of(settings["source"]), longest + max_tokens, REMEDY)
