"""Training the confidence LLM: the warm start (sft), the alignment (dpo), and the tokenized Brier
score of a baseline.
"""

import os

# Before torch is imported: micro-batches of many sizes leave gaps in the memory of a GPU.
os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
