"""Further metrics of the field: log loss, adaptive and smooth ECE, and what can be said about selective prediction.

They are in extra.json. Each is a function of counts, as the paper's are (orce.evaluation.counts).
"""

from functools import lru_cache

import numpy as np

from orce.evaluation.counts import Cells, Counts, Metric, Tally, Values, constant_target, metric, probabilities, ratio
from orce.evaluation.ranking import auroc
from orce.evaluation.risk_coverage import aurc, e_aurc

MARGIN = 0.005  # half a percent: a stated 0 or 100 % counts as 0.5 or 99.5 %, where the log loss is finite
WAVES = 1024  # cosines that the smoothed residual of smooth ECE is made of; enough for bandwidths above 0.003
ROWS = 1024  # resamples whose waves are held at once, 8 MB an array
PLACES = 128  # at which the interval of smooth ECE looks at that residual; divides WAVES
STEPS = 12  # bisections of the bandwidth


@metric(read=probabilities)
def nll(tally: Tally) -> Values:
    """Mean of -ln of the probability given to what was the case, with c kept half a percent away from 0 and 1."""
    cells = tally.cells
    stated = np.clip(cells.confidence[cells.row], MARGIN, 1 - MARGIN)
    return tally.mean(-np.log(np.where(cells.target[cells.column] == 1, stated, 1 - stated)))


@metric()
def augrc(tally: Tally) -> Values:
    """Area under the generalised risk-coverage curve (Traub et al., 2024): (1 - AUROC) a (1 - a) + (1 - a)^2 / 2.

    a is the accuracy. This is the trapezoid from coverage 0 on, in expectation over the orders of ties. Between 0 and 1/2.
    """
    right = tally.right.sum(axis=1)
    wrong = tally.n - right
    won = np.nan_to_num(tally.of(auroc))  # undefined only where one of the two counts is 0
    return ((1 - won) * right * wrong + wrong**2 / 2) / tally.n**2


@metric()
def auarc(tally: Tally) -> Values:
    """Area under the accuracy-rejection curve (Nadeem et al., 2009): 1 - AURC, hence with its treatment of ties."""
    return 1 - tally.of(aurc)


@metric(undefined=constant_target)
def prr(tally: Tally) -> Values:
    """Prediction-rejection ratio (Malinin et al., 2020): the share of the way from a random ranking to a perfect one.

    (err - AURC) / (err - least AURC), as lm-polygraph computes it; with errors divided by all items, as Malinin et al. do,
    it would be 2 AUROC - 1. 1 is perfect, 0 random, below 0 worse. None if all answers are right or all wrong.
    """
    error = 1 - tally.right.sum(axis=1) / tally.n
    least = tally.of(aurc) - tally.of(e_aurc)
    return ratio(error - tally.of(aurc), np.where(np.isclose(error, least, atol=1e-12), 0, error - least))


def adaptive_ece(n_bins: int) -> Metric:
    """Adaptive ECE (Nguyen and O'Connor, 2015; Nixon et al., 2019), as a Metric: n_bins bins of n / n_bins items each.

    Items are cut into bins in the order of their confidence. A tie that lies across a cut gives each bin its part of the
    items, and of the right answers its expected part over all orders of the tie.
    """

    def gaps(tally: Tally) -> Values:
        return _parts(tally) / tally.n

    def _parts(tally: Tally) -> Values:
        gap = np.cumsum(tally.total * tally.cells.confidence - tally.right, axis=1)
        cuts = tally.n * np.arange(n_bins + 1) / n_bins
        at_cuts = np.stack([_at(cuts, items, sums) for items, sums in zip(tally.up_to, gap, strict=True)])
        return np.diff(at_cuts, axis=1)

    @metric(read=probabilities, gaps=gaps)
    def adaptive_ece(tally: Tally) -> Values:
        return np.abs(_parts(tally)).sum(axis=1) / tally.n

    return adaptive_ece


def _at(cuts: Values, items: Counts, sums: Values) -> Values:
    return np.interp(cuts, np.concatenate([[0], items]), np.concatenate([[0.0], sums]))


def _smooth_gaps(tally: Tally) -> Values:
    """Smoothed residuals at some places, at the bandwidth of the items themselves: there the sum's error is greatest."""
    width = _own_width(tally.cells)
    parts = [
        _curve(amplitude, waves, np.full(len(amplitude), width)).reshape(len(amplitude), PLACES, -1).mean(axis=2)
        for start in range(0, len(tally.counts), ROWS)
        for amplitude, waves in [_amplitude(Tally(tally.cells, tally.counts[start : start + ROWS]))]
    ]
    return np.concatenate(parts) / (PLACES * tally.n)


@lru_cache(maxsize=1)
def _own_width(cells: Cells) -> float:
    return float(Tally(cells).of(smooth_ece)[0])


@metric(read=probabilities, gaps=_smooth_gaps)
def smooth_ece(tally: Tally) -> Values:
    """Smooth ECE (Blasiok and Nakkiran, 2024): mean size of the residuals smoothed by a Gaussian reflected at 0 and 1.

    The bandwidth is the one that equals the result, which always exists once. There are no bins, so ties do not matter.
    """
    amplitude, waves = _amplitude(tally)
    low: Values = np.zeros(len(amplitude))
    high: Values = np.ones(len(amplitude))
    for _ in range(STEPS):
        middle = (low + high) / 2
        above = _smoothed(amplitude, waves, middle) > tally.n * middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    # The last step is along the chord: the curve less the bandwidth falls from above 0 to below.
    over = _smoothed(amplitude, waves, low) / tally.n - low
    under = high - _smoothed(amplitude, waves, high) / tally.n
    return low + (high - low) * ratio(over, np.where(over + under > 0, over + under, 1))


def _amplitude(tally: Tally) -> tuple[Values, Values]:
    # A reflected Gaussian damps the k-th cosine of the residuals by exp(-(pi k width)^2 / 2).
    waves: Values = np.arange(WAVES) * np.float64(np.pi)
    residuals = tally.right - tally.total * tally.cells.confidence
    return residuals @ np.cos(np.outer(tally.cells.confidence, waves)), waves


def _smoothed(amplitude: Values, waves: Values, width: Values) -> Values:
    """The integral over [0, 1] of the smoothed residuals' size, for a width of each row."""
    return np.abs(_curve(amplitude, waves, width)).mean(axis=1)


def _curve(amplitude: Values, waves: Values, width: Values) -> Values:
    """The smoothed residuals at the midpoints of WAVES cells, [B, WAVES]."""
    from scipy import fft  # here, since it takes longer to import than all of orce.metrics

    damped = amplitude * np.exp(-((waves * width[:, None]) ** 2) / 2)
    # The sum a_0 + 2 sum_k a_k cos(pi k t) at the midpoints t of WAVES cells is a discrete cosine transform.
    return np.asarray(fft.dct(damped, type=3, axis=1))


EXTRA: dict[str, Metric] = {
    "nll": nll,
    "augrc": augrc,
    "prr": prr,
    "auarc": auarc,
    "adaptive_ece": adaptive_ece(10),
    "smooth_ece": smooth_ece,
}
