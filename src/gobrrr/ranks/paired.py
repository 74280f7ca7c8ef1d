"""How sure it is that one rank's steps are longer than the others', step by step.

All ranks of a job take the same steps at the same time, so what disturbs a step of all (a host that
is busy) is no difference between them: each step of a rank is compared with the same step of the
others. And steps are not independent of each other: for seconds on end a processor is slower,
because its sibling works or another guest of the machine does. Of twenty steps in two such
stretches one learns little more than of two.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

# Of fewer pairs neither their spread nor how they follow each other is known well.
FEWEST_PAIRS = 12
# What part of the differences is left out on either side: steps that something else disturbed.
_TRIMMED = 0.2


def sure_of_pairs(differences: Float64) -> float:
    """How far differences are from 0 on the whole, in standard deviations of chance.

    Their trimmed mean over its error (Tukey and McLaughlin, "Less vulnerable confidence and
    significance procedures for location based on a single sample", 1963), of as many of them as
    would be independent; what Student's distribution says of it is told by the normal one's
    deviations (Wallace, "Bounds on normal approximations to Student's and the chi-square
    distributions", 1959).
    """
    count = len(differences)
    left_out = int(_TRIMMED * count)
    kept = count - 2 * left_out
    if kept < 2:
        return 0.0
    ordered = np.sort(differences)
    mean = float(ordered[left_out : count - left_out].mean())
    if mean == 0:
        return 0.0
    within = np.clip(ordered, ordered[left_out], ordered[count - left_out - 1])
    repeats = repeated(differences)
    error = math.sqrt(float(within.var()) * count * repeats / (kept * (kept - 1)))
    # Times are no more exact than this, and chance is never excluded altogether.
    ratio = mean / max(error, 1e-9 * abs(mean))
    freedom = max(1.0, kept / repeats - 1)
    sure = math.sqrt(freedom * math.log1p(ratio * ratio / freedom))
    return math.copysign(sure * (8 * freedom + 1) / (8 * freedom + 3), mean)


def repeated(values: Float64) -> float:
    """How many values in a row tell what one independent value would; at least 1.

    By the correlation of their ranks with those of later ones, of which few are taken and with
    falling weight (Newey and West, "A simple, positive semi-definite, heteroskedasticity and
    autocorrelation consistent covariance matrix", 1987).
    """
    count = len(values)
    apart = _ranks(values) - (count + 1) / 2
    total = float(apart @ apart)
    if total == 0:
        return 1.0
    lags = round(count ** (1 / 3))
    found = 1.0
    for lag in range(1, min(lags, count - 1) + 1):
        found += 2 * (1 - lag / (lags + 1)) * float(apart[lag:] @ apart[:-lag]) / total
    return max(1.0, found)


def _ranks(values: Float64) -> Float64:
    """1 for the least; equal ones share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place.reshape(-1)], np.float64)
