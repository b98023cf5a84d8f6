"""The confidence LLM: its distribution over the 101 values, readers, candidates, stated confidences, and the judge."""
