"""What a prediction takes the host to cost, said in sentences: no data sheet states it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr.prediction.step.costs import CostedOp
from gobrrr.prediction.step.host_calls import calls_of_step
from gobrrr.prediction.step.host_lane import HostCosts, HostWork, host_work
from gobrrr.prediction.step.interval_table import INTERVALS
from gobrrr.timeline.quantities import time_text

# Measured over predicted steps that their host decides (benchmarks/intervals.py): on a host whose
# own addition is known, and on any.
KNOWN_HOST = INTERVALS["KNOWN_HOST"][:2]
ANY_HOST = INTERVALS["ANY_HOST"][:2]
# Of a step whose host time is at least this share of it nothing is said to be hidden.
_ALL = 0.99


@dataclass(frozen=True, slots=True)
class HostShare:
    """The host's part in a predicted step.

    Attributes:
        total_s: host time of the step, hidden or not, in seconds.
        exposed_s: of it, what the device waits for.
        low_s, high_s: between which a host and a program of that kind are to be expected.
        host_bound: whether the step takes as long as its host does.
        sentences: the same for a reader.
    """

    total_s: float
    exposed_s: float
    low_s: float
    high_s: float
    host_bound: bool
    sentences: tuple[str, ...]


def host_share(
    ops: Sequence[CostedOp], costs: HostCosts, *, step_s: float, exposed_s: float
) -> HostShare:
    """How much host time is in a step of these ops on a device beside the host.

    Args:
        ops: of the step; a list of tensors on the host counts once for each.
        costs: what the host is taken to pay.
        step_s: the step as predicted with it.
        exposed_s: of it, what the device waits for.
    """
    work = host_work(calls_of_step(ops), costs)
    device_s = sum(op.device_s for op in ops)
    known = costs.overhead is not None
    low, high = KNOWN_HOST if known else ANY_HOST
    low_s, high_s = low * work.total_s, high * work.total_s
    bound = device_s < work.total_s
    sentences = [_assumed(work, costs, step_s, exposed_s, bound)]
    if bound:
        # A host that reads results waits for the device too.
        least = "" if work.total_s >= _ALL * step_s else "at least "
        sentences.append(
            f"The device is busy for only {time_text(device_s)}: the step is host-bound, and takes "
            f"{least}as long as the program's host needs."
        )
    elif device_s < high_s:
        sentences.append(
            f"The device is busy for {time_text(device_s)}: on a slower host the step is "
            "host-bound."
        )
    if device_s < high_s and not known:
        sentences.append(
            f"Measured programs and hosts took {low:.2g} to {high:.2g} times the assumed time: "
            "--host-overhead says how many times yours does."
        )
    return HostShare(work.total_s, exposed_s, low_s, high_s, bound, tuple(sentences))


def _assumed(work: HostWork, costs: HostCosts, step_s: float, exposed_s: float, bound: bool) -> str:
    parts = [
        f"{_counted(work.launching, 'op')} with kernels at {time_text(work.plain_s)} on average"
    ]
    if work.further_kernels:
        further = _counted(work.further_kernels, "further kernel")
        parts.append(f"{further} at {time_text(costs.launch_s)}")
    if work.others:
        mean = time_text(work.others_s / work.others)
        parts.append(f"{_counted(work.others, 'op')} without kernels at {mean}")
    if work.passes_s > 0:
        parts.append(f"what comes before each pass and update {time_text(work.passes_s)}")
    if work.total_s >= _ALL * step_s:
        hidden = "as long as the step"
    elif bound:
        hidden = "longer than the device's"
    elif exposed_s >= _ALL * work.total_s:
        hidden = "none of it hidden behind the device"
    elif exposed_s > 0:
        hidden = f"hidden behind the device except for {time_text(exposed_s)}"
    else:
        hidden = "hidden behind the device"
    told = f"Assumed host time: {', '.join(parts)}: {time_text(work.total_s)} per step, {hidden}."
    if costs.overhead is None:
        return told
    return f"{told} That is {costs.overhead:g} times what a typical host takes, as given."


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
