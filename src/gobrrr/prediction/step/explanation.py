"""The arithmetic behind a prediction, in sentences, and what of it is known least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gobrrr.diagnosis.tables import describe_shapes
from gobrrr.prediction.kernels.residuals import ErrorBand, band_of_class
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.step.bands import class_of_cost, classes_of
from gobrrr.prediction.step.costs import CostedOp, OpCost
from gobrrr.prediction.step.host import HostShare
from gobrrr.prediction.step.host_lane import ADDITION_S
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import quantity, time_text

# Kinds of op that are explained, those with most of the time.
_EXPLAINED = 5
_UNCERTAIN = 3


def explained(ops: Sequence[CostedOp], device: TargetDevice) -> list[str]:
    """A paragraph for each of the ops that take longest: work, roofs, kernels, interval.

    Calls of the same shapes at the same time are one.
    """
    calls: Counter[tuple[OpCall, float]] = Counter()
    one: dict[tuple[OpCall, float], OpCost] = {}
    for cost, count in Counter(op.cost for op in ops if op.device_s > 0).items():
        key = (cost.call, cost.device_s)
        calls[key] += count
        one.setdefault(key, cost)
    longest = sorted(one, key=lambda key: -calls[key] * key[1])[:_EXPLAINED]
    return [_paragraph(one[key], calls[key], device) for key in longest]


def _paragraph(op: OpCost, calls: int, device: TargetDevice) -> str:
    times = f", {calls} times" if calls > 1 else ""
    parts = [f"{_named(op)}{times}: {time_text(op.device_s)}{' each' if calls > 1 else ''}"]
    if op.work is not None:
        work = op.work
        flops = f"{quantity(work.flops, 'FLOP')} in {work.compute_dtype}" if work.flops else ""
        moved = f"{quantity(work.bytes_moved, 'B')} moved" if work.bytes_moved else ""
        parts.append(f"Work: {', '.join(text for text in (flops, moved) if text) or 'none'}")
    if op.roof is not None:
        sides = (
            ("matrix unit", op.roof.matrix_s),
            ("vector unit", op.roof.vector_s),
            (op.roof.level or "memory", op.roof.memory_s),
        )
        known = [f"{name} {time_text(seconds)}" for name, seconds in sides if seconds > 0]
        parts.append(f"Lower bounds: {', '.join(known) or 'none'}")
    if op.because:
        parts.append(f"Its kernels: {op.because}")
    elif not op.is_copy:
        parts.append("Its kernels are not modelled: it is assumed to move its bytes once")
    parts.append(_interval(op, device))
    return ". ".join(parts) + "."


def _named(op: OpCost) -> str:
    shapes = describe_shapes(op.call)
    return f"{op.call.name} {shapes}" if shapes else op.call.name


def _band(kind: str, device: TargetDevice) -> ErrorBand | None:
    """Of a class of ops: residuals are of CUDA kernels."""
    return band_of_class(device.key, kind) if device.kind == "cuda" else None


def _interval(op: OpCost, device: TargetDevice) -> str:
    kind = class_of_cost(op)
    band = _band(kind, device)
    if band is None:
        return f"No interval: no measurement of {kind} on a GPU related to {device.key}"
    low, high = (time_text(op.device_s * end) for end in (band.low, band.high))
    return f"80 % interval: {low} to {high} ({band.source})"


def uncertainty(
    ops: Sequence[CostedOp], device: TargetDevice, step_s: float, of_host: HostShare | None
) -> dict[str, list[str]]:
    """The parts of a step whose time is known least: ``uncertain``, and ``least_certain`` in short.

    Parts are classes of ops, whose errors go together (``kernels.residuals.band_of_step``), in the
    order of the width of their intervals in seconds; a class without an interval counts all of its
    time. The host is one of them where a slow one would make the step of ``step_s`` longer.
    ``uncertain`` says what one would have to measure.
    """
    classes: dict[str, list[OpCost]] = {}
    for op, kind in zip(ops, classes_of(ops)):
        if op.device_s > 0:
            classes.setdefault(kind, []).append(op.cost)
    found: list[tuple[float, str, str]] = []
    for kind, members in classes.items():
        total_s = sum(op.device_s for op in members)
        longest = max(members, key=lambda op: op.device_s)
        band = _band(kind, device)
        if band is None:
            width_s, short = total_s, "no interval"
            known = f"{short}, not measured on any related GPU"
        else:
            width_s = total_s * (band.high - band.low)
            short = " to ".join(time_text(total_s * end) for end in (band.low, band.high))
            known = f"80 % interval {short} ({band.source})"
        text = (
            f"{kind}: {time_text(total_s)}, {known}. Timing {_named(longest)} on {device.key} "
            f"(predicted: {time_text(longest.device_s)}) would narrow it."
        )
        found.append((width_s, text, f"{kind} {time_text(total_s)} ({short})"))
    if of_host is not None:
        found += _of_host(of_host, step_s)
    found.sort(key=lambda item: -item[0])
    return {
        "uncertain": [text for _, text, _ in found[:_UNCERTAIN]],
        "least_certain": [short for _, _, short in found[:_UNCERTAIN]],
    }


def _of_host(of_host: HostShare, step_s: float) -> list[tuple[float, str, str]]:
    """As far as it moves the step, which takes what its device does in any case."""
    width_s = of_host.high_s - max(of_host.low_s, step_s - of_host.exposed_s)
    if width_s <= 0:
        return []
    ends = f"{time_text(of_host.low_s)} to {time_text(of_host.high_s)}"
    text = (
        f"host: {time_text(of_host.total_s)}, on other hosts and of other programs {ends}. Timing "
        f"torch.add of two small tensors there (assumed: {time_text(ADDITION_S)} each) tells how "
        "fast it is, timing the step how much this program takes of it: --host-overhead."
    )
    return [(width_s, text, f"host {time_text(of_host.total_s)} ({ends})")]
