"""Vanilla: the untrained model states its confidence in a fixed question-answer pair (the paper's stage two)."""

LABEL, KIND, WEIGHTS = "Vanilla", "stated", None
