"""Public name of orce.alignment: arrays in, one reward per candidate out."""

from orce.alignment.rewards import (
    REWARDS,
    brier_reward,
    log_score,
    numeric_distance,
    numeric_ranking_difference,
    reward_candidates,
    reward_without_own_pair,
    sayself,
    select_pairs,
    spearman_marginal,
    spearman_marginal_without_generation,
)

__all__ = [
    "REWARDS",
    "brier_reward",
    "log_score",
    "numeric_distance",
    "numeric_ranking_difference",
    "reward_candidates",
    "reward_without_own_pair",
    "sayself",
    "select_pairs",
    "spearman_marginal",
    "spearman_marginal_without_generation",
]
