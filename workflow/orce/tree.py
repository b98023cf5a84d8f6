"""Token trees: several continuations of one prompt, scored in one forward pass.

All that this project asks of a confidence LLM is the log-probability of a few short continuations of a long prompt:
two for DPO, one hundred and one for the table of confidences and for ConfTuner. Their common beginnings are stored
once, a mask lets each token see the prompt and its own ancestors only, and the prompt is computed once for all.
"""

from dataclasses import dataclass, field

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

    def __post_init__(self):
        self._fed = None

    @property
    def fed(self) -> list[int]:
        if self._fed is None:
            self._fed = sorted(set(self.parents) - {-1})
        return self._fed

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
    """Prompts with their trees as one padded batch of B rows and L columns.

    Prompts are padded on the left and trees on the right, so that all prompts end in the same column: the last
    `slots` columns (the prompts' ends, then the fed nodes) are the ones whose next token is asked for.
    input_ids, position_ids: int64 [B, L]; visible: bool [B, 1, L, L]; slot, token: int64 [B, N] and valid: bool
    [B, N], for each node the slot that predicts it and its token; paths: float32 [B, K, N], 1 where a node is on a path.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    visible: torch.Tensor
    slot: torch.Tensor
    token: torch.Tensor
    valid: torch.Tensor
    paths: torch.Tensor
    slots: int


def pack(prompts: list[list[int]], trees: list[TokenTree], pad_id: int) -> Packed:
    """Lay out each prompt and its tree in one row. All trees have the same number of paths."""
    rows = range(len(prompts))
    longest, fed = max(map(len, prompts)), max(len(tree.fed) for tree in trees)
    width, nodes = longest + fed, max(len(tree.tokens) for tree in trees)
    input_ids = torch.full((len(prompts), width), pad_id)
    position_ids = torch.zeros_like(input_ids)
    visible = torch.eye(width, dtype=torch.bool).repeat(len(prompts), 1, 1, 1)
    slot, token = torch.zeros(2, len(prompts), nodes, dtype=torch.long)
    valid = torch.zeros(len(prompts), nodes, dtype=torch.bool)
    paths = torch.zeros(len(prompts), len(trees[0].paths), nodes)
    for b in rows:
        prompt, tree = prompts[b], trees[b]
        start, end = longest - len(prompt), longest + len(tree.fed)
        input_ids[b, start:end] = torch.tensor(prompt + [tree.tokens[node] for node in tree.fed])
        depths = [len(prompt) - 1 + tree.depth(node) for node in tree.fed]
        position_ids[b, start:end] = torch.tensor([*range(len(prompt)), *depths])
        visible[b, 0, start:longest, start:longest] = torch.ones(len(prompt), len(prompt), dtype=torch.bool).tril()
        visible[b, 0, longest:end, start:longest] = True
        visible[b, 0, longest:end, longest:end] = tree.visibility()
        slot[b, : len(tree.tokens)] = torch.tensor(tree.slots)
        token[b, : len(tree.tokens)] = torch.tensor(tree.tokens)
        valid[b, : len(tree.tokens)] = True
        for k, path in enumerate(tree.paths):
            paths[b, k, path] = 1
    return Packed(input_ids, position_ids, visible, slot, token, valid, paths, 1 + fed)


def additive(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Attention mask to add to the scores: 0 where visible, the lowest finite value elsewhere."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)


def node_logprobs(model, packed: Packed) -> torch.Tensor:
    """Log-probability of every node's token given the prompt and its ancestors: [B, N], 0 where padded.

    The head is applied at the asked columns only. Differentiable, and goes through the model's own forward, so that
    wrappers for several devices see it.
    """
    device, dtype = _place(model)
    logits = model(
        input_ids=packed.input_ids.to(device),
        position_ids=packed.position_ids.to(device),
        attention_mask=additive(packed.visible.to(device), dtype),
        logits_to_keep=packed.slots,
        use_cache=False,
    ).logits.float()
    nodes = pick(logits, packed.slot.to(device), packed.token.to(device))
    return nodes.masked_fill(~packed.valid.to(device), 0.0)


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
    """Log-probability of each continuation: the sum over its path. [B, N] -> [B, K]."""
    return torch.einsum("bkn,bn->bk", packed.paths.to(nodes), nodes)
