"""Token tries: several continuations of one prompt, scored in one forward pass.

A confidence LLM is only ever asked for a few short continuations of a long prompt: two for DPO, 101 for the distribution over
confidences and for the tokenized Brier score. The prompt is computed once for all of them, a prefix that some share once for
these, and so are what all prompts of a batch share and the passage that several questions are about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from os.path import commonprefix

import torch

from orce.llm.attention import by_blocks

FAMILY = 32  # tokens that prompts have to share before they are laid out as a family


@dataclass
class TokenTrie:
    """Continuations of a prompt, shared prefixes stored once. Nodes are numbered so that parents come first.

    tokens: the token of each of the N nodes. parents: the parent of each node, -1 for the end of the prompt.
    paths: for each of the K continuations its node indices, from the first token to the last.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)

    @classmethod
    def of(cls, continuations: list[list[int]]) -> "TokenTrie":
        """The trie of K continuations, given as token ids."""
        trie, children = cls(), {}
        for continuation in continuations:
            node, path = -1, []
            for token in continuation:
                if (node, token) not in children:
                    children[node, token] = len(trie.tokens)
                    trie.tokens.append(token)
                    trie.parents.append(node)
                node = children[node, token]
                path.append(node)
            trie.paths.append(path)
        return trie

    @cached_property
    def inner(self) -> list[int]:
        """The nodes with children. Only their hidden states are needed, so only they are fed to the model."""
        return sorted(set(self.parents) - {-1})

    def before(self) -> list[list[int]]:
        """For each node the indices in `inner` of its ancestors, the first token's first."""
        index = {node: i for i, node in enumerate(self.inner)}
        ancestors: list[list[int]] = []
        for parent in self.parents:
            ancestors.append([] if parent == -1 else [*ancestors[parent], index[parent]])
        return ancestors

    def branches(self) -> list[tuple[int, list[int]]]:
        """The inner nodes as orce.llm.kv_cache takes new tokens: (token, indices of its ancestors)."""
        before = self.before()
        return [(self.tokens[node], before[node]) for node in self.inner]

    def children(self, node: int) -> list[int]:
        """The nodes that continue `node`; -1 is the end of the prompt."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    @property
    def logit_rows(self) -> list[int]:
        """For each node the row of logits that predicts it: 0 for the prompt's end, i + 1 for the i-th inner node."""
        return [ancestors[-1] + 1 if ancestors else 0 for ancestors in self.before()]


@dataclass
class Packed:
    """A batch of B prompts, each with a trie of K continuations, as one row of L columns (tokens) without padding.

    The prefix of S tokens that all prompts share comes first and once. Then come G blocks, which do not see each other.
    A block is a family of prompts (see `families`): the stem that they share beyond the prefix, once, and for each
    prompt the rest of it and the inner nodes of its trie.

    input_ids, position_ids: int64 [1, L]
    visible: bool [G, W, S + W], W columns in the widest block: which columns of the prefix and of its own block each column
        of a block attends to. The columns of the prefix attend to those before them.
    starts: G + 1 columns, where each block starts (the first is S), and L
    logit_columns: int64 [N'], the columns whose next-token logits are needed
    logit_row, token: int64 [N], for each trie node the entry of `logit_columns` that predicts it, and its token
    path, node: int64 [E], one entry for each "continuation `path` contains node `node`"
    shape: (B, K)
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    visible: torch.Tensor
    starts: tuple[int, ...]
    logit_columns: torch.Tensor
    logit_row: torch.Tensor
    token: torch.Tensor
    path: torch.Tensor
    node: torch.Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, batch: dict) -> "Packed":
        """From a collated batch, which may hold further keys."""
        return cls(**{item.name: batch[item.name] for item in fields(cls)})

    def dense(self) -> torch.Tensor:
        """The same visibility as one mask of the whole row: bool [1, 1, L, L]."""
        shared, length = self.starts[0], self.starts[-1]
        mask = torch.zeros(length, length, dtype=torch.bool, device=self.visible.device)
        mask[:shared, :shared] = torch.ones(shared, shared, dtype=torch.bool).tril()
        for block, start, end in zip(self.visible, self.starts, self.starts[1:], strict=False):
            width = end - start
            mask[start:end, :shared] = block[:width, :shared]
            mask[start:end, start:end] = block[:width, shared : shared + width]
        return mask[None, None]

    def places(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(gather [G W], position [L - S]) of orce.llm.attention: from the blocks to a padded batch of them, and back."""
        width, bounds = self.visible.size(1), list(zip(self.starts, self.starts[1:], strict=False))
        gather = [torch.arange(start, start + width).clamp(max=end - 1) for start, end in bounds]
        position = [torch.arange(i * width, i * width + end - start) for i, (start, end) in enumerate(bounds)]
        return torch.cat(gather), torch.cat(position)


def pack(prompts: list[list[int]], tries: list[TokenTrie]) -> Packed:
    """Lay out B prompts (token ids) and their tries in one row. All tries have the same number of paths.

    Families are found among neighbours only, so the prompts should be sorted (orce.llm.batches).
    """
    shared, k = common_prefix(prompts), len(tries[0].paths)
    ids, positions, starts = prompts[0][:shared], [*range(shared)], []
    logit_columns, logit_rows, tokens, entries, blocks = [], [], [], [], []
    for members, depth in families(prompts, shared):
        start, stem = len(ids), depth - shared
        starts.append(start)
        ids += prompts[members[0]][shared:depth]
        positions += range(shared, depth)
        width = stem + sum(len(prompts[b]) - depth + len(tries[b].inner) for b in members)
        block = torch.ones(width, width, dtype=torch.bool).tril()
        for b in members:
            prompt, trie, branches = prompts[b], tries[b], tries[b].branches()
            first, end = len(ids), len(ids) + len(prompt) - depth
            entries += [(b * k + p, len(tokens) + node) for p, path in enumerate(trie.paths) for node in path]
            logit_rows += [len(logit_columns) + row for row in trie.logit_rows]
            logit_columns += range(end - 1, end + len(branches))
            tokens += trie.tokens
            ids += [*prompt[depth:], *(token for token, _ in branches)]
            positions += [*range(depth, len(prompt)), *(len(prompt) + len(before) for _, before in branches)]
            block[first - start : len(ids) - start, stem : first - start] = False  # the members before it
            corner = block[end - start : len(ids) - start, end - start : len(ids) - start].zero_()
            for i, (_, before) in enumerate(branches):
                corner[i, [*before, i]] = True
        blocks.append(block)
    widest = max(map(len, blocks))
    visible = torch.ones(len(blocks), widest, shared + widest, dtype=torch.bool)
    visible[:, :, shared:] = torch.eye(widest, dtype=torch.bool)  # the columns of padding attend to themselves
    for rows, block in zip(visible, blocks, strict=True):
        rows[: len(block), shared : shared + len(block)] = block
    path, node = torch.tensor(entries).unbind(1)
    return Packed(
        input_ids=torch.tensor([ids]),
        position_ids=torch.tensor([positions]),
        visible=visible,
        starts=(*starts, len(ids)),
        logit_columns=torch.tensor(logit_columns),
        logit_row=torch.tensor(logit_rows),
        token=torch.tensor(tokens),
        path=path,
        node=node,
        shape=(len(prompts), k),
    )


def families(prompts: list[list[int]], shared: int) -> list[tuple[list[int], int]]:
    """Neighbours that begin alike, as questions about one passage do: (indices, length of their common prefix).

    The common prefix beyond the first `shared` tokens has at least FAMILY tokens, and half of the shorter neighbour's. A
    prompt without such a neighbour is a family of its own, with the prefix `shared`.
    """
    groups: list[tuple[list[int], int]] = []
    for i, prompt in enumerate(prompts):
        if groups:
            members, depth = groups[-1]
            alike = common_prefix([prompts[i - 1], prompt])
            if alike - shared >= max(FAMILY, (min(len(prompts[i - 1]), len(prompt)) - shared) / 2):
                groups[-1] = [*members, i], alike if len(members) == 1 else min(depth, alike)
                continue
        groups.append(([i], shared))
    return groups


def common_prefix(sequences: Sequence[list[int]]) -> int:
    """Length of the prefix that sequences share, at most one less than the length of the shortest; 0 for a single one."""
    if len(sequences) < 2:
        return 0
    return min(len(commonprefix(sequences)), min(map(len, sequences)) - 1)


def additive_mask(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask as one that is added to attention scores: 0 where visible, the lowest finite value elsewhere."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)


def node_logprobs(model, packed: Packed) -> torch.Tensor:
    """Log-probability of every node's token given the prompt and the node's ancestors: [N]. Differentiable.

    The LM head is applied at `logit_columns` only. The call goes through the model's own forward, so that wrappers for
    several devices take part in it.
    """
    parameter = next(model.parameters())
    device, kind = parameter.device, parameter.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else parameter.dtype
    if by_blocks(model):
        visible, more = packed.visible[:, None], {"blocks": tuple(index.to(device) for index in packed.places())}
    else:  # a family with an attention of its own
        visible, more = packed.dense(), {}
    logits = model(
        input_ids=packed.input_ids.to(device),
        position_ids=packed.position_ids.to(device),
        attention_mask=additive_mask(visible.to(device), dtype),
        use_cache=False,
        logits_to_keep=packed.logit_columns.to(device),
        **more,
    ).logits.float()
    return token_logprobs(logits, packed.logit_row.to(device)[None], packed.token.to(device)[None])[0]


def token_logprobs(logits: torch.Tensor, row: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """log softmax(logits)[b, row, token], without storing the softmax: [B, S, V], [B, N], [B, N] -> [B, N]."""
    norm = logits.logsumexp(-1).gather(1, row)
    batch = torch.arange(logits.size(0), device=logits.device).unsqueeze(1)
    return logits[batch, row, token] - norm


def path_logprobs(nodes: torch.Tensor, packed: Packed) -> torch.Tensor:
    """Log-probability of each continuation, the sum over the nodes of its path: [N] -> [B, K]."""
    sums = nodes.new_zeros(packed.shape[0] * packed.shape[1])
    return sums.index_add(0, packed.path.to(nodes.device), nodes[packed.node.to(nodes.device)]).view(packed.shape)
