"""The fixed cost of each op of a step: the same sequence of ops on one-element tensors.

In order and all together, because an op replayed alone in a tight loop finds its code in the
caches and costs half of what it costs in the step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.capture.op_recorder import RecordedOp
from gobrrr.capture.profile import HostProfiler, ProfilerCost, RawEvents
from gobrrr.capture.tiny_calls import CannotShrinkError, TinyCall, tiny_call
from gobrrr.timeline.data import Phase
from gobrrr.timeline.nesting import parents

REPLAYS = 7
EVENTS_PER_REPLAY = 200_000


@dataclass(frozen=True)
class FixedCosts:
    """Fixed cost of each recorded op.

    Attributes:
        time_ns: per recorded op, the profiler's own cost removed; NaN where not wanted or unknown.
        not_replayed: op name -> why it has no one-element version; its cost is the median of the
            same op elsewhere, else of all ops replayed (``estimated`` counts them).
    """

    time_ns: NDArray[np.float64]
    not_replayed: dict[str, str]
    estimated: int


def calibrate_fixed_costs(
    ops: Sequence[RecordedOp],
    wanted: NDArray[np.bool_],
    cost: ProfilerCost,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> FixedCosts:
    """Replay the ops where ``wanted`` and time each under the profiler (median of 7 replays)."""
    import torch

    trains = any(op.phase == Phase.BACKWARD for op in ops)
    # A sequence of 100 k ops repeats itself: its first part calibrates the rest by position in
    # the same call.
    calls: list[tuple[int, TinyCall]] = []
    failed: dict[str, str] = {}
    cache: dict[Any, TinyCall | None] = {}
    with torch.random.fork_rng(devices=[]):
        for index in np.flatnonzero(wanted).tolist():
            if len(calls) >= EVENTS_PER_REPLAY // 4:
                break
            op = ops[index]
            with_grad = trains and op.phase == Phase.FORWARD
            key = (op.call.name, op.call.overload, op.call.args, with_grad)
            if key not in cache:
                cache[key] = _valid_tiny_call(op, with_grad, failed)
            made = cache[key]
            if made is not None:
                calls.append((index, made))
        times = _replay([call for _, call in calls], cost, on_progress)
    per_op = np.full(len(ops), np.nan)
    by_key: dict[Any, list[float]] = defaultdict(list)
    by_name: dict[str, list[float]] = defaultdict(list)
    for (index, _), time_ns in zip(calls, times):
        if np.isnan(time_ns):
            continue
        per_op[index] = time_ns
        op = ops[index]
        by_key[op.call.name, op.call.args].append(time_ns)
        by_name[op.call.name].append(time_ns)
    everything = [time_ns for values in by_name.values() for time_ns in values]
    typical = float(np.median(everything)) if everything else np.nan
    medians: dict[Any, float] = {
        key: float(np.median(values)) for key, values in [*by_key.items(), *by_name.items()]
    }
    estimated = 0
    for index in np.flatnonzero(wanted & np.isnan(per_op)).tolist():
        call = ops[index].call
        known = medians.get((call.name, call.args), medians.get(call.name))
        estimated += known is None
        per_op[index] = typical if known is None else known
    return FixedCosts(per_op, failed, estimated)


def _valid_tiny_call(op: RecordedOp, with_grad: bool, failed: dict[str, str]) -> TinyCall | None:
    import torch

    attempts = (True, False) if with_grad else (False,)
    reason = ""
    for grad in attempts:
        try:
            made = tiny_call(op.call, with_grad=grad)
            with torch.set_grad_enabled(grad):
                made[0](*made[1], **made[2])
            return made
        except CannotShrinkError as error:
            reason = str(error)
        # Anything may be invalid on one element; the op is then estimated, and named.
        except Exception as error:
            reason = str(error).split("\n", 1)[0][:200]
    failed.setdefault(op.call.name, reason)
    return None


def _replay(
    calls: list[TinyCall], cost: ProfilerCost, on_progress: Callable[[int, int], None]
) -> NDArray[np.float64]:
    if not calls:
        return np.empty(0)

    def run() -> None:
        for function, args, kwargs in calls:
            function(*args, **kwargs)

    run()
    runs = []
    for repeat in range(REPLAYS):
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


def most_common_failures(costs: FixedCosts, ops: Sequence[RecordedOp], top: int = 3) -> list[str]:
    """Names of the ops that could not be replayed, the most frequent first."""
    counts = Counter(op.call.name for op in ops if op.call.name in costs.not_replayed)
    return [name for name, _ in counts.most_common(top)]
