"""A costed step and its replay on two lanes -> a ``Diagnosis``: the object of a measured step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gobrrr.attribution.leaves import COPY, REGIME_NAMES, UNMODELLED, KernelShares
from gobrrr.attribution.split import leaves_of_kernels, roof_times_ns, split_kernels
from gobrrr.diagnosis.schema import (
    DeviceRecord,
    DeviceTime,
    Diagnosis,
    IdleRow,
    Spread,
    StepRecord,
    TimelineColumns,
)
from gobrrr.models.host_lane import HostCall, HostCosts, host_seconds
from gobrrr.models.replay import Replay, replay
from gobrrr.models.target import TargetDevice
from gobrrr.pipeline.predicted_costs import CostedOp
from gobrrr.pipeline.predicted_host import host_share
from gobrrr.pipeline.records import ceiling_rows, level_rows
from gobrrr.pipeline.tables import (
    PHASE_NAMES,
    OpShare,
    coverage_of,
    group_rows,
    op_class_of,
    op_rows,
)
from gobrrr.pipeline.verdict import mfu_of, regime_of, split_of, verdict_of
from gobrrr.timeline.data import HostKind, Phase

# Idle causes of the replay, by the leaf that they count under.
_GAP_LEAVES = {
    "launch": "overhead.launch",
    "host": "overhead.dispatch",
    "wait": "overhead.synchronisation",
}


@dataclass(frozen=True, slots=True)
class ErrorBand:
    """How far the model's steps lay from measured ones.

    Attributes:
        low, high: measured over predicted, the extremes of the steps measured.
        source: the result file that says so.
    """

    low: float
    high: float
    source: str


def build_prediction(
    ops: Sequence[CostedOp],
    device: TargetDevice,
    host: HostCosts,
    *,
    source: dict[str, Any],
    environment: dict[str, Any],
    notices: Sequence[str],
    peak_memory_bytes: int | None,
    band: ErrorBand | None,
) -> Diagnosis:
    """Replay the step as one of many, and lay it out as tables.

    On a device the host issues ops and the device runs their kernels in order; on a CPU one lane
    does both, so that the step is the sum of dispatch and kernels. Where the host may well take
    longer than it is taken to, ``source["lower_bound"]`` is true and the interval has no upper end
    (its ``high`` is the prediction).
    """
    ran = _one_lane(ops, host) if device.kind == "cpu" else _two_lanes(ops, host)
    shares = _shares(ops)
    leaves = _leaves(shares, ran)
    step_s = sum(leaves.values())
    of_host = None
    if device.kind != "cpu":
        of_host = host_share(
            ops, host, step_s=step_s, exposed_s=ran.causes_s["host"],
            compiled=bool(source.get("compile")),
        )  # fmt: skip
        source = {**source, "lower_bound": of_host.lower_bound, "host_s": of_host.total_s}
        notices = [*of_host.sentences, *notices]
    items = [
        OpShare(
            call=op.call, work=op.work, roof=op.roof, share=row, host_ns=idle * 1e9,
            module=op.module, source=op.source, phase=op.phase,
        )
        for op, row, idle in zip(ops, _rows(ops), ran.idle_before_s)
    ]  # fmt: skip
    regime, close = regime_of(leaves)

    def grouped(key: Callable[[OpShare], tuple[str, str | None]]) -> list[Any]:
        return group_rows(items, shares, key, step_s)

    trains = any(op.phase is Phase.BACKWARD for op in ops)
    diagnosis = Diagnosis(
        environment=environment,
        source=source,
        device=DeviceRecord(
            name=device.name,
            kind=device.kind,
            memory_bytes=device.memory_bytes,
            ceilings=ceiling_rows(device.ceilings),
            levels=level_rows(device.ceilings),
        ),
        step=StepRecord(
            time_s=_spread(step_s, band, lower_bound=of_host is not None and of_host.lower_bound),
            kind="training step" if trains else "step",
        ),
        split=split_of(leaves),
        leaves=leaves,
        regime=regime,
        close=close,
        coverage=coverage_of(items, shares, 0.0),
        ops=op_rows([item for item in items if item.share >= 0], shares),
        classes=grouped(lambda item: (op_class_of(item), None)),
        modules=grouped(lambda item: (item.module, PHASE_NAMES[item.phase])),
        lines=grouped(lambda item: (item.source, PHASE_NAMES[item.phase])),
        phases=grouped(lambda item: (PHASE_NAMES[item.phase], None)),
        idle=_idle_rows(leaves, ops, ran),
        device_time=_device_time(ops, step_s) if device.kind != "cpu" else None,
        timeline=_timeline(ops, ran, host, shares, step_s),
        notices=[*device.notices, *notices],
        counters=_counters(ops, peak_memory_bytes),
    )
    diagnosis.mfu, diagnosis.mfu_dtype = mfu_of(
        ((op.work, 1.0) for op in ops if op.kernels), device.ceilings, step_s
    )
    fraction = diagnosis.coverage.modelled_time_fraction
    if fraction is None or fraction >= 0.9:
        diagnosis.speed_of_light_s = sum(
            time_s for name, time_s in leaves.items() if name.endswith(".roof")
        )
    diagnosis.verdict = verdict_of(diagnosis)
    diagnosis.check()
    return diagnosis


@dataclass(frozen=True, slots=True)
class _Ran:
    """A step that was replayed: seconds of each lane, per op and in all."""

    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    issued_s: tuple[float, ...]
    idle_before_s: tuple[float, ...]
    causes_s: dict[str, float]


def _two_lanes(ops: Sequence[CostedOp], host: HostCosts) -> _Ran:
    calls: list[HostCall] = []
    last: list[int] = []
    seconds: list[float] = []
    for op in ops:
        calls += [op.host_call] * op.host_calls
        seconds += [0.0] * (op.host_calls - 1) + [op.device_s]
        last.append(len(calls) - 1)
    ran: Replay = replay(calls, seconds, host)
    if not ran.ops:
        # Nothing was launched: the host alone takes time.
        idle = tuple(op.host_calls * host_seconds(op.host_call, host) for op in ops)
        times = tuple(np.cumsum(idle).tolist())
        return _Ran(times, times, times, idle, {"host": ran.host_s})
    rows = [ran.ops[i] for i in last]
    device = 0.0
    idle_before = []
    for op, row in zip(ops, rows):
        if op.kernels:
            idle_before.append(max(row.end_s - device - op.device_s, 0.0))
            device = row.end_s
        else:
            idle_before.append(0.0)
    causes = {"launch": ran.gap_s + ran.launch_s, "host": ran.host_s, "wait": ran.wait_s}
    return _Ran(
        tuple(row.start_s for row in rows),
        tuple(row.end_s for row in rows),
        tuple(row.issued_s for row in rows),
        tuple(idle_before),
        causes,
    )


def _one_lane(ops: Sequence[CostedOp], host: HostCosts) -> _Ran:
    start, end, idle = [], [], []
    now = 0.0
    for op in ops:
        dispatch = op.host_calls * host_seconds(op.host_call, host)
        idle.append(dispatch)
        start.append(now + dispatch)
        now += dispatch + op.device_s
        end.append(now)
    return _Ran(tuple(start), tuple(end), tuple(start), tuple(idle), {"host": sum(idle)})


def _rows(ops: Sequence[CostedOp]) -> list[int]:
    """The row of each op in the shares: only ops that launch kernels have one."""
    rows, count = [], 0
    for op in ops:
        rows.append(count if op.kernels else -1)
        count += bool(op.kernels)
    return rows


def _shares(ops: Sequence[CostedOp]) -> KernelShares:
    working = [op for op in ops if op.kernels]
    regime = [
        COPY if op.is_copy else UNMODELLED if op.roof is None else op.roof.regime for op in working
    ]
    return split_kernels(
        np.arange(len(working), dtype=np.int64),
        np.array([op.device_s * 1e9 for op in working], np.float64),
        np.array(regime, np.uint8),
        roof_times_ns([op.roof for op in working]),
        fixed_ns=np.array([op.fixed_s * 1e9 for op in working], np.float64),
        page_faults_ns=np.array([op.page_faults_s * 1e9 for op in working], np.float64),
    )


def _leaves(shares: KernelShares, ran: _Ran) -> dict[str, float]:
    kernels = leaves_of_kernels(shares, "overhead.kernel_fixed_cost")
    leaves = {name: time_ns * 1e-9 for name, time_ns in kernels.items()}
    for cause, time_s in ran.causes_s.items():
        leaves[_GAP_LEAVES[cause]] += time_s
    return leaves


def _spread(step_s: float, band: ErrorBand | None, *, lower_bound: bool) -> Spread:
    low, high = (1.0, 1.0) if band is None else (band.low, band.high)
    if lower_bound:
        high = 1.0
    return Spread(median=step_s, mean=step_s, low=step_s * low, high=step_s * high, n=0)


def _idle_rows(leaves: dict[str, float], ops: Sequence[CostedOp], ran: _Ran) -> list[IdleRow]:
    rows = [
        IdleRow(cause=name.removeprefix("overhead."), time_s=leaves[name])
        for name in ("overhead.launch", "overhead.synchronisation")
        if leaves[name] > 0
    ]
    # The host's lateness, by the lines that it was at: in proportion to the idle time before
    # their kernels.
    by_line: dict[str, float] = {}
    for op, idle in zip(ops, ran.idle_before_s):
        by_line[op.source] = by_line.get(op.source, 0.0) + idle
    total = sum(by_line.values())
    late_s = leaves["overhead.dispatch"]
    if late_s > 0 and total > 0:
        rows += [
            IdleRow(cause="dispatch", time_s=late_s * idle / total, source=line or None)
            for line, idle in by_line.items()
            if idle > 0
        ]
    rows.sort(key=lambda row: -row.time_s)
    return rows


def _device_time(ops: Sequence[CostedOp], step_s: float) -> DeviceTime:
    copies = sum(op.device_s for op in ops if op.is_copy)
    busy = sum(op.device_s for op in ops)
    return DeviceTime(
        window_s=step_s,
        busy_s=busy,
        compute_kernels_s=busy - copies,
        collectives_s=0.0,
        exposed_collectives_s=0.0,
        exposed_copies_s=copies,
    )


def _timeline(
    ops: Sequence[CostedOp],
    ran: _Ran,
    host: HostCosts,
    shares: KernelShares,
    step_s: float,
) -> TimelineColumns:
    names = list(dict.fromkeys(op.call.name for op in ops))
    index = {name: i for i, name in enumerate(names)}
    working = [i for i, op in enumerate(ops) if op.kernels]

    def ns(seconds: float) -> int:
        return round(min(max(seconds, 0.0), step_s) * 1e9)

    begin = [
        issued - op.host_calls * host_seconds(op.host_call, host)
        for op, issued in zip(ops, ran.issued_s)
    ]
    regimes = ["copy" if r == COPY else REGIME_NAMES[r] for r in shares.regime.tolist()]
    return TimelineColumns(
        names=names,
        host_start_ns=[ns(time) for time in begin],
        host_duration_ns=[ns(stop) - ns(low) for low, stop in zip(begin, ran.issued_s)],
        host_thread=[0] * len(ops),
        host_kind=[int(HostKind.OP)] * len(ops),
        host_name=[index[op.call.name] for op in ops],
        kernel_start_ns=[ns(ran.start_s[i]) for i in working],
        kernel_duration_ns=[ns(ran.end_s[i]) - ns(ran.start_s[i]) for i in working],
        kernel_stream=[0] * len(working),
        kernel_name=[index[ops[i].call.name] for i in working],
        kernel_regime=regimes,
    )


def _counters(ops: Sequence[CostedOp], peak_memory_bytes: int | None) -> dict[str, float]:
    counters = {
        "kernels": float(sum(op.kernels for op in ops)),
        "ops": float(len(ops)),
        "copies": float(sum(op.is_copy for op in ops)),
        "synchronisations": float(sum(op.host_call.synchronises for op in ops)),
        "flops": sum((op.work.flops or 0.0) for op in ops if op.work is not None),
        "bytes": float(sum((op.work.bytes_moved or 0) for op in ops if op.work is not None)),
    }
    if peak_memory_bytes is not None:
        counters["peak_memory_bytes"] = float(peak_memory_bytes)
    return counters


__all__ = ["ErrorBand", "build_prediction"]
