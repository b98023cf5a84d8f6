"""Timings of what this library does, beside what a good engineer would write plainly: ``python -m benchmarks``."""
