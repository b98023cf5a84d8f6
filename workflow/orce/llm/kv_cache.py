"""A batch of prompts in the key-value cache, computed once, and trees of tokens that grow from them.

The beginning that all prompts share is computed and kept once for the whole batch. What grows is packed: a call
computes exactly the tokens it is given, however unevenly they fall on the prompts, and only attention scores are
padded. Each new token is one more cache column, which a mask shows to its own descendants alone, so that no cache is
copied when a continuation forks.
"""

import contextlib

import torch
from transformers import AttentionInterface, DynamicCache

from orce.llm.trie import additive, common_prefix
from orce.runtime.files import BadInput

ATTENTION = "orce_tree"
UNKNOWN = ("softcap", "s_aux", "position_bias")  # what some families add to the scores, and this attention does not
ELSEWHERE = (
    "which the engine transformers does not know; set engine.name and evaluation.engine to vllm, or take another model"
)


class Prefilled:
    """A batch of B prompts in the cache, and the columns that grew from them. Inference only.

    `logits` [B, V] predict each prompt's next token; `grown` is the number of columns behind the prompts.
    """

    def __init__(self, model, prompts: list[list[int]]):
        if not model._supports_attention_backend:
            raise BadInput(f"{type(model).__name__} has an attention of its own, {ELSEWHERE}")
        self.model, self.device = model, next(model.parameters()).device
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        self.grown = 0
        shared = common_prefix(prompts) if len(prompts) > 1 else 0
        cache = DynamicCache(config=model.config)
        if shared:
            self._run([prompts[0][:shared]], torch.arange(shared).unsqueeze(0), cache, 1)
            cache.batch_repeat_interleave(len(prompts))
        self.logits = self._prefill_rest(prompts, shared, cache)
        self.cache = TreeCache(cache, shared)

    def _prefill_rest(self, prompts, shared, cache):
        width = int(self.lengths.max()) - shared
        ids, positions = torch.zeros(2, len(prompts), width, dtype=torch.long)
        real = torch.zeros(len(prompts), width, dtype=torch.bool)
        for b, prompt in enumerate(prompts):
            own = len(prompt) - shared
            ids[b, width - own :] = torch.tensor(prompt[shared:])
            positions[b, width - own :] = torch.arange(shared, len(prompt))
            real[b, width - own :] = True
        self.real = real.to(self.device)
        seen = real.unsqueeze(1) & torch.ones(width, width, dtype=torch.bool).tril()
        seen |= torch.eye(width, dtype=torch.bool)  # a padded query sees itself: of nothing a softmax would be nan
        before = torch.ones(len(prompts), width, shared, dtype=torch.bool)
        mask = additive(torch.cat([before, seen], dim=2).unsqueeze(1).to(self.device), self.model.dtype)
        return self._run(ids, positions, cache, 1, attention_mask=mask)[:, 0]

    @torch.inference_mode()
    def _run(self, ids, positions, cache, keep, **more):
        return self.model(
            input_ids=torch.as_tensor(ids, device=self.device),
            position_ids=positions.to(self.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
            **more,
        ).logits.float()

    def extend(self, rows: torch.Tensor, tokens: torch.Tensor, depth: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Append T tokens and return what follows each: logits [T, V].

        rows, tokens, depth: int64 [T]: the prompt behind which a token stands, ascending; the token; its distance from
        the prompt's last token. seen: bool [T, grown + R], R being the most tokens of a row: the grown columns that
        each new token attends to, itself included, which is column grown + i for the i-th of its row. The prompt is
        always seen.
        """
        place = Place(rows.to(self.device), len(self.lengths))
        visible = torch.cat([self.real[place.row], seen.to(self.device)], dim=1)
        positions = self.lengths[place.row] - 1 + depth.to(self.device)
        self.cache.place = place
        with _attention(self.model, ATTENTION):
            logits = self._run(
                tokens.unsqueeze(0), positions.unsqueeze(0), self.cache, len(tokens), tree=(self.cache, visible)
            )
        self.grown += place.width
        return logits[0]

    def extend_branches(self, branches: list[list[tuple[int, int, list[int]]]]) -> list[torch.Tensor]:
        """Append one token to each branch of every prompt; what follows it: for every prompt logits [its branches, V].

        A branch is (token, depth, columns): as in `extend`, and the grown columns that it stands behind. The i-th of a
        prompt becomes column grown + i.
        """
        flat = [(row, i, *branch) for row, mine in enumerate(branches) for i, branch in enumerate(mine)]
        seen = torch.zeros(len(flat), self.grown + max(map(len, branches)), dtype=torch.bool)
        for t, (_, i, _, _, columns) in enumerate(flat):
            seen[t, [*columns, self.grown + i]] = True
        rows, _, tokens, depth = torch.tensor([one[:4] for one in flat]).unbind(1)
        return list(self.extend(rows, tokens, depth, seen).split([len(mine) for mine in branches]))

    def drop_grown(self) -> None:
        """Forget all columns behind the prompts."""
        self.cache.crop(self.grown)
        self.grown = 0

    def keep(self, rows: list[int]) -> None:
        """Go on with some of the prompts only."""
        index = torch.tensor(rows, device=self.device)
        self.cache.select(index)
        self.lengths, self.real, self.logits = self.lengths[index], self.real[index], self.logits[index]


class Place:
    """Where T packed tokens belong in a padded block of B rows: token t in row[t], there the slot[t]-th of `width`."""

    def __init__(self, row: torch.Tensor, rows: int):
        count = torch.bincount(row, minlength=rows)
        self.row, self.rows, self.width = row, rows, int(count.max())
        self.slot = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]

    def pad(self, packed: torch.Tensor) -> torch.Tensor:
        """[T, H, ...] -> [B, H, width, ...], zeros where no token is."""
        padded = packed.new_zeros(self.rows, packed.size(1), self.width, *packed.shape[2:])
        padded[self.row, :, self.slot] = packed
        return padded

    def unpad(self, padded: torch.Tensor) -> torch.Tensor:
        """[B, H, width, ...] -> [T, H, ...]."""
        return padded[self.row, :, self.slot]


class TreeCache:
    """Keys and values by layer: of the shared beginning [H, S, D], and of every prompt's own columns [B, H, C, D].

    Takes the place of a transformers cache in a model's forward; `place` says where the next tokens belong.
    """

    def __init__(self, cache: DynamicCache, shared: int):
        self.place: Place | None = None
        pairs = [(layer.keys, layer.values) for layer in cache.layers]
        self.shared = [tuple(part[0, :, :shared].contiguous() for part in pair) for pair in pairs]
        self.own = [tuple(part[:, :, shared:].contiguous() for part in pair) for pair in pairs]

    def update(self, keys, values, layer: int, *_, **__) -> tuple[torch.Tensor, torch.Tensor]:
        """Store what the packed tokens [1, H, T, D] add; all of the layer's own columns, as transformers wants."""
        new = (self.place.pad(part[0].transpose(0, 1)) for part in (keys, values))
        self.own[layer] = tuple(torch.cat(both, dim=2) for both in zip(self.own[layer], new, strict=True))
        return self.own[layer]

    def crop(self, columns: int) -> None:
        """Forget the last columns."""
        self.own = [tuple(part[:, :, : part.size(2) - columns] for part in pair) for pair in self.own]

    def select(self, index: torch.Tensor) -> None:
        """Keep some of the rows."""
        self.own = [tuple(part[index] for part in pair) for pair in self.own]


def tree_attention(module, query, key, value, attention_mask, scaling=None, tree=None, sliding_window=None, **more):
    """Attention of T packed tokens, query [1, Hq, T, D], to the shared beginning and to their own row's columns.

    A transformers attention function. key, value: [B, H, C, D] as TreeCache.update returns them; tree: (the cache,
    bool [T, C], the columns that each token sees). Grouped queries share their key, so no key is copied.
    """
    cache, visible = tree
    shared_keys, shared_values = cache.shared[module.layer_idx]
    _known(module, more, sliding_window, shared_keys.size(1) + key.size(2))
    place, (heads, shared, size) = cache.place, shared_keys.shape
    groups, t = query.size(1) // heads, query.size(2)
    q = query[0].view(heads, groups, t, size) * (size**-0.5 if scaling is None else scaling)

    def by_token(x):  # [heads, groups * T, N] -> [T, heads, groups, N]
        return x.view(heads, groups, t, -1).permute(2, 0, 1, 3)

    def own(x, keys):  # [T, heads, groups, N] times [B, heads, N, M] -> [T, heads, groups, M]
        padded = place.pad(x)
        out = padded.flatten(2, 3) @ keys
        return place.unpad(out.view(*padded.shape[:4], -1))

    to_shared = by_token(q.flatten(1, 2) @ shared_keys.transpose(1, 2))
    to_own = own(q.permute(2, 0, 1, 3), key.transpose(2, 3))
    to_own = to_own.masked_fill(~visible[:, None, None], torch.finfo(to_own.dtype).min)
    weights = torch.cat([to_shared, to_own], dim=-1).float().softmax(-1).to(query.dtype)
    on_shared, on_own = weights.split([shared, key.size(2)], dim=-1)
    out = by_token(on_shared.permute(1, 2, 0, 3).reshape(heads, groups * t, shared) @ shared_values)
    return (out + own(on_own, value)).reshape(1, t, heads * groups, size), None


AttentionInterface.register(ATTENTION, tree_attention)


def _known(module, more: dict, window: int | None, length: int) -> None:
    added = [name for name in UNKNOWN if more.get(name) is not None]
    if window is not None and length > window:
        added.append(f"sliding_window of {window} below the {length} tokens at hand")
    if added:
        raise BadInput(f"{type(module).__name__} has {', '.join(added)}, {ELSEWHERE}")


@contextlib.contextmanager
def _attention(model, name: str):
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before
