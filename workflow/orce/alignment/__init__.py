"""Sections 3.2 and 3.3: the rewards of candidate confidences and the preference pairs that they choose."""
