"""ORCE: the warm-started confidence LLM aligned by DPO on Spearman-reward pairs (or another reward: ablations)."""

LABEL, KIND, WEIGHTS = "Ours-ORCE", "stated", "dpo"
