"""Token trees: several continuations of one prompt, scored in one forward pass.

All that this project asks of a confidence LLM is the log-probability of a few short continuations of a long prompt:
two for DPO, one hundred and one for the table of confidences and for ConfTuner. Their common beginnings are stored
once, a mask lets each token see the prompt and its own ancestors only, and the prompt is computed once for all. The
same goes one level up: the instruction with which all prompts of a batch begin is computed once for the batch.
"""

from dataclasses import dataclass, field, fields
from functools import cached_property

import torch


@dataclass
class TokenTree:
    """Nodes in an order where parents come first. `parents[i]` is a node index, or -1 for the end of the prompt.

    `fed` lists the nodes that have children: only their hidden states are needed, so only they are fed to the model.
    `paths[k]` holds the node indices of continuation k.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)

    @classmethod
    def of(cls, continuations: list[list[int]]) -> "TokenTree":
        tree, children = cls(), {}
        for continuation in continuations:
            node, path = -1, []
            for token in continuation:
                if (node, token) not in children:
                    children[node, token] = len(tree.tokens)
                    tree.tokens.append(token)
                    tree.parents.append(node)
                node = children[node, token]
                path.append(node)
            tree.paths.append(path)
        return tree

    @cached_property
    def fed(self) -> list[int]:
        return sorted(set(self.parents) - {-1})

    def depth(self, node: int) -> int:
        """Tokens from the prompt's end to `node`, itself included."""
        return 1 + self.depth(self.parents[node]) if node >= 0 else 0

    def children(self, node: int) -> list[int]:
        return [child for child, parent in enumerate(self.parents) if parent == node]

    @property
    def slots(self) -> list[int]:
        """For each node the row of logits that predicts it: 0 for the prompt's end, i + 1 for the i-th fed node."""
        place = {-1: 0} | {node: i + 1 for i, node in enumerate(self.fed)}
        return [place[parent] for parent in self.parents]

    def visibility(self) -> torch.Tensor:
        """Boolean [fed, fed]: which fed nodes each fed node attends to (its ancestors and itself)."""
        place = {node: i for i, node in enumerate(self.fed)}
        seen = torch.eye(len(self.fed), dtype=torch.bool)
        for node, i in place.items():
            if self.parents[node] >= 0:
                seen[i] |= seen[place[self.parents[node]]]
        return seen


@dataclass
class Packed:
    """A batch of B prompts with their trees as one row of L tokens, without padding.

    The beginning that all prompts share stands once, in front. input_ids, position_ids: int64 [1, L]; visible: bool
    [1, 1, L, L]; asked: int64 [S], the columns whose next token is asked for; slot, token: int64 [N], for each node
    the asked column (as a place in `asked`) that predicts it, and its token; path, node: int64 [E], the entries
    "continuation `path` passes node `node`"; shape: (B, K) for K continuations a prompt; bounds: B + 1 columns, where
    each prompt's own part begins (so the first is the length of what all share) and where the last one ends.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    visible: torch.Tensor
    asked: torch.Tensor
    slot: torch.Tensor
    token: torch.Tensor
    path: torch.Tensor
    node: torch.Tensor
    shape: tuple[int, int]
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, batch: dict) -> "Packed":
        """From a collated batch, whatever else that holds."""
        return cls(**{one.name: batch[one.name] for one in fields(cls)})


def pack(prompts: list[list[int]], trees: list[TokenTree]) -> Packed:
    """Lay out prompts and trees in one row. All trees have the same number of paths."""
    shared, k = common_prefix(prompts) if len(prompts) > 1 else 0, len(trees[0].paths)
    ids, positions, asked, slot, token, entries, spans = (
        list(prompts[0][:shared]),
        list(range(shared)),
        [],
        [],
        [],
        [],
        [],
    )
    for b, (prompt, tree) in enumerate(zip(prompts, trees, strict=True)):
        start, end = len(ids), len(ids) + len(prompt) - shared
        spans.append((start, end, tree.visibility()))
        entries += [(b * k + p, len(token) + node) for p, path in enumerate(tree.paths) for node in path]
        slot += [len(asked) + place for place in tree.slots]
        asked += range(end - 1, end + len(tree.fed))
        token += tree.tokens
        ids += prompt[shared:] + [tree.tokens[node] for node in tree.fed]
        positions += [*range(shared, len(prompt)), *(len(prompt) - 1 + tree.depth(node) for node in tree.fed)]
    path, node = torch.tensor(entries).unbind(1)
    return Packed(
        torch.tensor([ids]),
        torch.tensor([positions]),
        _visibility(shared, spans, len(ids)),
        torch.tensor(asked),
        torch.tensor(slot),
        torch.tensor(token),
        path,
        node,
        (len(prompts), k),
        (*(start for start, _, _ in spans), len(ids)),
    )


def _visibility(shared: int, spans: list[tuple[int, int, torch.Tensor]], length: int) -> torch.Tensor:
    """Who sees whom, [1, 1, L, L]; spans: (start of a prompt's own part, its end, visibility of its fed nodes)."""
    visible = torch.zeros(length, length, dtype=torch.bool)
    visible[:shared, :shared] = torch.ones(shared, shared, dtype=torch.bool).tril()
    visible[shared:, :shared] = True
    for start, end, tree in spans:
        last = end + len(tree)
        visible[start:end, start:end] = torch.ones(end - start, end - start, dtype=torch.bool).tril()
        visible[end:last, start:end] = True
        visible[end:last, end:last] = tree
    return visible[None, None]


def common_prefix(sequences: list[list[int]]) -> int:
    """Length of the beginning that all sequences share, at most one less than the shortest."""
    first, last = min(sequences), max(sequences)
    limit = min(map(len, sequences)) - 1
    for i in range(limit):
        if first[i] != last[i]:
            return i
    return limit


def additive(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Attention mask to add to the scores: 0 where visible, the lowest finite value elsewhere."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)


def node_logprobs(model, packed: Packed) -> torch.Tensor:
    """Log-probability of every node's token given the prompt and its ancestors: [N].

    The head is applied at the asked columns only. Differentiable, and goes through the model's own forward, so that
    wrappers for several devices see it.
    """
    inputs = model_inputs(model, packed)
    device = inputs["input_ids"].device
    logits = model(**inputs, logits_to_keep=packed.asked.to(device)).logits.float()
    return pick(logits, packed.slot.to(device)[None], packed.token.to(device)[None])[0]


def model_inputs(model, packed: Packed) -> dict:
    """Arguments with which a transformers model, or its decoder alone, reads a packed row."""
    device, dtype = _place(model)
    return {
        "input_ids": packed.input_ids.to(device),
        "position_ids": packed.position_ids.to(device),
        "attention_mask": additive(packed.visible.to(device), dtype),
        "use_cache": False,
    }


def _place(model) -> tuple[torch.device, torch.dtype]:
    parameter = next(model.parameters())
    if torch.is_autocast_enabled(parameter.device.type):
        return parameter.device, torch.get_autocast_dtype(parameter.device.type)
    return parameter.device, parameter.dtype


def pick(logits: torch.Tensor, slot: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """log softmax(logits)[b, slot, token] without storing the softmax: [B, S, V], [B, N], [B, N] -> [B, N]."""
    norm = logits.logsumexp(-1).gather(1, slot)
    rows = torch.arange(logits.size(0), device=logits.device).unsqueeze(1)
    return logits[rows, slot, token] - norm


def path_logprobs(nodes: torch.Tensor, packed: Packed) -> torch.Tensor:
    """Log-probability of each continuation, the sum over its path: [N] -> [B, K]."""
    sums = nodes.new_zeros(packed.shape[0] * packed.shape[1])
    return sums.index_add(0, packed.path.to(nodes.device), nodes[packed.node.to(nodes.device)]).view(packed.shape)
