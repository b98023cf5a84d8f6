"""SFT: the confidence LLM after the warm start on kappa."""

LABEL, KIND, WEIGHTS = "SFT", "stated", "sft"
