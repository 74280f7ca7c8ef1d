"""A costed step, attributed as a measured one: through its timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gobrrr.attribution.attributed import MEDIAN, Attributed, StepTimes
from gobrrr.attribution.cpu.attribute import attribute_cpu
from gobrrr.attribution.cpu.attributed import attributed_lane
from gobrrr.attribution.cpu.causes import causes_of_lane
from gobrrr.attribution.device.attribute import DeviceAttribution, attribute_device
from gobrrr.attribution.device.attributed import attributed_device
from gobrrr.live.profiles.cpu_timeline import CpuCapture
from gobrrr.measure import Summary
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.step.bands import ErrorBand, interval_notices
from gobrrr.prediction.step.costs import CostedOp
from gobrrr.prediction.step.host import HostShare, host_share
from gobrrr.prediction.step.host_calls import host_calls_of
from gobrrr.prediction.step.host_lane import HostCosts, host_seconds
from gobrrr.prediction.step.timeline import PredictedTimeline, predicted_timeline


def predicted_step(
    ops: Sequence[CostedOp],
    target: TargetDevice,
    host: HostCosts,
    *,
    band: ErrorBand | None,
    notices: Sequence[str] = (),
    peak_memory_bytes: int | None = None,
) -> tuple[Attributed, HostShare | None]:
    """The step as it will run, attributed; and the host's part in it, beside a device."""
    ran = predicted_timeline(ops, target, host)
    step = (
        on_device(ran, target)[0] if len(ran.timeline.kernels) else _on_host(ran, ops, target, host)
    )
    step_s = sum(step.leaves_ns.values()) * 1e-9
    of_host = None
    if target.kind != "cpu":
        exposed_s = step.leaves_ns["overhead.dispatch"] * 1e-9
        of_host = host_share(ops, host, step_s=step_s, exposed_s=exposed_s)
    step = replace(
        step,
        step=StepTimes(interval_of(step_s, band, of_host), MEDIAN),
        counters=counters_of(ops, peak_memory_bytes),
        # What the time rests on comes before what it is made of.
        notices=(
            *notices,
            *target.notices,
            *(interval_notices(band) if of_host is None or not of_host.host_bound else ()),
            *(of_host.sentences if of_host is not None else ()),
        ),
    )
    return step, of_host


def on_device(ran: PredictedTimeline, target: TargetDevice) -> tuple[Attributed, DeviceAttribution]:
    """A predicted timeline with kernels, attributed as a recorded one."""
    # By identity: calls compare equal without regard to the memory that they share.
    works = {id(call): work for call, work in zip(ran.timeline.calls, ran.works)}
    found = attribute_device(
        ran.timeline, target.ceilings, lambda call: works.get(id(call)), fixed_ns=ran.fixed_ns
    )
    return attributed_device(ran.timeline, found, target.ceilings), found


def _on_host(
    ran: PredictedTimeline, ops: Sequence[CostedOp], target: TargetDevice, host: HostCosts
) -> Attributed:
    capture = CpuCapture(ran.timeline, ran.position, tuple(op.op for op in ops), 1.0)
    works = tuple(op.work for op in ops)
    costs = [op.cost for op in ops]
    fixed_s = [
        cost.host_calls * host_seconds(call, host) + cost.fixed_s
        for cost, call in zip(costs, host_calls_of(ops))
    ]
    result = attribute_cpu(
        capture,
        works,
        target.ceilings,
        fixed_ns=np.array(fixed_s) * 1e9,
        fault_ns=np.array([cost.page_faults_s * 1e9 for cost in costs]),
        has_work=np.array([cost.kernels > 0 for cost in costs], bool),
    )
    return attributed_lane(
        capture,
        works,
        result,
        target.ceilings,
        StepTimes(Summary(0.0, 0.0, 0.0, 0.0, 0), MEDIAN),
        idle=causes_of_lane(capture, result),
    )


def interval_of(step_s: float, band: ErrorBand | None, of_host: HostShare | None = None) -> Summary:
    """A predicted time and where measured ones are to be expected.

    The band is of what the device does. A step takes no less than either of both sides, and no less
    than what the device does and the time it waits for the host: where a program reads results,
    neither of them is hidden behind the other. Its least and its most are the largest of the three.
    Where the device decides and nothing is known of it, there is no interval: both ends are the
    time itself.
    """
    if band is None and of_host is not None and not of_host.host_bound:
        of_host = None
    low, high = (1.0, 1.0) if band is None else (band.low, band.high)
    low_s, high_s = low * step_s, high * step_s
    if of_host is not None:
        exposed_s = of_host.exposed_s
        busy_s = step_s - exposed_s
        both = band is not None and of_host.total_s > 0
        waits = exposed_s / of_host.total_s if both else 0.0
        low_s = min(step_s, max(of_host.low_s, low * busy_s + waits * of_host.low_s))
        high_s = max(step_s, of_host.high_s, high * busy_s + waits * of_host.high_s)
    return Summary(median=step_s, mean=step_s, low=low_s, high=high_s, n=0)


def counters_of(ops: Sequence[CostedOp], peak_memory_bytes: int | None) -> dict[str, float]:
    """What is counted of a step."""
    counters = {
        "kernels": float(sum(op.kernels for op in ops)),
        "ops": float(len(ops)),
        "copies": float(sum(op.cost.is_copy for op in ops)),
        "synchronisations": float(sum(call.synchronises for call in host_calls_of(ops))),
    }
    if peak_memory_bytes is not None:
        counters["peak_memory_bytes"] = float(peak_memory_bytes)
    return counters
