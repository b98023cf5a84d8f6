"""Sections 3.2 and 3.3: rewards for candidate confidences, and the preference pairs they select."""

PAPER = "sc"  # the reward of the paper; here, as paths need it and not numpy
