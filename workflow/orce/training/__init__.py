"""Training the confidence LLM: the warm start (sft), the alignment (dpo) and the ConfTuner baseline (conftuner)."""
