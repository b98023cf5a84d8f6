"""A model by whole forward passes: nothing is packed, cached or shared between rows.

Slow, and all that a model needs whose attention is its own (Qwen3.5, Falcon, BLOOM): token tries
and the KV cache put another attention in its place. Rows are padded after their ends, where no
token sees it, so neither a mask nor positions are given.
"""

import torch


@torch.no_grad()
def token_logprobs(
    model, prompt: list[int], continuations: list[list[int]], tokens: int
) -> list[torch.Tensor]:
    """log P of each token of each continuation of a prompt, about `tokens` a forward pass."""
    longest = max(map(len, continuations))
    size = max(1, tokens // (len(prompt) + longest))
    found = []
    for start in range(0, len(continuations), size):
        batch = continuations[start : start + size]
        rows = [prompt + ids + [0] * (longest - len(ids)) for ids in batch]
        logprobs = _logits(model, rows, longest + 1).float().log_softmax(-1).cpu()
        for row, ids in zip(logprobs, batch, strict=True):
            found.append(row[torch.arange(len(ids)), ids])
    return found


@torch.no_grad()
def greedy_tokens(model, prompt: list[int], most: int, ends: set[int]) -> list[int]:
    """What the model writes after a prompt, at most so many tokens, up to one of `ends`."""
    written: list[int] = []
    while len(written) < most:
        token = int(_logits(model, [prompt + written], 1)[0, -1].argmax())
        if token in ends:
            break
        written.append(token)
    return written


def _logits(model, rows: list[list[int]], last: int) -> torch.Tensor:
    """Logits at the last columns of rows of one length: [rows, last, V]."""
    ids = torch.tensor(rows, device=model.device)
    return model(input_ids=ids, use_cache=False, logits_to_keep=last).logits
