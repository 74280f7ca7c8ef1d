"""The fixed cost of each op of a step: the same sequence of ops on one-element tensors.

In order and all together, because an op replayed alone in a tight loop finds its code in the
caches and costs half of what it costs in the step. Only operators that are known to be safe on
one element are called (``safe_ops``); in the place of any other stands a safe one of its kind.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.devices.accelerator import profiler_runs
from gobrrr.live.calibration.tiny_calls import (
    CannotShrinkError,
    TinyCall,
    replaced_by_program,
    tiny_call,
)
from gobrrr.live.profiles.profile import HostProfiler, ProfilerCost, RawEvents
from gobrrr.live.program_modes import outside_the_program
from gobrrr.observe.native_warnings import native_warnings_dropped
from gobrrr.timeline.data import Int64, Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.nesting import parents
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of

REPLAYS = 7
# Replays stop after these seconds, but not before this many: the median of one is no median.
REPLAY_BUDGET_S, FEWEST_REPLAYS = 3.0, 3
# A sequence of more ops than these repeats itself: stretches of it, from its forward pass to its
# optimizer, calibrate the rest.
STRETCHES, STRETCH = 24, 500

_ONE = TensorSpec((1,), "float32", (1,), device="cpu")
_ONE_BY_ONE = TensorSpec((1, 1), "float32", (1, 1), device="cpu")
# What an op costs before it does anything, where it cannot be called on one element itself: an op
# of PyTorch's own that checks and allocates as much. By the class of its work.
STAND_INS: dict[str, OpCall] = {
    "contraction": OpCall("aten::addmm", (_ONE, _ONE_BY_ONE, _ONE_BY_ONE, 1, 1)),
    "normalisation": OpCall("aten::native_layer_norm", (_ONE, (1,), _ONE, _ONE, 1e-5)),
    "elementwise": OpCall("aten::add", (_ONE, _ONE, 1), overload="Tensor"),
    "movement": OpCall("aten::index_select", (_ONE, 0, TensorSpec((1,), "int64", (1,)))),
    "other": OpCall("aten::add", (_ONE, _ONE, 1), overload="Tensor"),
}


@dataclass(frozen=True)
class FixedCosts:
    """Fixed cost of each recorded op.

    Attributes:
        time_ns: per recorded op, the profiler's own cost removed; NaN where not wanted or unknown.
        not_replayed: op name -> why it was not called on one element.
        estimated: how many ops have the fixed cost of another op: of the one that stood in for
            them, else (nothing could) the median of all.
        stand_ins: op name -> the op whose fixed cost it has.
    """

    time_ns: NDArray[np.float64]
    not_replayed: dict[str, str]
    estimated: int
    stand_ins: dict[str, str] = field(default_factory=dict)


def calibrate_fixed_costs(
    ops: Sequence[StepOp],
    wanted: NDArray[np.bool_],
    cost: ProfilerCost,
    *,
    by_clock: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> FixedCosts:
    """Replay the ops where ``wanted`` and time each under the profiler (median of the replays).

    ``by_clock``: each is timed from Python, as steps that were timed through the dispatcher are.
    """
    makers = _Makers(trains=any(op.phase == Phase.BACKWARD for op in ops))
    chosen = np.flatnonzero(wanted)
    calls: list[tuple[int, TinyCall]] = []
    with outside_the_program():
        with native_warnings_dropped():
            for index in _replayed(ops, chosen).tolist():
                made = makers.call_for(ops[index])
                if made is not None:
                    calls.append((index, made))
        times = _replay([call for _, call in calls], cost, by_clock, on_progress)
    per_op = np.full(len(ops), np.nan)
    by_call: dict[Any, list[float]] = defaultdict(list)
    by_name: dict[str, list[float]] = defaultdict(list)
    for (index, _), time_ns in zip(calls, times.tolist()):
        if time_ns != time_ns:
            continue
        per_op[index] = time_ns
        call = ops[index].call
        by_call[call.name, call.args].append(time_ns)
        by_name[call.name].append(time_ns)
    everything = [time_ns for values in by_name.values() for time_ns in values]
    typical = float(np.median(everything)) if everything else np.nan
    medians: dict[Any, float] = {
        key: float(np.median(values)) for key, values in [*by_call.items(), *by_name.items()]
    }
    estimated = 0
    for index in chosen.tolist():
        call = ops[index].call
        estimated += call.name in makers.stand_ins or call.name not in medians
        if np.isnan(per_op[index]):
            known = medians.get((call.name, call.args), medians.get(call.name))
            per_op[index] = typical if known is None else known
    return FixedCosts(per_op, makers.failed, estimated, makers.stand_ins)


def _replayed(ops: Sequence[StepOp], chosen: Int64) -> Int64:
    """Of the ops to time, those that are called: all, or stretches of them and the first of each
    name that is in none.
    """
    if len(chosen) <= STRETCHES * STRETCH:
        return chosen
    begins = np.linspace(0, len(chosen) - STRETCH, STRETCHES).astype(np.int64)
    stretches = chosen[(begins[:, None] + np.arange(STRETCH)).ravel()]
    seen = {ops[index].call.name for index in stretches.tolist()}
    others: dict[str, int] = {}
    for index in chosen.tolist():
        if (name := ops[index].call.name) not in seen:
            others.setdefault(name, index)
    return np.union1d(stretches, np.array([*others.values()], np.int64))


class _Makers:
    """Makes each distinct call once, and tries it once."""

    def __init__(self, *, trains: bool) -> None:
        self._trains = trains and not _saves_tensors_elsewhere()
        self._made: dict[Any, TinyCall | None] = {}
        self._replaced = replaced_by_program()
        self.failed: dict[str, str] = {}
        self.stand_ins: dict[str, str] = {}

    def call_for(self, op: StepOp) -> TinyCall | None:
        """The op on one element, or what stands in for it; ``None`` if not even that runs."""
        with_grad = self._trains and op.phase == Phase.FORWARD
        key = (op.call.name, op.call.overload, op.call.args, with_grad)
        if key not in self._made:
            made = self._valid(op.call, with_grad)
            self._made[key] = self._stand_in(op.call, with_grad) if made is None else made
        return self._made[key]

    def _stand_in(self, call: OpCall, with_grad: bool) -> TinyCall | None:
        work = work_of(call)
        other = STAND_INS["other" if work is None else work.op_class]
        self.stand_ins[call.name] = other.name
        return self._valid(other, with_grad)

    def _valid(self, call: OpCall, with_grad: bool) -> TinyCall | None:
        import torch

        reason = ""
        for grad in (True, False) if with_grad else (False,):
            try:
                made = tiny_call(call, with_grad=grad, replaced=self._replaced)
                with torch.set_grad_enabled(grad):
                    made[0](*made[1], **made[2])
                return made
            except CannotShrinkError as error:
                reason = str(error)
            # A combination of arguments that one element does not allow, which PyTorch has
            # checked: the op is then estimated, and named.
            except Exception as error:
                reason = str(error).split("\n", 1)[0][:200]
        self.failed.setdefault(call.name, reason)
        return None


def _saves_tensors_elsewhere() -> bool:
    """Whether the program has hooks that are called with each tensor that autograd saves."""
    import torch

    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is not None and top(True) is not None


def _replay(
    calls: list[TinyCall],
    cost: ProfilerCost,
    by_clock: bool,
    on_progress: Callable[[int, int], None],
) -> NDArray[np.float64]:
    if not calls:
        return np.empty(0)

    def run() -> None:
        for function, args, kwargs in calls:
            function(*args, **kwargs)

    with native_warnings_dropped():
        run()
        if by_clock or profiler_runs():
            return _replay_by_clock(calls)
    runs = []
    begin = time.perf_counter()
    for repeat in range(REPLAYS):
        if repeat >= FEWEST_REPLAYS and time.perf_counter() - begin > REPLAY_BUDGET_S:
            break
        with native_warnings_dropped():
            profiler = HostProfiler()
            profiler.start()
            run()
            profiler.mark()
            (step,) = profiler.stop()
        times = top_level_times(step, cost)
        if len(times) == len(calls):
            runs.append(times)
        on_progress(repeat + 1, REPLAYS)
    if not runs:
        return np.full(len(calls), np.nan)
    return np.asarray(np.median(np.array(runs), axis=0), dtype=np.float64)


def _replay_by_clock(calls: list[TinyCall]) -> NDArray[np.float64]:
    """As steps that were timed through the dispatcher: a call from Python is in every duration."""
    clock = time.perf_counter_ns
    runs = []
    for _ in range(REPLAYS):
        marks = [clock()]
        for function, args, kwargs in calls:
            function(*args, **kwargs)
            marks.append(clock())
        runs.append(np.diff(np.array(marks, np.float64)))
    return np.asarray(np.median(np.array(runs), axis=0), dtype=np.float64)


def top_level_times(step: RawEvents, cost: ProfilerCost) -> NDArray[np.float64]:
    """Durations of the outermost operators, the recording of them and of what is nested removed."""
    own = np.flatnonzero((step.thread == 0) & ~step.annotation)
    start, end = step.start_ns[own], step.end_ns[own]
    parent = parents(start, end, step.thread[own])
    top = np.flatnonzero(parent < 0)
    # Events are sorted, so everything up to the next outermost one is nested in this one.
    nested = np.diff(np.append(top, len(own))) - 1
    duration = (end - start)[top].astype(np.float64)
    corrected = duration - cost.inside_ns - nested * (cost.inside_ns + cost.outside_ns)
    return np.asarray(np.maximum(corrected, 0.0))


def most_common_failures(costs: FixedCosts, ops: Sequence[StepOp], top: int = 3) -> list[str]:
    """Names of the ops that could not be replayed, the most frequent first."""
    counts = Counter(op.call.name for op in ops if op.call.name in costs.not_replayed)
    return [name for name, _ in counts.most_common(top)]
