"""Random seeds."""

import hashlib


def seed_of(base: int, *names: str) -> int:
    """A seed in [0, 2^63) that depends only on `base` and `names`, never on the order of items or on their batch."""
    text = "\x1f".join([str(base), *names])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
