"""The SC reward of many candidates, against numpy on one contingency table for each distinct (c, kappa)."""

from collections.abc import Iterator

import numpy as np

from benchmarks.timing import Row, compare
from orce.align.rewards import spearman_marginal

TITLE = "SC reward of 160,000 candidates (20,000 prompts x 8) against 10,000 reference pairs"
PROMPTS, CANDIDATES, REFERENCE = 20_000, 8, 10_000


def reference_pairs(n: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """Confidences in percents and kappas in eighths that agree in part, [n] each."""
    kappa = rng.binomial(8, rng.beta(0.5, 0.5, n)) / 8
    return np.clip(np.rint(100 * (0.6 * kappa + 0.4 * rng.random(n))), 0, 100) / 100, kappa


def vectorised(c, k, candidates, kappa) -> np.ndarray:
    """The plain side: Spearman's correlation of 101 x 9 enlarged contingency tables at once, looked up."""
    counts = np.zeros((101, 9))
    np.add.at(counts, (np.rint(100 * c).astype(int), np.rint(8 * k).astype(int)), 1)
    more = counts + np.eye(counts.size).reshape(-1, *counts.shape)

    def spearman(tables):
        rows, columns = tables.sum(2), tables.sum(1)
        x, y = (n.cumsum(1) - (n + tables.sum((1, 2))[:, None]) / 2 for n in (rows, columns))
        both = ((tables @ y[:, :, None])[:, :, 0] * x).sum(1)
        return both / np.sqrt((rows * x**2).sum(1) * (columns * y**2).sum(1))

    reward = (spearman(more) - spearman(counts[None])).reshape(counts.shape)
    return reward[np.rint(100 * candidates).astype(int), np.rint(8 * kappa).astype(int)]


def run(options) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    c, k = reference_pairs(REFERENCE, rng)
    candidates, kappa = rng.integers(0, 101, (PROMPTS, CANDIDATES)) / 100, rng.integers(0, 9, (PROMPTS, 1)) / 8

    def ours():
        return spearman_marginal(c, k, candidates, kappa)

    gap = np.abs(vectorised(c, k, candidates, kappa) - ours()).max()
    notes = {"greatest difference": f"{gap:.1e}"}
    plain = lambda: vectorised(c, k, candidates, kappa)
    yield compare("numpy on contingency tables", ours, plain, options.repeats, inner=20, notes=notes)
