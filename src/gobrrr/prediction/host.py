"""What a prediction takes the host to cost, said in sentences: no data sheet states it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from gobrrr.models.host_lane import (
    PROGRAM_OVER_OPS,
    HostCosts,
    HostWork,
    host_work,
    may_be_host_bound,
)
from gobrrr.prediction.costs import CostedOp, host_calls_of
from gobrrr.timeline.quantities import time_text

# Of a step whose host time is at least this share of it nothing is said to be hidden.
_ALL = 0.99


@dataclass(frozen=True, slots=True)
class HostShare:
    """The host's part in a predicted step.

    Attributes:
        total_s: host time of its ops, hidden or not, in seconds.
        lower_bound: whether the step is probably bound by the host, and then takes longer than
            predicted.
        sentences: the same for a reader.
    """

    total_s: float
    lower_bound: bool
    sentences: tuple[str, ...]


def host_share(
    ops: Sequence[CostedOp], costs: HostCosts, *, step_s: float, exposed_s: float, compiled: bool
) -> HostShare:
    """How much host time is in a step of these ops on a device beside the host.

    Args:
        ops: of the step; a list of tensors on the host counts once for each.
        costs: what the host is taken to pay.
        step_s: the step as predicted with it.
        exposed_s: of it, what the device waits for.
        compiled: whether the kernels are those of a compiler.
    """
    each = zip(ops, host_calls_of(ops))
    work = host_work([call for op, call in each for _ in range(op.cost.host_calls)], costs)
    device_s = sum(op.device_s for op in ops)
    # With the program's own host time in it, the step takes as long as is predicted.
    known = costs.overhead is not None
    bound = not known and may_be_host_bound(device_s, work.total_s, compiled=compiled)
    sentences = [_assumed(work, costs, step_s, exposed_s)]
    if bound:
        sentences.append(_too_little(device_s, compiled))
    return HostShare(work.total_s, bound, tuple(sentences))


def _assumed(work: HostWork, costs: HostCosts, step_s: float, exposed_s: float) -> str:
    mean = "" if isclose(work.plain_s, costs.op_s) else " on average"
    parts = [f"{_counted(work.launching, 'op')} with kernels at {time_text(work.plain_s)}{mean}"]
    if work.further_kernels:
        further = _counted(work.further_kernels, "further kernel")
        parts.append(f"{further} at {time_text(costs.launch_s)}")
    if work.others:
        parts.append(f"{_counted(work.others, 'op')} without kernels at {time_text(costs.view_s)}")
    if work.total_s >= _ALL * step_s:
        hidden = "as long as the step"
    elif exposed_s > 0:
        hidden = f"hidden behind the device except for {time_text(exposed_s)}"
    else:
        hidden = "hidden behind the device"
    if costs.overhead is None:
        own = "The program's own Python is not included."
    else:
        own = f"That is {costs.overhead:g} times what the ops alone take, as given."
    told = f"Assumed host time: {', '.join(parts)}: {time_text(work.total_s)} per step, {hidden}."
    return f"{told} {own}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _too_little(device_s: float, compiled: bool) -> str:
    why = (
        "less than that"
        if compiled
        else f"and real programs often cost the host {PROGRAM_OVER_OPS:.0f} times as much or more"
    )
    return (
        f"The device is busy for only {time_text(device_s)}, {why}: the step is probably "
        "host-bound and then takes longer than predicted."
    )
