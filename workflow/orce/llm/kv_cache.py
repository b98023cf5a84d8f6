"""The KV cache of a batch of prompts, and the branches that continue them.

The prefix that all prompts share is computed and stored once for the whole batch. Branches are packed: a call computes
exactly the tokens that it is given, however unevenly they are spread over the prompts, and only attention scores are
padded. Each new token is one more cache column, which a mask shows to its own descendants alone, so that no cache is
copied when a branch forks.
"""

import contextlib
from typing import Any

import torch

from orce.errors import BadInput
from orce.llm.attention import check_window
from orce.llm.trie import additive_mask, common_prefix
from orce.runtime import process

with process.without_unused():
    from transformers import AttentionInterface, DynamicCache

ATTENTION = "orce_branches"
UNSUPPORTED = ("softcap", "s_aux", "position_bias")  # attention features of some families that this kernel lacks
REMEDY = "the engine transformers lacks this; set engine.name to vllm for answers, or take another model"


class KVCache:
    """The cache of a batch of B prompts and of the columns appended to them. Inference only.

    logits: [B, V], predict each prompt's next token. appended: the number of columns after the prompts.
    """

    def __init__(self, model, prompts: list[list[int]]):
        """Compute the prompts (token ids). Raises BadInput if the model's attention is not supported."""
        if not model._supports_attention_backend:
            raise BadInput(f"{type(model).__name__} has its own implementation of attention; {REMEDY}")
        self.longest = max(map(len, prompts))
        check_window(model.config, self.longest, REMEDY)
        self.model, self.device = model, next(model.parameters()).device
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        self.appended = 0
        shared = common_prefix(prompts) if len(prompts) > 1 else 0
        cache = DynamicCache()
        if shared:
            self._forward([prompts[0][:shared]], torch.arange(shared).unsqueeze(0), cache, 1)
            cache.batch_repeat_interleave(len(prompts))
        self.logits = self._prefill(prompts, shared, cache)
        self.cache = BranchCache(cache, shared)

    def _prefill(self, prompts, shared, cache) -> torch.Tensor:
        """Compute what follows the shared prefix, padded on the left: logits [B, V] of the next token."""
        width = self.longest - shared
        ids, positions = torch.zeros(2, len(prompts), width, dtype=torch.long)
        real = torch.zeros(len(prompts), width, dtype=torch.bool)
        for b, prompt in enumerate(prompts):
            own = len(prompt) - shared
            ids[b, width - own :] = torch.tensor(prompt[shared:])
            positions[b, width - own :] = torch.arange(shared, len(prompt))
            real[b, width - own :] = True
        self.real = real.to(self.device)
        visible = real.unsqueeze(1) & torch.ones(width, width, dtype=torch.bool).tril()
        visible |= torch.eye(width, dtype=torch.bool)  # padding attends to itself: a softmax over nothing would be nan
        prefix = torch.ones(len(prompts), width, shared, dtype=torch.bool)
        mask = additive_mask(torch.cat([prefix, visible], dim=2).unsqueeze(1).to(self.device), self.model.dtype)
        # A tensor, not an int: a slice would make the LM head reread its weights for every row.
        last = torch.tensor([width - 1])
        return self._forward(ids, positions, cache, last, attention_mask=mask)[:, 0]

    @torch.inference_mode()
    def _forward(self, ids, positions, cache, keep, **more) -> torch.Tensor:
        return self.model(
            input_ids=torch.as_tensor(ids, device=self.device),
            position_ids=positions.to(self.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
            **more,
        ).logits.float()

    def extend(self, counts: list[int], tokens: list[int], depth: list[int], visible: torch.Tensor) -> torch.Tensor:
        """Append T tokens and return the logits of what follows each: [T, V].

        counts: for each prompt how many of the tokens continue it, the first prompt's first. depth: distance of each
        token from its prompt's last, from 1. visible: bool [T, appended + R], where R is the most new tokens of any
        prompt: which appended columns each token attends to, including itself, which is column appended + i for the
        i-th new token of its prompt. Prompts are always visible.
        """
        check_window(self.model.config, self.longest + max(depth), REMEDY)
        layout = PaddedLayout(counts, self.device)
        mask = torch.cat([self.real[layout.row], visible.to(self.device)], dim=1)
        positions = self.lengths[layout.row] - 1 + torch.tensor(depth, device=self.device)
        self.cache.layout = layout
        with _attention(self.model, ATTENTION):
            logits = self._forward(
                [tokens], positions.unsqueeze(0), self.cache, len(tokens), branches=(self.cache, mask)
            )
        self.appended += layout.width
        return logits[0]

    def extend_branches(self, branches: list[list[tuple[int, int, list[int]]]]) -> torch.Tensor:
        """Append one token to each branch of every prompt: logits [R, V] of what follows, the first prompt's rows first.

        A branch is (token, depth, columns): token and depth as in `extend`, and the appended columns of its earlier
        tokens. The new token of a prompt's i-th branch becomes column appended + i.
        """
        flat = [(row, i, *branch) for row, mine in enumerate(branches) for i, branch in enumerate(mine)]
        visible = torch.zeros(len(flat), self.appended + max(map(len, branches)), dtype=torch.bool)
        for t, (_, i, _, _, columns) in enumerate(flat):
            visible[t, [*columns, self.appended + i]] = True
        counts = [len(mine) for mine in branches]
        return self.extend(counts, [one[2] for one in flat], [one[3] for one in flat], visible)

    def drop_appended(self) -> None:
        """Remove all columns after the prompts."""
        self.cache.crop(self.appended)
        self.appended = 0

    def keep_rows(self, rows: list[int]) -> None:
        """Keep some of the prompts only."""
        index = torch.tensor(rows, device=self.device)
        self.cache.select(index)
        self.lengths, self.real, self.logits = self.lengths[index], self.real[index], self.logits[index]


class PaddedLayout:
    """Where T packed tokens belong in a padded block of B rows: token t is the slot[t]-th of `width` in row[t].

    The layers of a model may be on several devices: tensors are padded where they are.

    counts: for each row how many of the tokens are its own, the first row's first.
    """

    def __init__(self, counts: list[int], device: torch.device):
        self.rows, self.width = len(counts), max(counts)
        self.row = torch.tensor([row for row, count in enumerate(counts) for _ in range(count)], device=device)
        self.slot = torch.tensor([slot for count in counts for slot in range(count)], device=device)

    def pad(self, packed: torch.Tensor) -> torch.Tensor:
        """[T, H, ...] -> [B, H, width, ...], zeros where there is no token."""
        padded = packed.new_zeros(self.rows, packed.size(1), self.width, *packed.shape[2:])
        padded[self.row.to(packed.device), :, self.slot.to(packed.device)] = packed
        return padded

    def unpad(self, padded: torch.Tensor) -> torch.Tensor:
        """[B, H, width, ...] -> [T, H, ...]."""
        return padded[self.row.to(padded.device), :, self.slot.to(padded.device)]


class BranchCache:
    """Keys and values of each layer: of the shared prefix [H, S, D], and of each prompt's own columns [B, H, C, D].

    Takes the place of a transformers cache in a model's forward. layout: where the next packed tokens belong.
    """

    def __init__(self, cache: DynamicCache, shared: int):
        self.layout: PaddedLayout
        layers: list[Any] = cache.layers
        pairs = [(layer.keys, layer.values) for layer in layers]
        self.shared = [tuple(part[0, :, :shared].contiguous() for part in pair) for pair in pairs]
        self.own = [tuple(part[:, :, shared:].contiguous() for part in pair) for pair in pairs]

    def update(self, keys, values, layer: int, *_, **__) -> tuple[torch.Tensor, ...]:
        """Store the keys and values [1, H, T, D] of the packed tokens; return all of the layer's own columns."""
        new = (self.layout.pad(part[0].transpose(0, 1)) for part in (keys, values))
        self.own[layer] = tuple(torch.cat(both, dim=2) for both in zip(self.own[layer], new, strict=True))
        return self.own[layer]

    def crop(self, columns: int) -> None:
        """Remove the last columns."""
        self.own = [tuple(part[:, :, : part.size(2) - columns] for part in pair) for pair in self.own]

    def select(self, index: torch.Tensor) -> None:
        """Keep some of the rows."""
        self.own = [tuple(part[index.to(part.device)] for part in pair) for pair in self.own]


def branch_attention(module, query, key, value, attention_mask, scaling=None, branches=None, **features):
    """Attention of T packed tokens, query [1, Hq, T, D], to the shared prefix and to their own prompt's columns.

    A transformers attention function. key, value: [B, H, C, D] as BranchCache.update returns them; branches: (the
    cache, bool [T, C], the columns that each token sees). Query heads that share a key head are grouped, so that no
    key is copied. A sliding window is left out: KVCache refuses whatever exceeds it.
    """
    _check_features(module, features)
    assert branches is not None  # every call comes from KVCache.extend
    cache, visible = branches
    shared_keys, shared_values = cache.shared[module.layer_idx]
    layout, (heads, shared, size) = cache.layout, shared_keys.shape
    groups, t = query.size(1) // heads, query.size(2)
    q = query[0].view(heads, groups, t, size) * (size**-0.5 if scaling is None else scaling)

    def by_token(x):  # [heads, groups * T, N] -> [T, heads, groups, N]
        return x.view(heads, groups, t, -1).permute(2, 0, 1, 3)

    def times_own(x, keys):  # [T, heads, groups, N] times [B, heads, N, M] -> [T, heads, groups, M]
        padded = layout.pad(x)
        out = padded.flatten(2, 3) @ keys
        return layout.unpad(out.view(*padded.shape[:4], -1))

    to_shared = by_token(q.flatten(1, 2) @ shared_keys.transpose(1, 2))
    to_own = times_own(q.permute(2, 0, 1, 3), key.transpose(2, 3))
    to_own = to_own.masked_fill(~visible[:, None, None], torch.finfo(to_own.dtype).min)
    weights = torch.cat([to_shared, to_own], dim=-1).float().softmax(-1).to(query.dtype)
    on_shared, on_own = weights.split([shared, key.size(2)], dim=-1)
    out = by_token(on_shared.permute(1, 2, 0, 3).reshape(heads, groups * t, shared) @ shared_values)
    return (out + times_own(on_own, value)).reshape(1, t, heads * groups, size), None


AttentionInterface.register(ATTENTION, branch_attention)


def _check_features(module, features: dict) -> None:
    found = [name for name in UNSUPPORTED if features.get(name) is not None]
    if found:
        raise BadInput(f"{type(module).__name__} has {', '.join(found)}; {REMEDY}")


@contextlib.contextmanager
def _attention(model, name: str):
    """Use another attention function inside the block."""
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before
