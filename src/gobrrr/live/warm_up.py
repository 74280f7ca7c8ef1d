"""When a program's steps are warm: they take the same time, and none of them compiles."""

from __future__ import annotations

from gobrrr.live.measurements import LONG_STEP_S, VERY_LONG_STEP_S, Plan, settled
from gobrrr.observe.compiler_counters import graphs_compiled

# Steps that compile say nothing of steps; of a program that compiles in each step they have to do.
MOST_COMPILING = 3


class WarmUp:
    """Judges the steps so far.

    Attributes:
        wanted: how many are taken at the least.

    Args:
        plan: says how many, or leaves it to the steps.
        lengths_ns: of the steps, to which each is added.
    """

    def __init__(self, plan: Plan, lengths_ns: list[int]) -> None:
        self._given = plan.warmup
        self._lengths = lengths_ns
        self._graphs = graphs_compiled()
        self._compiling = 0
        self.wanted = plan.warmup if plan.warmup is not None else 3

    def wants_more(self, length_ns: int) -> bool:
        """Whether another step is to warm up, after one of that length."""
        before, self._graphs = self._graphs, graphs_compiled()
        self._lengths.append(length_ns)
        if self._given is not None:
            return len(self._lengths) < self.wanted
        if self._graphs > before and self._compiling < MOST_COMPILING:
            self._compiling += 1
            return True
        if length_ns > LONG_STEP_S * 1e9:
            self.wanted = 1 if length_ns > VERY_LONG_STEP_S * 1e9 else 2
        return len(self._lengths) < self.wanted or not settled(self._lengths)
