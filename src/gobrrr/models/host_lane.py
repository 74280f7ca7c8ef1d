"""The host's side of a step: when it hands each op's kernels to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from gobrrr.devices.ceilings import Ceilings
from gobrrr.timeline.data import Phase

ARTICLE = "https://horace.io/brrr_intro.html"


@dataclass(frozen=True, slots=True)
class HostCosts:
    """What the host pays, in seconds.

    Attributes:
        op_s: Python, dispatch and autograd of one plain operator that launches work. 280,000
            additions of one element per second, the launch included (ARTICLE), are 3.6 us each.
        view_s: an operator that launches nothing.
        backward_op_s: an operator that autograd's thread calls, without Python in between.
        launch_s: a further kernel launch of the same operator (cudaLaunchKernel).
        latency_s: from a launch call's return to the kernel's start on an idle device.
        gap_s: between two kernels of one stream when the second waits in the queue.
        synchronise_s: from the end of the last kernel until the host goes on.
        source: where these come from.
        overhead: what the program's host time is over that of its ops, where that is known and in
            the other fields; ``None``: only ops are in them.
    """

    op_s: float = 3.6e-6
    view_s: float = 1.0e-6
    backward_op_s: float = 3.6e-6
    launch_s: float = 2.0e-6
    latency_s: float = 4.0e-6
    gap_s: float = 0.8e-6
    synchronise_s: float = 5.0e-6
    source: str = f"{ARTICLE}: 280,000 small additions per second"
    overhead: float | None = None

    def with_overhead(self, times: float) -> HostCosts:
        """Of a program that takes its host so many times what its ops alone do."""
        return replace(
            self,
            op_s=times * self.op_s,
            view_s=times * self.view_s,
            backward_op_s=times * self.backward_op_s,
            launch_s=times * self.launch_s,
            overhead=times,
        )


TYPICAL_HOST = HostCosts()


# What an op of a real step costs the host over one addition of two numbers in a loop: autograd,
# modules, composite operators. 2.0 to 3.4 on a small transformer, forward to AdamW, torch 2.13.
OP_OVER_DISPATCH = 3.0


# What a real step often costs the host over its ops by kind: ``OP_OVER_DISPATCH`` is of a small
# transformer, whose ops weigh 1.8 on average. Published times of six vision models at batch 1 on an
# A100 (transformers' documentation, perf_torch_compile.md) are 1.9 to 5.2 times those of the ops.
PROGRAM_OVER_OPS = 2.0


def host_costs_of(ceilings: Ceilings) -> HostCosts:
    """The host of measured ceilings: its own dispatch rate in place of the typical one."""
    rate = ceilings.value("host.dispatches")
    if rate is None:
        return TYPICAL_HOST
    dispatch_s = OP_OVER_DISPATCH / rate
    return HostCosts(
        op_s=dispatch_s,
        view_s=0.5 * dispatch_s,
        backward_op_s=dispatch_s,
        source="host.dispatches, measured, times 3 for an op of a real step",
    )


class Launch(Enum):
    """How the kernels of an op are launched.

    ``BY_ITSELF``: by its own calls; ``OF_GRAPH``: with those of all ops of its CUDA graph, of which
    it is the first; ``IN_GRAPH``: by that op.
    """

    BY_ITSELF = 0
    OF_GRAPH = 1
    IN_GRAPH = 2


@dataclass(frozen=True, slots=True)
class HostCall:
    """One op as the host sees it: how many kernels it launches, and in which part of the step.

    ``weight``: its host time over that of a plain op (``models.host_weights``).
    """

    kernels: int
    phase: Phase = Phase.FORWARD
    synchronises: bool = False
    weight: float = 1.0
    launch: Launch = Launch.BY_ITSELF


def host_seconds(call: HostCall, costs: HostCosts) -> float:
    """Host time from one op's start to the next one's; a CUDA graph is launched as a plain op."""
    if call.launch is not Launch.BY_ITSELF:
        return costs.op_s if call.launch is Launch.OF_GRAPH else 0.0
    if call.kernels == 0:
        return costs.view_s
    one = costs.backward_op_s if call.phase == Phase.BACKWARD else costs.op_s
    return one * call.weight + (call.kernels - 1) * costs.launch_s


def host_seconds_of(calls: Sequence[HostCall], costs: HostCosts) -> list[float]:
    """The same of each; ops that are alike share their call, and are looked at once."""
    alike = {id(call): call for call in calls}
    seconds = {number: host_seconds(call, costs) for number, call in alike.items()}
    return [seconds[id(call)] for call in calls]


@dataclass(frozen=True, slots=True)
class HostWork:
    """What a step asks of the host.

    Attributes:
        launching: ops that launch kernels.
        plain_s: mean host time of each with its first kernel, in seconds.
        others: ops that launch none, views among them.
        further_kernels: kernels beyond the first one of each op.
        total_s: host time of all of them, in seconds.
    """

    launching: int
    plain_s: float
    others: int
    further_kernels: int
    total_s: float


def host_work(calls: Sequence[HostCall], costs: HostCosts) -> HostWork:
    """The ops of a step by what they cost the host, and the sum; a CUDA graph is one op."""
    calls = [call for call in calls if call.launch is not Launch.IN_GRAPH]
    launching = [call for call in calls if call.kernels]
    seconds = host_seconds_of(calls, costs)
    further = sum(call.kernels - 1 for call in launching if call.launch is Launch.BY_ITSELF)
    launching_s = sum([each for each, call in zip(seconds, calls) if call.kernels])
    first_s = launching_s - further * costs.launch_s
    return HostWork(
        launching=len(launching),
        plain_s=first_s / len(launching) if launching else costs.op_s,
        others=len(calls) - len(launching),
        further_kernels=further,
        total_s=sum(seconds),
    )


def may_be_host_bound(device_s: float, host_s: float, *, compiled: bool) -> bool:
    """Whether a step whose device works for ``device_s`` may well wait for its host instead.

    ``host_s`` is what bare ops cost. Those of a real program often cost ``PROGRAM_OVER_OPS`` times
    that; a compiled one calls its kernels without the program's Python and modules in between.
    """
    return device_s < host_s * (1.0 if compiled else PROGRAM_OVER_OPS)
