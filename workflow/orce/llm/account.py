"""What a server counted: requests and tokens of one engine, and the parameters that it was found to refuse.

The keys are as in the record of a run (`spent` in a manifest): requests, prompt_tokens (of which cached_tokens were in
the server's cache), completion_tokens (of which reasoning_tokens were thought and not said), cut (replies that ended
before an answer), left_out (refused parameters).
"""

from collections import Counter
from collections.abc import Iterable

# Where servers say it, in the order of preference.
PLACES = {
    "prompt_tokens": (("prompt_tokens",), ("input_tokens",)),
    "cached_tokens": (
        ("prompt_tokens_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),
        ("cache_read_input_tokens",),
    ),
    "completion_tokens": (("completion_tokens",), ("output_tokens",)),
    "reasoning_tokens": (("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",)),
}


class Account:
    """Adds up replies until it is taken; what a server refuses stays known."""

    def __init__(self):
        self.counts: Counter[str] = Counter()
        self.left_out: set[str] = set()

    def add(self, usage, cut: int = 0) -> None:
        """A reply's `usage`, whatever the server put there."""
        self.counts.update({"requests": 1, "cut": cut} | tokens(usage))

    def take(self) -> dict:
        """What was spent since the last call; empty if nothing was asked."""
        found, self.counts = {key: n for key, n in self.counts.items() if n}, Counter()
        return found | ({"left_out": sorted(self.left_out)} if found and self.left_out else {})


def tokens(usage) -> dict[str, int]:
    """The counts in a reply's `usage`; values that are not integers are skipped."""
    found = {}
    for name, places in PLACES.items():
        values = [_at(usage, place) for place in places]
        known = [value for value in values if value is not None]
        found |= {name: known[0]} if known else {}
    return found


def _at(value, place: Iterable[str]) -> int | None:
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    right = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if right else None


def total(spent: Iterable[dict]) -> dict:
    """The sum of several records of spending."""
    counts: Counter[str] = Counter()
    left_out: set[str] = set()
    for one in spent:
        counts.update({key: value for key, value in one.items() if key != "left_out"})
        left_out |= set(one.get("left_out", ()))
    return dict(counts) | ({"left_out": sorted(left_out)} if left_out else {})
