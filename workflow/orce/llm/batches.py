"""Which prompts are computed together: batches cut by their tokens, so that memory does not depend on the lengths.

Prompts that begin alike, such as the questions about one passage, are sorted together, and what they share is
computed once. No result depends on the batches but for rounding.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from orce.llm.trie import common_prefix, families

# A padded batch's longest prompt may be SPREAD times as long as its shortest plus SLACK tokens, which cost little.
SPREAD, SLACK = 1.5, 32
QUESTIONS = 4  # prompts about one passage from which on they are a padded batch of their own

Ids = Sequence[list[int]]
T = TypeVar("T")


def padded(prompts: Ids, budget: int, more: int = 0) -> list[list[int]]:
    """Indices of the prompts in batches of at most `budget` tokens, each padded to its longest prompt.

    The prefix that all prompts of a batch share counts once. more: tokens that will follow each prompt. A prompt that
    exceeds the budget is a batch by itself.
    """
    shared, grouped = _families(prompts)
    groups = [(depth, members) for members, depth in grouped if len(members) >= QUESTIONS]
    rest = sorted(i for members, _ in grouped if len(members) < QUESTIONS for i in members)
    batches: list[list[int]] = []
    for depth, members in [*groups, (shared, rest)]:
        batch: list[int] = []
        for i in sorted(members, key=lambda i: len(prompts[i])):
            own = len(prompts[i]) - depth
            full = depth + (len(batch) + 1) * (own + more) > budget
            if not batch or full or own > SPREAD * (len(prompts[batch[0]]) - depth) + SLACK:
                batch = []
                batches.append(batch)
            batch.append(i)
    return batches


def packed(prompts: Ids, more: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of the prompts in batches for orce.llm.trie.pack, of at most `budget` columns each.

    more: for each prompt the tokens of its trie. Prompts of a family are neighbours, and blocks of similar width are
    together. A prompt that exceeds the budget is a batch by itself.
    """
    shared, grouped = _families(prompts)
    blocks = []  # (width, indices)
    for members, depth in grouped:
        own = {i: len(prompts[i]) - depth + more[i] for i in members}
        for group in cut(members, own.__getitem__, budget - depth):
            blocks.append((depth - shared + sum(own[i] for i in group), group))
    batches = cut(sorted(blocks), lambda block: block[0], budget - shared)
    return [[i for _, indices in batch for i in indices] for batch in batches]


def cut(items: Sequence[T], size: Callable[[T], int], budget: int) -> list[list[T]]:
    """The items in groups of neighbours whose sizes sum to at most `budget`; one that exceeds it is alone."""
    groups, held = [], budget
    for item in items:
        if held + size(item) > budget or not groups:
            groups.append([])
            held = 0
        groups[-1].append(item)
        held += size(item)
    return groups


def families_of(prompts: Ids) -> list[list[int]]:
    """Indices of the prompts by family (orce.llm.trie.families); most are alone."""
    return [members for members, _ in _families(prompts)[1]]


def _families(prompts: Ids) -> tuple[int, list[tuple[list[int], int]]]:
    """The length of the prefix that all prompts share, and orce.llm.trie.families of the sorted prompts."""
    shared, order = common_prefix(prompts), sorted(range(len(prompts)), key=lambda i: (prompts[i], i))
    return shared, [
        ([order[i] for i in members], depth) for members, depth in families([prompts[i] for i in order], shared)
    ]
