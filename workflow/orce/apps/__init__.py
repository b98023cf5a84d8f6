"""What people run beside the workflow: measure, score, plan, compare. Nothing imports this package."""
