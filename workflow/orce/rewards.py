"""Public name of orce.alignment.rewards: arrays in, one reward a candidate out."""

from orce.alignment.rewards import (
    ReferenceSet,
    numeric_distance,
    numeric_ranking_difference,
    reward,
    sayself,
    select_pairs,
    spearman_marginal,
)

__all__ = [
    "ReferenceSet",
    "numeric_distance",
    "numeric_ranking_difference",
    "reward",
    "sayself",
    "select_pairs",
    "spearman_marginal",
]
