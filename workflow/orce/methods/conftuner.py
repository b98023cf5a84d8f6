"""ConfTuner (Li et al., 2025), adapted as in the paper: the tokenized Brier score, with the answer fixed."""

LABEL, KIND, WEIGHTS = "ConfTuner", "stated", "conftuner"
