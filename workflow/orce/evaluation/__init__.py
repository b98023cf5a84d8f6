"""Metrics with exact treatment of ties, their bootstrap intervals, and selective prediction."""
