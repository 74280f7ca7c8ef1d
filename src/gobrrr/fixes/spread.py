"""How far predictions lay from what trials measured, and so how wide their intervals are told.

A fix gives its own low and high estimate: how sure its arithmetic is of itself. How sure that is
comes from trials. Each error was divided by the fix's own reach on that side; of the farthest that
each program had in a class of fixes, the tenth and ninetieth percentiles are the factors below
(split conformal intervals, J. Lei et al., JASA 113, 2018, section 5.2; of few programs the
eightieth percentile of the error's size, on both sides): 80 % of savings lie inside, as far as
programs are like those.

The trials are those of the benchmark's **original** programs, the fitted set, in
``benchmarks/results/fixes_amd-epyc_2026-11-21.json`` (torch 2.13, one thread of an EPYC), with what
was predicted of them then; ``benchmarks/fixes/spread.py`` computes the table, and a test compares.
Nothing of the new programs, which score the intervals, is in it.

What fewer than five programs tell of, and every fix on a GPU, where too few were tried, has the
extremes of all trials; but one whose own ends were measured there (``Prospect.own_ends``) keeps
them, and ``FLOOR`` is all that is added. On a GPU no more than what a fix acts on is saved, and
none is told to lose time whose own arithmetic says that it cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gobrrr.diagnosis.facts import Facts

# Classes of fixes with trials enough to judge their predictions by.
COMPILERS, OPTIMIZERS, ALLOCATORS, LESS_WORK, KERNELS = (
    "compilers", "optimizers", "allocators", "less work", "kernels",
)  # fmt: skip
# Part of the step that is added to a fix's own reach on either side: what a trial is uncertain by.
FLOOR = 0.03


@dataclass(frozen=True, slots=True)
class Spread:
    """Times a fix's own reach that savings lie below and above what is expected.

    ``programs``: how many of the fitted set say so; 0: none does.
    """

    below: float
    above: float
    programs: int


SPREADS: Mapping[str, Spread] = {
    ALLOCATORS: Spread(2.12, 2.12, 8),
    COMPILERS: Spread(1.08, 1.5, 21),
    KERNELS: Spread(0.92, 0.92, 6),
    LESS_WORK: Spread(0.5, 0.99, 9),
    OPTIMIZERS: Spread(1.39, 1.39, 8),
}
UNSUPPORTED = Spread(7.25, 3.44, 0)
# Of a fix whose ends were measured where it is told.
_OWN = Spread(1.0, 1.0, 0)


def interval_of(
    kind: str,
    facts: Facts,
    low_s: float,
    expected_s: float,
    high_s: float,
    acts_on_s: float | None = None,
    *,
    own_ends: bool = False,
) -> tuple[float, float]:
    """Low and high saving that the trials of this class support, from a fix's own.

    Nothing saves more than the step. ``acts_on_s``: what the fix takes time from, if known;
    ``own_ends``: as ``Prospect`` has it.
    """
    own_low_s, own_high_s = low_s, high_s
    spread = UNSUPPORTED if facts.on_gpu else SPREADS.get(kind, UNSUPPORTED)
    spread = _OWN if own_ends else spread
    floor_s = FLOOR * facts.step_s
    low_s = expected_s - spread.below * (expected_s - low_s + floor_s)
    high_s = expected_s + spread.above * (high_s - expected_s + floor_s)
    if facts.on_gpu and acts_on_s is not None:
        most_s = max(acts_on_s, own_high_s)
        low_s = max(low_s, 0.0 if own_low_s >= 0.0 else min(own_low_s, -most_s))
        high_s = min(high_s, most_s)
    return low_s, min(high_s, max(facts.step_s, expected_s))
