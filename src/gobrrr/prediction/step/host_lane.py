"""The host's side of a step: when it hands each op's kernels to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from gobrrr.devices.ceilings import Ceilings
from gobrrr.timeline.data import Phase

ARTICLE = "https://horace.io/brrr_intro.html"
# Of two tensors in a loop, the launch included: 280,000 of one element per second (ARTICLE).
ADDITION_S = 3.6e-6
# In additions, by least squares from four of seven families of programs on an H200, whose host
# takes 5.7 us for one (benchmarks/prediction_host, which scores them on the other families and on
# other hosts). ``PASS``, of a backward pass and of an update of the parameters each, is half of
# what a training step takes beside its ops: gradients set to zero, autograd's thread woken and
# waited for, the optimizer's Python.
PROGRAM, VIEW, NODE, PASS = 1.3, 0.5, 1.65, 54.0


@dataclass(frozen=True, slots=True)
class HostCosts:
    """What the host of a GPU pays, in seconds.

    Attributes:
        op_s: an addition; other ops take their weight of it (``step.host_weights``).
        program_s: what a program's own Python, its modules and the allocator take around an op
            that launches work.
        view_s: an operator that launches nothing, with what is around it.
        node_s: what autograd's engine takes around each op of a backward pass, in place of Python.
        launch_s: a further kernel launch of the same operator (cudaLaunchKernel).
        latency_s: from a launch call's return to the kernel's start on an idle device.
        gap_s: between two kernels of one stream when the second waits in the queue.
        synchronise_s: from the end of the last kernel until the host goes on.
        source: where these come from.
        overhead: what the host's time is multiplied by, where that is given; ``None``: not known.
    """

    op_s: float = ADDITION_S
    program_s: float = PROGRAM * ADDITION_S
    view_s: float = VIEW * ADDITION_S
    node_s: float = NODE * ADDITION_S
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
            program_s=times * self.program_s,
            view_s=times * self.view_s,
            node_s=times * self.node_s,
            launch_s=times * self.launch_s,
            overhead=times,
        )


TYPICAL_HOST = HostCosts()


# What an op of a real step costs the host over one addition of two numbers in a loop: autograd,
# modules, composite operators. 2.0 to 3.4 on a small transformer, forward to AdamW, torch 2.13.
OP_OVER_DISPATCH = 3.0


def host_costs_of(ceilings: Ceilings) -> HostCosts:
    """The host of measured ceilings: its own dispatch rate in place of the typical one."""
    rate = ceilings.value("host.dispatches")
    if rate is None:
        return TYPICAL_HOST
    dispatch_s = OP_OVER_DISPATCH / rate
    return HostCosts(
        op_s=dispatch_s,
        program_s=0.0,
        view_s=0.5 * dispatch_s,
        node_s=0.0,
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

    ``weight``: its host time over that of an addition (``step.host_weights``). ``before``:
    what the host does before it that no op stands for, in additions.
    """

    kernels: int
    phase: Phase = Phase.FORWARD
    synchronises: bool = False
    weight: float = 1.0
    launch: Launch = Launch.BY_ITSELF
    before: float = 0.0


def host_seconds(call: HostCall, costs: HostCosts) -> float:
    """Host time from one op's start to the next one's; a CUDA graph is launched as a plain op."""
    before_s = call.before * costs.op_s
    if call.launch is not Launch.BY_ITSELF:
        return before_s + (costs.op_s + costs.program_s if call.launch is Launch.OF_GRAPH else 0.0)
    backward = call.phase == Phase.BACKWARD
    if call.kernels == 0:
        return before_s + costs.view_s + (costs.node_s if backward else 0.0)
    around_s = costs.node_s if backward else costs.program_s
    further_s = (call.kernels - 1) * costs.launch_s
    return before_s + costs.op_s * call.weight + around_s + further_s


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
        others_s: host time of all of those, in seconds.
        further_kernels: kernels beyond the first one of each op.
        passes_s: what comes before passes, in seconds.
        total_s: host time of all of them, in seconds.
    """

    launching: int
    plain_s: float
    others: int
    others_s: float
    further_kernels: int
    passes_s: float
    total_s: float


def host_work(calls: Sequence[HostCall], costs: HostCosts) -> HostWork:
    """The ops of a step by what they cost the host, and the sum; a CUDA graph is one op."""
    calls = [call for call in calls if call.launch is not Launch.IN_GRAPH]
    launching = [call for call in calls if call.kernels]
    seconds = host_seconds_of(calls, costs)
    further = sum(call.kernels - 1 for call in launching if call.launch is Launch.BY_ITSELF)
    own_s = [each - costs.op_s * call.before for each, call in zip(seconds, calls)]
    launching_s = sum([each for each, call in zip(own_s, calls) if call.kernels])
    first_s = launching_s - further * costs.launch_s
    return HostWork(
        launching=len(launching),
        plain_s=first_s / len(launching) if launching else costs.op_s + costs.program_s,
        others=len(calls) - len(launching),
        others_s=sum(own_s) - launching_s,
        further_kernels=further,
        passes_s=sum(seconds) - sum(own_s),
        total_s=sum(seconds),
    )
