"""Where measured steps are to be expected around a predicted one, by the kind of mesh.

The errors of a step's ops are not independent: what is wrong with a program, a host or a link is
wrong in all of its steps. So an interval comes from whole steps, of one kind of mesh at a time, and
is as wide as a model needs that it has not seen: each fitted model is left out in turn, and the
10th and 90th percentiles of the others' residuals are spread about their median until eight of ten
steps of the one left out lie within.

What no fitted step divides by (tensor parallelism over four ranks) has constants between those of
two and of eight. How far off such steps are, fitted steps tell as well: of each degree, predicted
with constants that were fitted on all others (``megatron.WITHOUT``). Any other degree, of pipelines
too, has the interval of all kinds, as much wider as that of meshes that were never measured
(``gobrrr.prediction.mesh.bands``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gobrrr.prediction.mesh.bands import WIDER

LOW, HIGH = 10, 90
WANTED = 0.8
# Spreads that are tried.
SPREADS = tuple(float(each) for each in np.round(np.arange(1.0, 4.01, 0.05), 2))
# Of a kind with fewer fitted models nothing is known of the next one: it gets the interval of all.
LEAST_MODELS = 2
LEAST_DEGREES = 2
ANY, ANOTHER_DEGREE = "any", "tensor of another degree"


@dataclass(frozen=True, slots=True)
class Residual:
    """A step's measured time over the predicted one, its model and the kind of its mesh.

    ``degrees``: ranks that share a layer, and stages.
    """

    ratio: float
    model: Hashable
    kind: str
    degrees: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class Interval:
    """Multiples of the predicted time; ``spread``: by how much percentiles were spread."""

    low: float
    high: float
    spread: float
    models: int

    def holds(self, ratio: float) -> bool:
        """Whether a measured step lies within."""
        return self.low <= ratio <= self.high


def intervals(
    fitted: Sequence[Residual], of_left_out: Sequence[Residual] = ()
) -> dict[str, Interval]:
    """By kind of mesh, of those with enough models, and of all together (``ANY``).

    ``of_left_out``: steps predicted with constants of all other degrees of tensor parallelism.
    """
    kinds: dict[str, list[Residual]] = {ANY: list(fitted)}
    for each in fitted:
        kinds.setdefault(each.kind, []).append(each)
    found = {}
    for kind, own in kinds.items():
        models = {each.model for each in own}
        if len(models) >= LEAST_MODELS:
            spread = spread_of(own)
            found[kind] = Interval(
                *_ends([each.ratio for each in own], spread), spread, len(models)
            )
    if len({each.degrees[0] for each in of_left_out}) >= LEAST_DEGREES:
        found[ANOTHER_DEGREE] = _of_another_degree(of_left_out)
    return found


def _of_another_degree(left_out: Sequence[Residual]) -> Interval:
    """Each degree counts as much as the others, however many steps of it there are."""
    steps = Counter(each.degrees[0] for each in left_out)
    low, high = np.percentile(
        [each.ratio for each in left_out],
        [LOW, HIGH],
        weights=[1 / steps[each.degrees[0]] for each in left_out],
        method="inverted_cdf",
    )
    models = {each.model for each in left_out}
    return Interval(float(low), float(high), 1.0, len(models))


def fitted_degrees(fitted: Sequence[Residual]) -> list[set[int]]:
    """The numbers of ranks that share a layer, and of stages, in any fitted step."""
    return [set(degrees) for degrees in zip(*(each.degrees for each in fitted))]


def has_degrees(step: Residual, degrees: Sequence[set[int]]) -> bool:
    """Whether fitted steps divide by each number that the step divides by."""
    return all(degree in met for degree, met in zip(step.degrees, degrees))


def interval_of(
    step: Residual, found: Mapping[str, Interval], degrees: Sequence[set[int]]
) -> Interval:
    """The interval of a step, among those of all kinds and ``ANY``."""
    if has_degrees(step, degrees):
        return found.get(step.kind, found[ANY])
    if ANOTHER_DEGREE in found and step.degrees[1] in degrees[1]:
        return found[ANOTHER_DEGREE]
    every = found[ANY]
    return replace(every, low=every.low**WIDER, high=every.high**WIDER)


def spread_of(own: Sequence[Residual]) -> float:
    """The least spread whose intervals hold eight of ten steps of models that they have not seen.

    Each model counts as much as the others, however many steps of it there are.
    """
    by_model: dict[Hashable, list[float]] = {}
    for each in own:
        by_model.setdefault(each.model, []).append(each.ratio)
    for spread in SPREADS:
        if _held(by_model, spread) >= WANTED:
            return spread
    return SPREADS[-1]


def _held(by_model: Mapping[Hashable, Sequence[float]], spread: float) -> float:
    shares = []
    for model, ratios in by_model.items():
        others = [ratio for other, rows in by_model.items() if other != model for ratio in rows]
        low, high = _ends(others, spread)
        shares.append(float(np.mean([low <= ratio <= high for ratio in ratios])))
    return float(np.mean(shares))


def _ends(ratios: Sequence[float], spread: float) -> tuple[float, float]:
    low, middle, high = np.log(np.percentile(ratios, [LOW, 50, HIGH]))
    return (
        float(np.exp(middle + spread * (low - middle))),
        float(np.exp(middle + spread * (high - middle))),
    )
