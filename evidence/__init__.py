"""The evidence experiment: what ORCE and its parts do at a small scale, over seeds, methods, rewards and variants.

``python -m evidence data`` fetches the questions, ``run`` starts Snakemake once for each (variant, seed) in a folder of
its own, ``collect`` writes docs/evidence/ and the tables of docs/evidence/smollm2.md, ``same`` compares two runs.
"""
