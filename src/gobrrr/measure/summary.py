"""Samples in, a median with its interval out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
# Of twelve samples the third smallest and the third largest hold the median in 96 % of cases.
BATCHES = 12


@dataclass(frozen=True, slots=True)
class Summary:
    """A measured quantity, in the unit of its samples.

    Attributes:
        median: of the samples.
        mean: of the samples.
        low: lower end of the 95 % interval of the median.
        high: upper end.
        n: number of samples.
    """

    median: float
    mean: float
    low: float
    high: float
    n: int


class Interval(NamedTuple):
    """A median and the interval it lies in."""

    median: float
    low: float
    high: float


def summarise(samples: Sequence[float]) -> Summary:
    """Median, mean and a distribution-free 95 % interval of the median.

    The interval lies between two order statistics: a sample is below the true median with
    probability 1/2 whatever the distribution, so the number below it is binomial(n, 1/2). Fewer
    than six samples cannot reach 95 %; their interval is the smallest and the largest. (H. A.
    David and H. N. Nagaraja, *Order Statistics*, 3rd ed., section 7.1.)

    Raises:
        ValueError: no samples, or one that is not finite.
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    if ordered.size == 0:
        raise ValueError("no samples to summarise")
    if not np.isfinite(ordered).all():
        raise ValueError("a sample is not a finite number")
    n = int(ordered.size)
    rank = _lower_rank(n)
    return Summary(
        # np.median would load numpy.ma, which takes a tenth of the time of a short command.
        median=float(0.5 * (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2])),
        mean=float(ordered.mean()),
        low=float(ordered[rank]),
        high=float(ordered[n - 1 - rank]),
        n=n,
    )


def _lower_rank(n: int) -> int:
    """Largest index k (from 0) with P(median outside [x_k, x_{n-1-k}]) <= 5 %; 0 if none has."""
    tail_limit = (1.0 - CONFIDENCE) / 2
    tail = 0.0
    for k in range(n // 2):
        # The true median is below x_k if at most k samples lie below it.
        tail += math.exp(_log_choose(n, k) - n * math.log(2.0))
        if tail > tail_limit:
            return max(k - 1, 0)
    return max(n // 2 - 1, 0)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def ratio_interval(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Median of ``a[i] / b[i]`` over pairs in the order measured, with its 95 % interval.

    ``a[i]`` and ``b[i]`` are measured next to each other, so what slows the machine for a while
    slows both. What slows one side more than the other may last for several pairs, which are then
    no independent samples: the interval is ``summarise``'s, of the medians of ``BATCHES`` batches
    of consecutive pairs (A. M. Law, *Simulation Modeling and Analysis*, 5th ed., section 9.5.3).
    Like that it holds without an assumption on the distribution, and one disturbed batch on either
    side does not move it.

    Raises:
        ValueError: no pairs, unequal lengths, or a ratio that is not a finite positive number.
    """
    numerators = np.asarray(a, dtype=np.float64)
    denominators = np.asarray(b, dtype=np.float64)
    if numerators.shape != denominators.shape:
        raise ValueError(f"{numerators.size} and {denominators.size} samples do not pair up")
    if numerators.size == 0:
        raise ValueError("no pairs to compare")
    if not ((numerators > 0).all() and (denominators > 0).all()):
        raise ValueError("a ratio needs positive samples")
    ratios = numerators / denominators
    if not np.isfinite(ratios).all():
        raise ValueError("a sample is not a finite number")
    middle = float(np.median(ratios))
    batches = np.array_split(ratios, min(ratios.size, BATCHES))
    spread = summarise([float(np.median(batch)) for batch in batches])
    return Interval(middle, min(spread.low, middle), max(spread.high, middle))
