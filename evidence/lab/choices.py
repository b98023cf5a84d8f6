"""What the rewards choose from one set of candidates, by the warm start's correlation r with kappa.

The marginal reward of a candidate is about z_c z_k - (r / 2) (z_c^2 + z_k^2), with z the standardised ranks in C and K, so
its best candidate is the one nearest to z_c = z_k / r: more extreme than kappa's own rank, the more so the smaller r is.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from orce.alignment import preferences, registry
from orce.artefacts import files

RIVALS = ("nrd", "sayself", "numeric", "sc-surrogate")


class Choices(NamedTuple):
    """Of the prompts with at least two distinct candidates: shares in which SC's best value is that of a rival."""

    r: float
    n: int
    formula: float
    rivals: dict[str, float]


def of_candidates(path: Path) -> Choices:
    """The choices among the candidates of a file."""
    rows = files.read_jsonl(path)
    confidences = np.array([row["confidences"] for row in rows])
    kappa, stated = (np.array([row[key] for row in rows], dtype=float) for key in ("kappa", "stated"))
    correct = np.array([row["correct"] for row in rows])
    several = confidences.max(1) > confidences.min(1)
    best = {name: _best(name, stated, kappa, confidences, correct) for name in ("sc", *RIVALS)}
    r = float(np.asarray(stats.spearmanr(stated, kappa))[0]) if np.ptp(stated) and np.ptp(kappa) else 0.0
    nearest = np.argmin(
        np.abs(_standard(stated, confidences) - _standard(kappa, kappa[:, None]) / max(r, 1e-3)), axis=1
    )
    formula = np.take_along_axis(confidences, nearest[:, None], 1)[:, 0]
    same = {name: float((best["sc"] == best[name])[several].mean()) for name in RIVALS}
    return Choices(r, int(several.sum()), float((best["sc"] == formula)[several].mean()), same)


def _best(name: str, stated, kappa, confidences, correct) -> np.ndarray:
    rewards = preferences.reward_candidates(registry.load(name), stated, kappa, confidences, kappa, correct)
    return np.take_along_axis(confidences, rewards.argmax(1)[:, None], 1)[:, 0]


def _standard(reference: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The average ranks of values [n, M] in a reference [n], standardised as those of the reference are."""
    ordered = np.sort(reference)
    place = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    ranks = stats.rankdata(reference) - 0.5
    return (place - ranks.mean()) / max(ranks.std(), 1e-9)
