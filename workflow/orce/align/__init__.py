"""Sections 3.1 and 3.2 of the paper: the surrogate of reliability, and the rewards that choose
pairs.
"""
