"""Training the confidence LLM: the warm start (sft), the alignment (dpo), and the tokenized Brier score of a baseline."""

import orce.llm.language_model  # noqa: F401  before trl and datasets: it imports transformers without scikit-learn
