"""Training the confidence LLM: the warm start (sft), the alignment (dpo), and the tokenized Brier score of a baseline."""
