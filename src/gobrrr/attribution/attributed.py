"""What every way to a diagnosis ends in: a step, attributed, in one typed record.

A run, a trace, a prediction and a trace carried to another device differ in how they come to this
record, and in nothing after it (``gobrrr.diagnosis.assemble``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.collectives import CollectiveFigures
from gobrrr.attribution.device.time import DeviceTimeNs
from gobrrr.attribution.leaves import IdleGap, KernelShares
from gobrrr.devices.ceilings import Ceilings
from gobrrr.measure import Summary, summarise
from gobrrr.roofline.roof import Roof
from gobrrr.timeline.data import WHOLE_TRACE, Device, HostSpans, Kernels, Timeline
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.step_kinds import SeenSteps, WallTime
from gobrrr.work.estimate import Work

if TYPE_CHECKING:
    # For its type alone: a trace of a GPU has no use for the lanes of a processor.
    from gobrrr.attribution.other_threads import ConcurrentOp

MEAN, MEDIAN = "mean", "median"


# What ``.item()`` asks for: one element, which the host waits for.
READ_OF_ONE_VALUE = "aten::_local_scalar_dense"
# Counters of these, and of those among them that a library's optimizer made of its own figures.
READS_COUNTED, READS_OF_LIBRARY = "reads_of_one_value", "reads_by_optimizer"


@dataclass(frozen=True)
class AttributedOp:
    """One op of the step, or one group of kernels that are alike.

    Attributes:
        op: the op, and where it comes from.
        work: of one whole call; ``None`` without a formula.
        roof: ``None`` without a formula or a ceiling.
        share: its row in ``Attributed.shares`` (-1: none, an op without a kernel).
        host_ns: the overhead that leads to it.
        count: calls per step that it stands for.
        weight: how often per step its work is done (a kernel that does a part of an op's work
            stands for a part of a call).
    """

    op: StepOp
    work: Work | None
    roof: Roof | None
    share: int
    host_ns: float
    count: float = 1.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Provisional:
    """What a step on a CPU is bound by, as far as processor time and counts tell, in seconds.

    Attributes:
        regime: ``compute``, ``memory`` or ``overhead``.
        processor_s: processor time of the step's thread.
        rest_s: the most of it that is not the regime's: kernels where that is overhead, overhead
            otherwise.
        compute_roof_s: the FLOPs of a step at the ceilings.
        memory_roof_s: its bytes at the ceilings, and its page faults.
    """

    regime: str
    processor_s: float
    rest_s: float
    compute_roof_s: float
    memory_roof_s: float


@dataclass(frozen=True)
class StepTimes:
    """How long the step takes, and what was done to the figures of the profiled steps.

    Attributes:
        time: in seconds; a prediction has no samples (``n`` is 0).
        basis: which figure of ``time`` the leaves sum to, ``MEAN`` or ``MEDIAN``.
        samples_s: the step times behind ``time``, in order.
        ended_s: when each of them ended, on the clock of the process; empty where it is not known.
        profiled_s: a profiled step; ``None`` for a prediction.
        profiler_cost_s: subtracted from the host time of each profiled step.
        host_scale, kernel_scale: what host time and kernel time were then multiplied by.
        profiled_steps: how many were attributed.
        whole_trace: nothing told where steps begin: the time is that of the whole recording.
        kind: what a step is, where more is known than its ops say.
        what: what a step was taken to be, as a sentence; empty where nothing chose it.
        varying: the steps differ in size: the leaves are means.
        tokens: that one step makes.
        fused_optimizer: its optimizers have an implementation for all tensors in one kernel;
            ``None`` where they are not known.
        wall: what the wall time goes to besides these steps.
        seen: all steps of the kind that were seen, not the timed ones alone.
        taken_away: the machine did other things for most of the time: no figure of the program's
            can be derived from these times.
        provisional: what can be told of a step whose time says nothing.
    """

    time: Summary
    basis: str
    samples_s: tuple[float, ...] = ()
    ended_s: tuple[float, ...] = ()
    profiled_s: float | None = None
    profiler_cost_s: float | None = None
    host_scale: float | None = None
    kernel_scale: float | None = None
    profiled_steps: int = 0
    whole_trace: bool = False
    kind: str = ""
    what: str = ""
    varying: bool = False
    tokens: int | None = None
    fused_optimizer: bool | None = None
    wall: WallTime | None = None
    seen: SeenSteps | None = None
    taken_away: bool = False
    provisional: Provisional | None = None

    @property
    def typical_s(self) -> float:
        """The figure of ``time`` that the leaves sum to, in seconds."""
        return self.time.mean if self.basis == MEAN else self.time.median


@dataclass(frozen=True)
class DrawnStep:
    """One step to draw: spans of host and device, and idle time with its causes.

    ``kernels`` are those that run in the step, ``regime`` and ``idle_leaf`` (names of leaves)
    belong to them and to the idle pieces row by row. All on one clock, which ``window`` cuts.
    """

    names: tuple[str, ...]
    window: tuple[int, int]
    host: HostSpans
    kernels: Kernels
    regime: NDArray[np.uint8]
    idle_start_ns: NDArray[np.int64]
    idle_end_ns: NDArray[np.int64]
    idle_leaf: tuple[str, ...]


@dataclass(frozen=True)
class Attributed:
    """A step whose every nanosecond has a leaf, with all that a diagnosis says of it.

    Attributes:
        device: what ran it; ``threads`` of it where it is a processor and they are known.
        ceilings: of the device; ``None`` if unknown.
        step: its time.
        leaves_ns: all of ``LEAVES``; they sum to the figure of ``step.time`` that is its basis.
        ops: op by op, or by groups of kernels.
        shares: the kernels' split, row by row.
        beside_ns: overhead that belongs to no op, by a name for it.
        communication_ns: what a lane of a processor waits for other ranks, which belongs to no op
            either.
        idle: overhead by cause and line; gaps that are alike are added up.
        unlinked_ns: kernel time for which no op was found.
        counters: what was counted per step (``Diagnosis.counters``); FLOPs and bytes follow from
            ``ops``.
        device_time: of a device beside the host.
        collectives: of this process alone, or of all ranks.
        concurrent: work of threads and devices beside the lane, outside the sum.
        notices: sentences for the user.
        module_classes: the class of each module by its path, as far as it is known.
    """

    device: Device
    ceilings: Ceilings | None
    step: StepTimes
    leaves_ns: Mapping[str, float]
    ops: tuple[AttributedOp, ...]
    shares: KernelShares
    drawn: DrawnStep | None
    idle: tuple[IdleGap, ...]
    beside_ns: Mapping[str, float] = field(default_factory=dict)
    communication_ns: float = 0.0
    unlinked_ns: float = 0.0
    counters: Mapping[str, float] = field(default_factory=dict)
    device_time: DeviceTimeNs | None = None
    collectives: tuple[CollectiveFigures, ...] = ()
    concurrent: tuple[ConcurrentOp, ...] = ()
    notices: tuple[str, ...] = ()
    threads: int | None = None
    module_classes: Mapping[str, str] = field(default_factory=dict)


def recorded_step_times(timeline: Timeline) -> StepTimes:
    """Step times of a recording: its windows, profiled, because it holds no others."""
    lengths = (timeline.step_lengths_ns * 1e-9).tolist()
    time = summarise(lengths)
    return StepTimes(
        time=time,
        basis=MEAN,
        samples_s=tuple(lengths),
        profiled_s=time.mean,
        profiled_steps=len(lengths),
        whole_trace=timeline.steps_how == WHOLE_TRACE,
    )


def ceiling_notices(device: str, ceilings: Ceilings | None) -> tuple[str, ...]:
    """What is to be said of the ceilings: their own notices, or that there are none."""
    if ceilings is not None:
        return tuple(ceilings.notices)
    return (
        f"No ceilings for {device or 'a device that the trace does not name'}: there is no "
        "roofline. Measure them there with `gobrrr ceilings --json FILE` and give them with "
        "--ceilings FILE.",
    )
