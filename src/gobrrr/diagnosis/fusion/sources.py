"""The operators of a measured step with their times, for ``findings``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gobrrr.attribution.device.attribute import DeviceAttribution
from gobrrr.attribution.recorded import RecordedDevice, RecordedLane
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.facts import OpFact
from gobrrr.diagnosis.fusion.findings import fusion_findings
from gobrrr.diagnosis.schema import Diagnosis, Finding
from gobrrr.diagnosis.verdict import verdict_of
from gobrrr.timeline.collector import uncollected
from gobrrr.timeline.data import PHASE_NAMES, KernelKind, Phase, Timeline
from gobrrr.timeline.graph import OpGraph, StepOp
from gobrrr.timeline.ops import OpCall

if TYPE_CHECKING:
    from gobrrr.attribution.cpu.attribute import CpuAttribution
    from gobrrr.live.profiles.cpu_timeline import CpuCapture
    from gobrrr.prediction.kernels.target import TargetDevice
    from gobrrr.prediction.step.costs import CostedOp


def add_cpu_fusion(
    diagnosis: Diagnosis, capture: CpuCapture, result: CpuAttribution, ceilings: Ceilings
) -> None:
    """Put the fusion opportunities of a step on a CPU into its diagnosis."""
    shares = result.attribution.kernels
    rows = {int(position): i for i, position in enumerate(shares.kernel) if position >= 0}
    ops = []
    for position, op in enumerate(capture.recorded):
        row = rows.get(position)
        kernel_ns = fixed_ns = 0.0
        if row is not None:
            fixed_ns = float(shares.fixed_ns[row])
            kernel_ns = float(shares.owned_ns[row]) - fixed_ns
        ops.append(_fact(op.call, op, kernel_ns * 1e-9, fixed_ns * 1e-9))
    _add(diagnosis, fusion_findings(ops, ceilings, diagnosis.accounted_s, on_cpu=True))


def add_recorded_fusion(diagnosis: Diagnosis, ran: RecordedDevice | RecordedLane) -> None:
    """Put the fusion opportunities of a recorded step into its diagnosis.

    The step of median length stands for all. On a device its kernels count as long as they took
    there; on the processor fixed costs are not in a recording.
    """
    ops = _ops_of_device(ran) if isinstance(ran, RecordedDevice) else _ops_of_lane(ran)
    found = fusion_findings(
        ops,
        ran.ceilings,
        diagnosis.accounted_s,
        linked=False,
        multiprocessors=ran.step.device.multiprocessors,
        on_cpu=isinstance(ran, RecordedLane),
    )
    _add(diagnosis, found)


def _ops_of_device(ran: RecordedDevice) -> list[OpFact]:
    return ops_of_median_step(ran.timeline, ran.found, ran.ceilings)


def _ops_of_lane(ran: RecordedLane) -> list[OpFact]:
    capture, result = ran.lane.capture, ran.result
    pieces = result.steps[capture.timeline.median_step]
    ops = []
    for row, time_ns in zip(pieces.kernel_row.tolist(), pieces.kernel_row_ns.tolist()):
        if capture.position[row] >= 0:
            op = capture.recorded[capture.position[row]]
            call = int(capture.timeline.host.call[row])
            said = capture.timeline.calls[call] if call >= 0 else op.call
            ops.append(_fact(said, op, time_ns * 1e-9, 0.0))
    return ops


@uncollected()
def add_predicted_fusion(
    diagnosis: Diagnosis, costed: Sequence[CostedOp], graph: OpGraph, device: TargetDevice
) -> None:
    """Put the fusion opportunities of a step that was predicted, op by op, into its diagnosis."""
    ops = [
        _fact(op.op.call, op.op, op.cost.device_s - op.cost.fixed_s, op.cost.fixed_s)
        for op in costed
        if not op.cost.is_copy
    ]
    found = fusion_findings(
        ops,
        device.ceilings,
        diagnosis.accounted_s,
        kept=graph.kept,
        multiprocessors=device.multiprocessors,
        on_cpu=device.kind == "cpu",
    )
    _add(diagnosis, found)


def _add(diagnosis: Diagnosis, found: list[Finding]) -> None:
    if diagnosis.regime is None:
        # From times that say nothing of the program nothing follows.
        return
    diagnosis.findings += found
    diagnosis.verdict = verdict_of(diagnosis)


def _fact(call: OpCall, op: StepOp, kernel_s: float, fixed_s: float) -> OpFact:
    return OpFact(
        call, kernel_s=kernel_s, fixed_s=fixed_s, module=op.module, source=op.source,
        phase=PHASE_NAMES[op.phase],
    )  # fmt: skip


def ops_of_median_step(
    timeline: Timeline, found: DeviceAttribution, ceilings: Ceilings | None
) -> list[OpFact]:
    """Operators whose kernels ran in the step of median length, in the order of their kernels."""
    low, high = timeline.steps[timeline.median_step]
    kernels, host = timeline.kernels, timeline.host
    rows = np.flatnonzero(
        (kernels.start_ns >= low) & (kernels.start_ns < high) & (kernels.kind == KernelKind.KERNEL)
    )
    fixed_s = (ceilings.kernel_fixed_s if ceilings is not None else None) or 0.0
    order: dict[int, list[float]] = {}
    for row in rows[np.argsort(kernels.start_ns[rows], kind="stable")]:
        op = int(found.work.op[row])
        if op < 0 or host.call[op] < 0:
            continue
        seconds = float(kernels.end_ns[row] - kernels.start_ns[row]) * 1e-9
        fixed = min(fixed_s, seconds)
        times = order.setdefault(op, [0.0, 0.0])
        times[0] += seconds - fixed
        times[1] += fixed
    return [
        OpFact(
            call=timeline.calls[int(host.call[op])],
            kernel_s=kernel_s,
            fixed_s=fixed,
            module=timeline.names[host.module[op]] if host.module[op] >= 0 else "",
            source=timeline.names[host.source[op]] if host.source[op] >= 0 else "",
            phase=PHASE_NAMES[Phase(int(host.phase[op]))],
        )
        for op, (kernel_s, fixed) in order.items()
    ]
