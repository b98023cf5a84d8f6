"""The SC reward from one contingency table, against scipy.stats.spearmanr on the enlarged set for each candidate."""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from benchmarks.timing import Row, alone, compare
from orce.alignment.rewards import spearman_marginal

TITLE = "SC reward of 160,000 candidates (20,000 prompts x 8) against 10,000 reference pairs"
PROMPTS, CANDIDATES, REFERENCE, SAMPLE = 20_000, 8, 10_000, 50


def reference_pairs(n: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """Confidences in percents and kappas in eighths that agree in part, [n] each."""
    kappa = rng.binomial(8, rng.beta(0.5, 0.5, n)) / 8
    return np.clip(np.rint(100 * (0.6 * kappa + 0.4 * rng.random(n))), 0, 100) / 100, kappa


def vectorised(c, k, candidates, kappa) -> np.ndarray:
    """The fair plain side: Spearman's correlation of 101 x 9 enlarged contingency tables at once, looked up."""
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
    candidates = rng.integers(0, 101, (PROMPTS, CANDIDATES)) / 100
    kappa = rng.integers(0, 9, PROMPTS) / 8
    sampled = [(i, rng.integers(CANDIDATES)) for i in rng.choice(PROMPTS, SAMPLE, replace=False)]

    def ours():
        return spearman_marginal(c, k, candidates, kappa[:, None])

    def plain():
        before = stats.spearmanr(c, k)[0]
        after = [stats.spearmanr(np.append(c, candidates[at]), np.append(k, kappa[at[0]]))[0] for at in sampled]
        return np.array(after) - before

    gap = np.abs(plain() - np.array([ours()[at] for at in sampled])).max()
    notes = {f"greatest difference on {SAMPLE} candidates": f"{gap:.1e}"}
    fair = np.abs(vectorised(c, k, candidates, kappa[:, None]) - ours()).max()
    # The fair comparison: candidates repeat few values, so one rank correlation for each distinct (c, kappa) will do.
    yield compare(
        "against numpy on contingency tables, one for each distinct (c, kappa)",
        ours,
        lambda: vectorised(c, k, candidates, kappa[:, None]),
        options.repeats,
        inner=20,
        notes={"greatest difference": f"{fair:.1e}"},
    )
    distinct = len(np.unique(100 * candidates + 1000 * kappa[:, None]))
    for name, calls, wanted in (
        ("against a scipy call per distinct (c, kappa)", distinct, None),
        ("against a scipy call per candidate", PROMPTS * CANDIDATES, 10_000),
    ):
        scale = calls / SAMPLE
        yield compare(name, ours, plain, options.repeats, scale=scale, inner=20, wanted=wanted, notes=notes)
    for n in (10**3, 10**4, 10**5, 10**6):
        c, k = reference_pairs(n, rng)
        table = np.arange(101)[:, None] / 100, np.arange(9) / 8
        yield alone(
            f"table 101 x 9 against {n:,}", lambda c=c, k=k, t=table: spearman_marginal(c, k, *t), options.repeats, 10
        )
