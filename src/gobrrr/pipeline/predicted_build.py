"""A costed step and its replay on two lanes -> a ``Diagnosis``: the object of a measured step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.attributed import MEDIAN, Attributed, AttributedOp, DrawnStep, StepTimes
from gobrrr.attribution.device_time import DeviceTimeNs
from gobrrr.attribution.leaves import COPY, UNMODELLED, IdleGap, KernelShares
from gobrrr.attribution.split import leaves_of_kernels, roof_times_ns, split_kernels
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.measure import Summary
from gobrrr.models.host_lane import HostCall, HostCosts, host_seconds
from gobrrr.models.replay import Replay, replay
from gobrrr.models.target import TargetDevice
from gobrrr.pipeline.predicted_costs import CostedOp
from gobrrr.pipeline.predicted_host import host_share
from gobrrr.timeline.data import Device, HostKind, HostSpans, KernelKind, Kernels

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
        AttributedOp(
            call=op.call, work=op.work, roof=op.roof, share=row, host_ns=idle * 1e9,
            module=op.module, source=op.source, phase=op.phase,
        )
        for op, row, idle in zip(ops, _rows(ops), ran.idle_before_s)
    ]  # fmt: skip
    lower_bound = of_host is not None and of_host.lower_bound
    step = Attributed(
        device=Device(device.name, device.kind, memory_bytes=device.memory_bytes),
        ceilings=device.ceilings,
        step=StepTimes(_time(step_s, band, lower_bound=lower_bound), MEDIAN),
        leaves_ns={name: time_s * 1e9 for name, time_s in leaves.items()},
        ops=tuple(items),
        shares=shares,
        drawn=_drawn(ops, ran, host, shares, step_s),
        idle=tuple(_gaps(leaves, ops, ran)),
        device_time=_device_time(ops, step_s) if device.kind != "cpu" else None,
        counters=_counters(ops, peak_memory_bytes),
        notices=(*device.notices, *notices),
    )
    return assemble(step, source=source, environment=environment)


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


def _time(step_s: float, band: ErrorBand | None, *, lower_bound: bool) -> Summary:
    low, high = (1.0, 1.0) if band is None else (band.low, band.high)
    if lower_bound:
        high = 1.0
    return Summary(median=step_s, mean=step_s, low=step_s * low, high=step_s * high, n=0)


def _gaps(leaves: dict[str, float], ops: Sequence[CostedOp], ran: _Ran) -> list[IdleGap]:
    gaps = [
        IdleGap(leaves[name] * 1e9, name)
        for name in ("overhead.launch", "overhead.synchronisation")
    ]
    # The host's lateness, by the lines that it was at: in proportion to the idle time before
    # their kernels.
    total_s = sum(ran.idle_before_s)
    late_ns = leaves["overhead.dispatch"] * 1e9
    if total_s > 0:
        gaps += [
            IdleGap(late_ns * idle / total_s, "overhead.dispatch", op.source or None)
            for op, idle in zip(ops, ran.idle_before_s)
        ]
    return gaps


def _device_time(ops: Sequence[CostedOp], step_s: float) -> DeviceTimeNs:
    copies_s = sum(op.device_s for op in ops if op.is_copy)
    busy_s = sum(op.device_s for op in ops)
    return DeviceTimeNs(
        window_ns=round(step_s * 1e9),
        busy_ns=round(busy_s * 1e9),
        compute_kernels_ns=round((busy_s - copies_s) * 1e9),
        collectives_ns=0,
        exposed_collectives_ns=0,
        exposed_copies_ns=round(copies_s * 1e9),
    )


def _drawn(
    ops: Sequence[CostedOp],
    ran: _Ran,
    host: HostCosts,
    shares: KernelShares,
    step_s: float,
) -> DrawnStep:
    names = list(dict.fromkeys(op.call.name for op in ops))
    index = {name: i for i, name in enumerate(names)}
    working = [i for i, op in enumerate(ops) if op.kernels]

    def ns(seconds: Sequence[float]) -> NDArray[np.int64]:
        return np.rint(np.clip(seconds, 0.0, step_s) * 1e9).astype(np.int64)

    begin = [
        issued - op.host_calls * host_seconds(op.host_call, host)
        for op, issued in zip(ops, ran.issued_s)
    ]
    count, kernels = len(ops), len(working)
    name = np.array([index[op.call.name] for op in ops], np.int32)
    none, nothing = np.full(count, -1, np.int64), np.full(kernels, -1, np.int64)
    return DrawnStep(
        names=tuple(names),
        window=(0, round(step_s * 1e9)),
        host=HostSpans(
            start_ns=ns(begin),
            end_ns=ns(ran.issued_s),
            thread=np.zeros(count, np.int32),
            kind=np.full(count, HostKind.OP, np.uint8),
            name=name,
            call=none.astype(np.int32),
            module=none.astype(np.int32),
            source=none.astype(np.int32),
            phase=np.array([op.phase for op in ops], np.uint8),
            sequence=none,
        ),
        kernels=Kernels(
            start_ns=ns([ran.start_s[i] for i in working]),
            end_ns=ns([ran.end_s[i] for i in working]),
            stream=np.zeros(kernels, np.int32),
            kind=np.full(kernels, KernelKind.KERNEL, np.uint8),
            name=name[working],
            op=nothing,
            launch=nothing,
            bytes_moved=nothing,
            collective=nothing,
            twin=nothing,
        ),
        regime=shares.regime,
        idle_start_ns=np.empty(0, np.int64),
        idle_end_ns=np.empty(0, np.int64),
        idle_leaf=(),
    )


def _counters(ops: Sequence[CostedOp], peak_memory_bytes: int | None) -> dict[str, float]:
    counters = {
        "kernels": float(sum(op.kernels for op in ops)),
        "ops": float(len(ops)),
        "copies": float(sum(op.is_copy for op in ops)),
        "synchronisations": float(sum(op.host_call.synchronises for op in ops)),
    }
    if peak_memory_bytes is not None:
        counters["peak_memory_bytes"] = float(peak_memory_bytes)
    return counters


__all__ = ["ErrorBand", "build_prediction"]
