"""Sections 3.1 to 3.3 of the paper: kappa and the realised answer (`surrogate`), the rewards of
stated confidences and the preference pairs that they choose (`rewards`).
"""
