"""Attention of a packed row, block by block: each block's columns see the shared prefix and their own block only.

A packed row of L columns with a dense mask costs L^2 scores, nearly all of them masked. Here the blocks become the rows
of a padded batch [G, W], with the shared prefix in front of each block's keys: G W (S + W) scores in one call of
scaled_dot_product_attention, and a causal call for the prefix. The other parts of a layer still run on the packed row.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from orce.errors import BadInput
from orce.runtime import process

with process.without_unused():
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "orce_blocks"
# The kinds of layer with a window, and the key of a config that holds its size. Packed rows and the KV cache compute whole
# attention, which is exact as long as everything fits a sliding window.
WINDOWED = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}


def use_blocks(model) -> None:
    """Let a model that runs on scaled_dot_product_attention compute packed rows by blocks; other calls are as before."""
    if model.config._attn_implementation == "sdpa" and model._supports_attention_backend:
        model.config._attn_implementation = NAME


def by_blocks(model) -> bool:
    """Whether a model, bare or in a wrapper for several processes, computes packed rows by blocks."""
    return getattr(model, "module", model).config._attn_implementation == NAME


def block_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, blocks=None, **features):
    """A transformers attention function. query [1, Hq, L, D], key and value [1, H, L, D] of a packed row.

    attention_mask: [G, 1, W, S + W], added to the scores. blocks: (gather int64 [G W], the column at each position of
    the padded batch; position int64 [L - S], of each later column in it). Without blocks it is transformers'
    own function. Sliding windows are left out: check_window refuses whatever exceeds one.
    """
    if blocks is None:
        features |= {"dropout": dropout, "scaling": scaling}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **features)
    gather, position = blocks
    count, _, width, seen = attention_mask.shape
    shared, groups = seen - width, query.size(1) // key.size(1)
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    options: dict[str, Any] = {"dropout_p": dropout if module.training else 0.0, "scale": scaling}

    def padded(x):  # [1, H, L, D] -> [G, H, W, D]
        return x[0].index_select(1, gather).unflatten(1, (count, width)).transpose(0, 1)

    def seen_by_blocks(x):  # [1, H, L, D] -> [G, H, S + W, D]
        return torch.cat([x[:, :, :shared].expand(count, -1, -1, -1), padded(x)], dim=2)

    own = scaled_dot_product_attention(
        padded(query), seen_by_blocks(key), seen_by_blocks(value), attn_mask=attention_mask, **options
    )
    out = own.transpose(1, 2).flatten(0, 1).index_select(0, position)
    if shared:
        first, keys, values = (x[:, :, :shared] for x in (query, key, value))
        prefix = scaled_dot_product_attention(first, keys, values, is_causal=True, **options)
        out = torch.cat([prefix[0].transpose(0, 1), out])
    return out.unsqueeze(0), None


AttentionInterface.register(NAME, block_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
# With a mask cuDNN's attention is slow for each new shape, and its gradient can be NaN (pytorch issue 196678).
torch.backends.cuda.enable_cudnn_sdp(False)


def sliding_window(config) -> int | None:
    """The smallest window of any layer of a model, in tokens; None if all layers attend to the whole sequence."""
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"]
    windows = (getattr(config, key, None) for kind, key in WINDOWED.items() if kind in kinds)
    return min(filter(None, windows), default=None)


def check_window(config, length: int, remedy: str) -> None:
    """Raises BadInput if a sequence of `length` tokens is longer than the model's window. remedy: what to do then."""
    window = sliding_window(config)
    if window is not None and length > window:
        name = getattr(config, "name_or_path", "") or config.model_type
        raise BadInput(
            f"{name}: its layers attend to a sliding window of {window} tokens, and prompt and completion take {length}; "
            f"{remedy}"
        )
