"""Side-by-side timings of what this library does differently from the plain way: ``python -m benchmarks``.

A comparison is a module of benchmarks.comparisons, found by its name. Both sides run in one process, in turn, on the
same input. Nothing here is a test: no time is asserted anywhere, and the tests check that both sides agree.
"""
