"""Seeds that depend on what is drawn and on nothing else."""

import hashlib


def seed_of(base: int, *names: str) -> int:
    """A seed that depends on what is drawn and on nothing else, so that order and neighbours do not matter."""
    text = "\x1f".join([str(base), *names])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
