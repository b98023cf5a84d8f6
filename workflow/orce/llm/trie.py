"""Token tries: several continuations of one prompt, scored in one forward pass; and which prompts
are computed together.

A confidence LLM is only ever asked for a few short continuations of a long prompt: two for DPO, 101
for the distribution over confidences and for the tokenized Brier score. The prompt is computed once
for all of them, a prefix that some share once for these, and so are what all prompts of a batch
share and the passage that several questions are about.

A packed row of L columns with a dense mask costs L^2 scores, nearly all of them masked. Here its
blocks become the rows of a padded batch [G, W], with the shared prefix in front of each block's
keys: G W (S + W) scores in one call of scaled_dot_product_attention, and a causal call for the
prefix. The other parts of a layer still run on the packed row.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os.path import commonprefix
from typing import Any, Self, TypeVar

import torch
from torch.nn.functional import scaled_dot_product_attention

from orce.errors import BadInput
from orce.runtime import process

with process.hide_unused_packages():
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

BLOCKS = "orce_blocks"  # the name of our attention function
OWN_ATTENTION = "has its own implementation of attention"
# The kinds of layer with a window, and the key of a config that holds its size. Packed rows and the
# KV cache compute whole attention, which is exact as long as everything fits a sliding window.
WINDOWED = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
FAMILY = 32  # tokens that prompts have to share before they are laid out as a family
# A padded batch's longest prompt may be SPREAD times as long as its shortest plus SLACK tokens,
# which cost little.
SPREAD = 1.5
SLACK = 32
QUESTIONS = 4  # prompts about one passage from which on they are a padded batch of their own

Ids = list[list[int]]  # token ids, such as those of several prompts
Batches = list[list[int]]  # indices of the prompts in each
Families = list[tuple[list[int], int]]  # (indices, length of their common prefix)
T = TypeVar("T")


@dataclass
class TokenTrie:
    """Continuations of a prompt, shared prefixes stored once. Nodes are numbered so that parents
    come first.
    """

    tokens: list[int]  # of each of the N nodes
    parents: list[int]  # of each node; -1 for the end of the prompt
    paths: list[list[int]]  # for each of the K continuations, its node indices in token order

    @classmethod
    def of(cls, continuations: Ids) -> Self:
        children: dict[tuple[int, int], int] = {}  # {(parent, token): node}, in the nodes' order
        paths = []
        for continuation in continuations:
            node = -1
            path = []
            for token in continuation:
                node = children.setdefault((node, token), len(children))
                path.append(node)
            paths.append(path)
        tokens = [token for _, token in children]
        parents = [parent for parent, _ in children]
        return cls(tokens, parents, paths)

    @cached_property
    def inner(self) -> list[int]:
        """The nodes with children. Only their hidden states are needed, so only they are fed to the
        model.
        """
        return sorted(set(self.parents) - {-1})

    @cached_property
    def ancestors(self) -> list[list[int]]:
        """For each node the indices in `inner` of its ancestors, the first token's first."""
        index = {node: i for i, node in enumerate(self.inner)}
        ancestors: list[list[int]] = []
        for parent in self.parents:
            ancestors.append([] if parent == -1 else [*ancestors[parent], index[parent]])
        return ancestors

    def branch(self, node: int) -> tuple[int, list[int]]:
        """A node as orce.llm.kv_cache takes new tokens: (token, indices of its ancestors)."""
        return self.tokens[node], self.ancestors[node]

    @cached_property
    def branches(self) -> list[tuple[int, list[int]]]:
        """The inner nodes as new tokens."""
        return [self.branch(node) for node in self.inner]

    def children(self, node: int) -> list[int]:
        """The nodes that continue `node`; -1 is the end of the prompt."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    @cached_property
    def logit_rows(self) -> list[int]:
        """For each node the row of logits that predicts it: 0 for the prompt's end, i + 1 for the
        i-th inner node.
        """
        return [above[-1] + 1 if above else 0 for above in self.ancestors]


Packed = dict[str, Any]  # a row of `pack`, which may hold further keys of a batch


def pack(prompts: Ids, tries: list[TokenTrie]) -> Packed:
    """A batch of B prompts (token ids), each with a trie of K continuations, as one row of L
    columns (tokens) without padding.

    The prefix of S tokens that all prompts share comes first and once. Then come G blocks, which do
    not see each other. A block is a family of prompts (see `families`): the stem that they share
    beyond the prefix, once, and for each prompt the rest of it and the inner nodes of its trie.
    Families are found among neighbours only, so the prompts should be sorted (`packed_batches`).

    input_ids, position_ids: int64 [1, L]
    visible: bool [G, W, S + W], W columns in the widest block: which columns of the prefix and of
        its own block each column of a block attends to. The columns of the prefix attend to those
        before them.
    gather: int64 [G W], the column at each position of the padded batch of blocks
    position: int64 [L - S], where in that batch each column after the prefix is
    columns: for each prompt the columns of its tokens and inner nodes, int64 [tokens + inner nodes]
    shape: (B, K)

    and what `_nodes_of` adds.
    """
    shared = common_prefix(prompts)
    ids = prompts[0][:shared]
    positions = [*range(shared)]
    columns: list[list[int]] = []
    blocks: list[torch.Tensor] = []
    for members, depth in families(prompts, shared):
        stem = range(len(ids), len(ids) + depth - shared)
        ids += prompts[members[0]][shared:depth]
        positions += range(shared, depth)
        masks = []
        for b in members:
            first = len(ids)
            length = len(prompts[b])
            ids += prompts[b][depth:]
            positions += range(depth, length)
            for token, above in tries[b].branches:
                ids.append(token)
                positions.append(length + len(above))
            columns.append([*range(shared), *stem, *range(first, len(ids))])
            masks.append(_member_mask(length - depth, tries[b]))
        blocks.append(_block_mask(len(stem), masks))
    bounds = torch.tensor([shared, *map(len, blocks)]).cumsum(0)  # of the blocks in the row
    place = torch.arange(max(map(len, blocks))).expand(len(blocks), -1)
    return _nodes_of(tries, columns) | {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([positions]),
        "visible": _padded_masks(blocks, shared),
        # padding repeats the last column of its block
        "gather": torch.minimum(bounds[:-1, None] + place, bounds[1:, None] - 1).flatten(),
        "position": (place < bounds.diff()[:, None]).flatten().nonzero()[:, 0],
        "columns": [torch.tensor(own) for own in columns],
        "shape": (len(prompts), len(tries[0].paths)),
    }


def _nodes_of(tries: list[TokenTrie], columns: list[list[int]]) -> Packed:
    """Where a packed row predicts the tokens of its tries; columns: for each prompt.

    logit_columns: int64 [N'], the columns whose next-token logits are needed
    logit_row, token: int64 [N], for each trie node the entry of `logit_columns` that predicts it,
        and its token
    path, node: int64 [E], one entry for each "continuation `path` contains node `node`"
    """
    logit_columns: list[int] = []
    logit_rows: list[int] = []
    tokens: list[int] = []
    paths: list[int] = []
    nodes: list[int] = []
    path = 0
    for trie, own in zip(tries, columns, strict=True):
        for path_nodes in trie.paths:
            paths += [path] * len(path_nodes)
            nodes += [len(tokens) + node for node in path_nodes]
            path += 1
        logit_rows += [len(logit_columns) + row for row in trie.logit_rows]
        # the prompt's last column predicts the first tokens, and each inner node what follows it
        logit_columns += own[-1 - len(trie.inner) :]
        tokens += trie.tokens
    return {
        "logit_columns": torch.tensor(logit_columns),
        "logit_row": torch.tensor(logit_rows),
        "token": torch.tensor(tokens),
        "path": torch.tensor(paths),
        "node": torch.tensor(nodes),
    }


def _member_mask(rest: int, trie: TokenTrie) -> torch.Tensor:
    """Which columns of a prompt in a block see which, bool [C, C]: its `rest` tokens after the stem
    see those before them; an inner node sees these tokens, its ancestors and itself.
    """
    width = rest + len(trie.inner)
    mask = torch.ones(width, width, dtype=torch.bool).tril()
    inner = mask[rest:, rest:].zero_()
    for i, (_, above) in enumerate(trie.branches):
        inner[i, [*above, i]] = True
    return mask


def _block_mask(stem: int, members: list[torch.Tensor]) -> torch.Tensor:
    """Which columns of a block see which, bool [W, W]: the members of the family see the stem, and
    not each other.
    """
    block = torch.block_diag(torch.ones(stem, stem, dtype=torch.bool).tril(), *members)
    block[stem:, :stem] = True
    return block


def _padded_masks(blocks: list[torch.Tensor], shared: int) -> torch.Tensor:
    """`visible` of `pack`: all blocks see the prefix, and padding sees itself, as a softmax over
    nothing would be nan.
    """
    widest = max(map(len, blocks))
    visible = torch.ones(len(blocks), widest, shared + widest, dtype=torch.bool)
    visible[:, :, shared:] = torch.eye(widest, dtype=torch.bool)
    for rows, block in zip(visible, blocks, strict=True):
        rows[: len(block), shared : shared + len(block)] = block
    return visible


def additive_mask(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask as one that is added to attention scores: 0 where visible, the lowest finite
    value elsewhere.
    """
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)


def node_logprobs(model, packed: Packed) -> torch.Tensor:
    """Log-probability of every node's token given the prompt and the node's ancestors: [N].
    Differentiable.

    The LM head is applied at `logit_columns` only. The call goes through the model's own forward,
    so that wrappers for several devices take part in it.
    """
    parameter = next(model.parameters())
    device = parameter.device
    dtype = parameter.dtype
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
    # the model may be in a wrapper for several processes
    check_attention(getattr(model, "module", model))
    logits = model(
        input_ids=packed["input_ids"].to(device),
        position_ids=packed["position_ids"].to(device),
        attention_mask=additive_mask(packed["visible"][:, None].to(device), dtype),
        use_cache=False,
        logits_to_keep=packed["logit_columns"].to(device),
        blocks=(packed["gather"].to(device), packed["position"].to(device)),
    ).logits.float()
    row = packed["logit_row"].to(device)[None]
    token = packed["token"].to(device)[None]
    return token_logprobs(logits, row, token)[0]


def token_logprobs(logits: torch.Tensor, row: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """log softmax(logits)[b, row, token], without storing the softmax: [B, S, V], [B, N], [B, N] ->
    [B, N].
    """
    norm = logits.logsumexp(-1).gather(1, row)
    batch = torch.arange(logits.size(0), device=logits.device).unsqueeze(1)
    return logits[batch, row, token] - norm


def path_logprobs(nodes: torch.Tensor, packed: Packed) -> torch.Tensor:
    """Log-probability of each continuation, the sum over the nodes of its path: [N] -> [B, K]."""
    prompts, k = packed["shape"]
    path = packed["path"].to(nodes.device)
    node = packed["node"].to(nodes.device)
    return nodes.new_zeros(prompts * k).index_add(0, path, nodes[node]).view(prompts, k)


# Attention of a packed row, block by block: each block's columns see the shared prefix and their
# own block only


def use_blocks(model) -> None:
    """Let a model that runs on scaled_dot_product_attention compute packed rows by blocks; other
    calls are as before.
    """
    if model.config._attn_implementation == "sdpa" and model._supports_attention_backend:
        model.config._attn_implementation = BLOCKS


def has_own_attention(model) -> bool:
    """Whether a model computes its attention where `use_blocks` cannot reach it."""
    return model.config._attn_implementation != BLOCKS


def check_attention(model) -> None:
    """Raises BadInput for a model whose attention is its own: packed rows would be computed as one
    text.
    """
    if has_own_attention(model):
        name = model.config.name_or_path or model.config.model_type
        remedy = "set training.trainer: trl for SFT and DPO, and train no other method; or take another model"
        raise BadInput(f"{name}: {OWN_ATTENTION}; {remedy}")


def block_attention(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, blocks=None, **features
):
    """A transformers attention function. query [1, Hq, L, D], key and value [1, H, L, D] of a
    packed row.

    attention_mask: [G, 1, W, S + W], added to the scores. blocks: (gather, position) of `pack`.
    Without blocks it is transformers' own function. Sliding windows are left out: check_window
    refuses whatever exceeds one.
    """
    if blocks is None:
        features |= {"dropout": dropout, "scaling": scaling}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **features)
    gather, position = blocks
    count, _, width, seen = attention_mask.shape
    shared = seen - width
    groups = query.size(1) // key.size(1)
    key = repeat_kv(key, groups)
    value = repeat_kv(value, groups)
    options: dict[str, Any] = {"dropout_p": dropout if module.training else 0.0, "scale": scaling}

    def padded(x):  # [1, H, L, D] -> [G, H, W, D]
        return x[0].index_select(1, gather).unflatten(1, (count, width)).transpose(0, 1)

    def seen_by_blocks(x):  # [1, H, L, D] -> [G, H, S + W, D]
        return torch.cat([x[:, :, :shared].expand(count, -1, -1, -1), padded(x)], dim=2)

    own = scaled_dot_product_attention(
        padded(query),
        seen_by_blocks(key),
        seen_by_blocks(value),
        attn_mask=attention_mask,
        **options,
    )
    out = own.transpose(1, 2).flatten(0, 1).index_select(0, position)
    if shared:
        prefix = scaled_dot_product_attention(
            query[:, :, :shared],
            key[:, :, :shared],
            value[:, :, :shared],
            is_causal=True,
            **options,
        )
        out = torch.cat([prefix[0].transpose(0, 1), out])
    return out.unsqueeze(0), None


AttentionInterface.register(BLOCKS, block_attention)
AttentionMaskInterface.register(BLOCKS, sdpa_mask)
# With a mask cuDNN's attention is slow for each new shape, and its gradient can be NaN (pytorch
# issue 196678).
torch.backends.cuda.enable_cudnn_sdp(False)


def sliding_window(config) -> int | None:
    """The smallest window of any layer of a model, in tokens; None if all layers attend to the
    whole sequence.
    """
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"]
    windows = (getattr(config, key, None) for kind, key in WINDOWED.items() if kind in kinds)
    return min(filter(None, windows), default=None)


def check_window(config, length: int, remedy: str) -> None:
    """Raises BadInput if a sequence of `length` tokens is longer than the model's context, or its
    window. remedy: what to do where the window alone is too short.
    """
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    window = sliding_window(config)
    if context is not None and length > context:
        limit = f"its context is {context} tokens"
        remedy = "leave out the longest, or take a model with a longer context"
    elif window is not None and length > window:
        limit = f"its layers attend to a sliding window of {window} tokens"
    else:
        return
    name = getattr(config, "name_or_path", "") or config.model_type
    raise BadInput(f"{name}: {limit}, and prompt and completion take {length}; {remedy}")


# Which prompts are computed together: batches cut by their tokens, so that memory does not depend
# on the lengths. Those that begin alike are sorted together, and what they share is computed once.
# No result depends on the batches but for rounding.


def families(prompts: Ids, shared: int) -> Families:
    """Neighbours that begin alike, as questions about one passage do: (indices, length of their
    common prefix).

    The common prefix beyond the first `shared` tokens has at least FAMILY tokens, and half of the
    shorter neighbour's. A prompt without such a neighbour is a family of its own, with the prefix
    `shared`.
    """
    if not prompts:
        return []
    groups = [([0], shared)]
    for i, (before, prompt) in enumerate(itertools.pairwise(prompts), 1):
        alike = common_prefix([before, prompt])
        shorter = min(len(before), len(prompt))
        if alike - shared < max(FAMILY, (shorter - shared) / 2):
            groups.append(([i], shared))
            continue
        members, depth = groups[-1]
        members.append(i)
        groups[-1] = (members, alike if len(members) == 2 else min(depth, alike))
    return groups


def common_prefix(sequences: Ids) -> int:
    """Length of the prefix that sequences share, at most one less than the length of the shortest;
    0 for a single one.
    """
    if len(sequences) < 2:
        return 0
    return min(len(commonprefix(sequences)), min(map(len, sequences)) - 1)


def sorted_families(prompts: Ids) -> tuple[int, Families]:
    """The length of the prefix that all prompts share, and the families of the sorted prompts; most
    are alone.
    """
    shared = common_prefix(prompts)
    order = sorted(range(len(prompts)), key=lambda i: (prompts[i], i))
    groups = families([prompts[i] for i in order], shared)
    return shared, [([order[i] for i in members], depth) for members, depth in groups]


def padded_batches(prompts: Ids, budget: int, more: int = 0) -> Batches:
    """Indices of the prompts in batches of at most `budget` tokens, each padded to its longest
    prompt.

    The prefix that all prompts of a batch share counts once. more: tokens that will follow each
    prompt. A prompt that exceeds the budget is a batch by itself.
    """
    shared, grouped = sorted_families(prompts)
    passages: Families = []
    rest: list[int] = []
    for members, depth in grouped:
        if len(members) >= QUESTIONS:
            passages.append((members, depth))
        else:
            rest += members
    rest.sort()
    batches: Batches = []
    for members, depth in [*passages, (rest, shared)]:
        widest = -1.0  # tokens after the common prefix that fit the latest batch: at first none
        for i in sorted(members, key=lambda i: len(prompts[i])):
            own = len(prompts[i]) - depth
            if own > widest or depth + (len(batches[-1]) + 1) * (own + more) > budget:
                batches.append([])
                widest = SPREAD * own + SLACK
            batches[-1].append(i)
    return batches


def packed_batches(prompts: Ids, more: Sequence[int], budget: int) -> Batches:
    """Indices of the prompts in batches for `pack`, of at most `budget` columns each.

    more: for each prompt the tokens of its trie. Prompts of a family are neighbours, and blocks of
    similar width are together. A prompt that exceeds the budget is a batch by itself.
    """
    shared, grouped = sorted_families(prompts)
    blocks = []  # (width, indices)
    for members, depth in grouped:
        own = {i: len(prompts[i]) - depth + more[i] for i in members}
        for group in group_by_budget(members, own.__getitem__, budget - depth):
            width = depth - shared + sum(own[i] for i in group)
            blocks.append((width, group))
    batches: Batches = []
    for group in group_by_budget(sorted(blocks), lambda block: block[0], budget - shared):
        batches.append([])
        for _, indices in group:
            batches[-1] += indices
    return batches


def group_by_budget(items: Sequence[T], size: Callable[[T], int], budget: int) -> list[list[T]]:
    """The items in groups of neighbours whose sizes sum to at most `budget`; one that exceeds it is
    alone.
    """
    groups: list[list[T]] = []
    total = 0  # of the last group
    for item in items:
        total += size(item)
        if not groups or total > budget:
            groups.append([])
            total = size(item)
        groups[-1].append(item)
    return groups
