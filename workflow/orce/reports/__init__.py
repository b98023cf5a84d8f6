"""Presentation of the results: tables, the comparison with the paper, figures, and the provenance
of every number.
"""
