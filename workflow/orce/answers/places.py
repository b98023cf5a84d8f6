"""Where hidden states are read (orce.answers.hidden_states), for rules and settings, which need no numpy."""

PLACES = {"question": "answers", "answer": "answers", "judge": "judge"}  # and the file that has it, states/FILE.jsonl
DEPTHS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the layers whose states are kept, as shares of the model's
