"""ORCE: the warm-started confidence LLM aligned by DPO on Spearman-reward pairs (or another reward: ablations)."""

LABEL, KIND, WEIGHTS = "ORCE", "stated", "dpo"
