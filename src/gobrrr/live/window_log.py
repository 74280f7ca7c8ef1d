"""What a session knows of its steps so far: which are the usual ones, and what is still missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gobrrr.live.kinds.repeated_ops import may_grow
from gobrrr.live.kinds.step_kinds import Sorted, StepSorter, differ
from gobrrr.live.measurements import (
    MOST_RETRIES,
    TOO_LONG_BETWEEN,
    VARYING_RECORDED,
    Measurements,
    RecordedStep,
)
from gobrrr.live.profiling import Profiling
from gobrrr.live.watch.call_watch import CallWatch
from gobrrr.measure.process_counters import minor_faults
from gobrrr.observe.compiler_counters import graphs_compiled
from gobrrr.timeline.step_kinds import Call, Mark, StepWindow

if TYPE_CHECKING:
    from gobrrr.timeline.graph import StepOp

# A step is no longer profiled once it takes so much longer than the others, and so many seconds:
# some hundred thousand events.
MUCH_LONGER, LONGEST_S = 4.0, 0.5
# The program's modules are known after this many steps: from then on each has hooks of its own.
STEPS_TO_SETTLE = 3
# Steps without gradients that are recorded, and those that may grow: what differs between two of
# them varies.
TO_COMPARE = 2


class WindowLog:
    """Notes each window, and judges by all of them.

    Args:
        calls: what the steps call; ``None``: nothing tells them apart.
        on_settled: called once the program's modules should be known.
        recorded: usual steps to record, where steps are alike.
        of_ranks: the process is one of a job.
    """

    def __init__(
        self,
        calls: CallWatch | None,
        on_settled: Callable[[], None],
        recorded: int = 1,
        *,
        of_ranks: bool = False,
    ) -> None:
        self._calls = calls
        self._of_ranks = of_ranks
        self._wanted = recorded
        self._on_settled = on_settled
        self._faults = 0
        self._graphs = graphs_compiled()
        self.begin(Measurements())

    def begin(self, result: Measurements) -> None:
        """Forget all; what is noted from here on goes into ``result``."""
        self._result = result
        self._boundaries = 0
        self._sorter = StepSorter(result.windows)
        self._retries = self._cut = 0
        self._uneven = False
        if self._calls is not None:
            result.lines_between = self._calls.lines_between
            result.program = self._calls.program.facts

    def refuse_second_profiler(self, seen: bool) -> None:
        """Raise RuntimeError if the program has a profiler of its own: only one can run at a time.

        One that it steps may start at any step, and prepares before: whoever starts another
        meanwhile takes what that one is to record. ``seen``: one ran in its steps.
        """
        if seen or (self._calls is not None and self._calls.profilers.expected()):
            raise RuntimeError("the program runs a profiler of its own")

    def profiling(self, profiler: Any, step_s: float) -> Profiling:
        """Steps of about this length under a profiler; between calls it is seen if one is not."""
        # Ranks of a job take the same steps for each phase: none may cut its own alone.
        longest_s = math.inf if self._of_ranks else max(MUCH_LONGER * step_s, LONGEST_S)
        made = Profiling(profiler, longest_s)
        if self._calls is not None:
            self._calls.after_call = made.look
            self._calls.program.see_objects()
        return made

    def cut_again(self, profiling: Profiling | None) -> str:
        """Why steps are not to be profiled any more, of which this profile has none whole.

        ``""`` the first time: something long may be beside this one alone.
        """
        self._cut += profiling is not None and profiling.cut
        return TOO_LONG_BETWEEN if self._cut > 1 else ""

    def ended(self, begin_ns: int | None, end_ns: int, phase: str) -> None:
        """A window ends; one whose begin was not seen (``None``) is not kept."""
        calls: tuple[Call, ...] = ()
        marks: tuple[Mark, ...] = ()
        if self._calls is not None:
            calls, marks = self._calls.take(self._result.thread)
            self._boundaries += 1
            if self._boundaries == STEPS_TO_SETTLE:
                self._on_settled()
        faults, graphs = minor_faults(), graphs_compiled()
        if begin_ns is not None:
            new, compiles = faults - self._faults, graphs > self._graphs
            self._result.windows.append(
                StepWindow(begin_ns, end_ns, calls, marks, phase, new, compiles)
            )
        self._faults, self._graphs = faults, graphs

    def skipped(self) -> None:
        """Windows came of which nothing is known but what others noted; the next one begins."""
        if self._calls is not None:
            self._calls.take(self._result.thread)
        self._faults, self._graphs = minor_faults(), graphs_compiled()

    def closed(self, begin_ns: int | None, phase: str) -> None:
        """The program ends: what it did after its last step, up to the end of its last call."""
        if self._calls is None or begin_ns is None:
            return
        calls, marks = self._calls.take(self._result.thread)
        ends = [call.end_ns for call in calls] + [mark.end_ns for mark in marks]
        if ends:
            compiles = graphs_compiled() > self._graphs
            self._result.after_last = StepWindow(
                begin_ns, max(ends), calls, marks, phase, compiles=compiles
            )

    def roots(self) -> dict[str, Any] | None:
        """The modules that the steps call, by name (``CallWatch.roots``)."""
        return None if self._calls is None else self._calls.roots()

    @property
    def last(self) -> int:
        """The place of the window that ended last."""
        return len(self._result.windows) - 1

    def sorted(self) -> Sorted:
        """The steps so far, told apart."""
        return self._sorter.sorted()

    def alike(self) -> bool:
        """Whether the steps so far are of one kind; without their calls nobody knows."""
        return self._calls is not None and self.sorted().alike

    def varying(self) -> bool:
        """Whether the steps differ in size, by those so far."""
        return self.sorted().varying

    def keep(self, recorded: list[StepOp]) -> None:
        """The ops of the window that ended last were recorded."""
        self._result.recorded_steps.append(RecordedStep(recorded, self.last))
        self._result.recorded = self._result.recorded or recorded

    def wants_more_recorded(self, affordable: bool) -> bool:
        """The step just recorded was not the usual one, or the steps differ from each other."""
        found = self.sorted()
        if not found.pure(self.last):
            self._retries += 1
            return self._retries <= _retries(affordable)
        # What a program infers from may grow from step to step, in which all else is alike.
        infers = bool(found.shape) and not any(key.gradients for key in found.shape)
        compared = infers or may_grow(self._result.recorded_steps[-1].ops)
        few = self._recorded(found) < max(self._wanted, TO_COMPARE if compared else 0)
        return affordable and (few or self._lacks_sizes(found))

    def one_is_too_few(self, affordable: bool) -> bool:
        """Whether the profiled steps do different things, so that more have to be recorded."""
        found = self.sorted()
        result = self._result
        self._uneven = differ(
            [
                raw
                for raw, window in zip(result.profiled, result.profiled_windows)
                if found.pure(window)
            ]
        )
        return affordable and self._lacks_sizes(found)

    def lacks_recorded(self, affordable: bool) -> bool:
        """Whether too few of the recorded steps are usual ones, and another try is worth it."""
        if self._retries > _retries(affordable) or self._result.unrecorded:
            return False
        found = self.sorted()
        return not self._recorded(found) or (affordable and self._lacks_sizes(found))

    def _lacks_sizes(self, found: Sorted) -> bool:
        differs = found.varying or self._uneven
        few = self._recorded(found) < VARYING_RECORDED
        return differs and few and not self._result.unrecorded

    def lacks_profiled(self) -> bool:
        """The same of the profiled steps."""
        known = self._result.profiled_windows
        if self._retries > MOST_RETRIES or not known:
            return False
        found = self.sorted()
        if any(found.pure(window) for window in known):
            return False
        self._retries += 1
        return True

    def knows_lines(self) -> bool:
        """Whether one of the usual steps was sampled."""
        return any(map(self.sorted().pure, self._result.sampled_windows))

    def _recorded(self, found: Sorted) -> int:
        return sum(found.pure(step.window) for step in self._result.recorded_steps)


def _retries(affordable: bool) -> int:
    # Of steps that are long to record one more shows whether any is without the rest.
    return MOST_RETRIES if affordable else 1
