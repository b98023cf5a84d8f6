"""The confidence LLM: its distribution over 101 values, and a judge loaded from a folder."""
