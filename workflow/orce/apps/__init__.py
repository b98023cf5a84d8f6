"""What people run beside the workflow: measure, score, compare, summary, import. Nothing imports this package."""
