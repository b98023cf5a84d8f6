"""What a reader sees: tables, figures, the page about a run, the model card, provenance."""
