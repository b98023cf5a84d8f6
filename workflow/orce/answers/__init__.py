"""Section 3.1: sampled answers, elicited baselines, the surrogate kappa, and the realised question-answer pairs."""
