"""Presentation of the results: tables, figures, the page about a run, the model card, provenance."""
