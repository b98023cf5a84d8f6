"""Vanilla: the untrained model states its confidence in a fixed question-answer pair (the paper's stage two)."""

LABEL, KIND, WEIGHTS = "Vanilla", "stated", None
SETTINGS = {
    "constrained": False,  # decode every statement constrained to the valid ones, for a model whose free text never is one
}
