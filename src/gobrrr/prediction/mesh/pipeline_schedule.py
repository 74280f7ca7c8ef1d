"""Pipeline parallelism: stages that pass microbatches on, replayed as their schedule orders them.

Each stage runs its forward and backward passes one after the other, in an order that its schedule
fixes; a forward pass waits for the stage before it, a backward pass for the one after it. What a
stage waits is the bubble. With p equal stages and m microbatches it is (p - 1) / (m + p - 1) of the
step under GPipe and 1F1B, and (p - 1) / (v m + p - 1) where each stage holds v chunks of the model:
Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", section 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from gobrrr.timeline.errors import InputError


class Schedule(str, Enum):
    """The order of passes: PyTorch's ``ScheduleGPipe``, ``Schedule1F1B`` and ``Interleaved``."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class StageTime:
    """Seconds of one chunk of the model on one microbatch.

    ``forward_s``; ``backward_s`` with what is computed again; ``send_s`` of its activations to the
    next chunk, and of their gradients back to it. A stage is free while it sends.
    ``first_forward_s``: of the first microbatch, where that takes longer. ``add_s``: of adding its
    gradients to those of the microbatches before, behind every backward pass but the first.
    """

    forward_s: float
    backward_s: float
    send_s: float = 0.0
    first_forward_s: float | None = None
    add_s: float = 0.0

    def seconds_of(self, one: Pass) -> float:
        """Of one pass through the chunk."""
        if one.backward:
            return self.backward_s + (self.add_s if one.microbatch else 0.0)
        first = self.first_forward_s if one.microbatch == 0 else None
        return self.forward_s if first is None else first


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one microbatch through a chunk, counted through the whole model."""

    backward: bool
    chunk: int
    microbatch: int


@dataclass(frozen=True, slots=True)
class TimedPass:
    """A pass with its begin and end, in seconds from the step's."""

    one: Pass
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class PipelineTime:
    """A step of a pipeline, optimizer aside: of each stage its passes in order."""

    stages: tuple[tuple[TimedPass, ...], ...]

    @property
    def seconds(self) -> float:
        """From the first pass's begin to the last one's end."""
        return max(passes_[-1].end_s for passes_ in self.stages)

    @property
    def busy_s(self) -> tuple[float, ...]:
        """What each stage computes."""
        return tuple(sum(each.end_s - each.begin_s for each in ran) for ran in self.stages)

    @property
    def bubble_s(self) -> tuple[float, ...]:
        """What each stage waits within the step."""
        return tuple(self.seconds - busy_s for busy_s in self.busy_s)

    @property
    def in_flight(self) -> tuple[int, ...]:
        """The most microbatches (of a chunk) whose activations each stage holds."""
        return tuple(_in_flight([each.one for each in ran]) for ran in self.stages)


def pipeline_time(
    chunks: Sequence[StageTime],
    stages: int,
    microbatches: int,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
) -> PipelineTime:
    """Replay of one step.

    Args:
        chunks: of the model, first to last; chunk i is on stage i modulo ``stages``.
        stages: devices in the pipeline.
        microbatches: of a step.
        schedule: the order of passes; only ``INTERLEAVED`` takes several chunks a stage.

    Raises:
        InputError: chunks do not divide over stages, or the schedule cannot take so many.
    """
    _check(len(chunks), stages, microbatches, schedule)
    orders = [passes(stage, len(chunks), stages, microbatches, schedule) for stage in range(stages)]
    ended: dict[Pass, float] = {}
    ran: list[list[TimedPass]] = [[] for _ in orders]
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while len(ran[stage]) < len(order):
                one = order[len(ran[stage])]
                ready = _ready(one, chunks, ended)
                if ready is None:
                    break
                begin_s = max(ran[stage][-1].end_s if ran[stage] else 0.0, ready)
                end_s = begin_s + chunks[one.chunk].seconds_of(one)
                ended[one] = end_s
                ran[stage].append(TimedPass(one, begin_s, end_s))
                moved = True
    return PipelineTime(tuple(map(tuple, ran)))


def passes(
    stage: int, chunks: int, stages: int, microbatches: int, schedule: Schedule
) -> list[Pass]:
    """What a stage runs, in order."""
    v = chunks // stages
    total = microbatches * v
    forward = [_forward(k, stage, stages, v) for k in range(total)]
    backward = [_backward(k, stage, stages, v) for k in range(total)]
    if schedule is Schedule.GPIPE:
        return [*forward, *backward]
    if v == 1:
        warm = stages - 1 - stage
    else:
        # Megatron-LM, core/pipeline_parallel/schedules.py: two passes of each later stage, and all
        # chunks but the last of the first round.
        warm = 2 * (stages - 1 - stage) + (v - 1) * stages
    warm = min(warm, total)
    found = forward[:warm]
    for k in range(total - warm):
        found += [forward[warm + k], backward[k]]
    return [*found, *backward[total - warm :]]


def _forward(k: int, stage: int, stages: int, v: int) -> Pass:
    """The k-th forward pass: rounds of as many microbatches as stages, through each chunk."""
    if v == 1:
        return Pass(False, stage, k)
    within = k % (stages * v)
    chunk = within // stages * stages + stage
    return Pass(False, chunk, k // (stages * v) * stages + within % stages)


def _backward(k: int, stage: int, stages: int, v: int) -> Pass:
    first = _forward(k, stage, stages, v)
    turned = (v - 1 - first.chunk // stages) * stages + stage
    return Pass(True, turned, first.microbatch)


def _ready(one: Pass, chunks: Sequence[StageTime], ended: dict[Pass, float]) -> float | None:
    """When a pass's input is there; ``None`` while what it waits for has not run."""
    last = len(chunks) - 1
    if not one.backward:
        if one.chunk == 0:
            return 0.0
        before = ended.get(Pass(False, one.chunk - 1, one.microbatch))
        return None if before is None else before + chunks[one.chunk - 1].send_s
    own = ended.get(Pass(False, one.chunk, one.microbatch))
    if own is None or one.chunk == last:
        return own
    after = ended.get(Pass(True, one.chunk + 1, one.microbatch))
    return None if after is None else max(own, after + chunks[one.chunk].send_s)


def _in_flight(order: Sequence[Pass]) -> int:
    held = most = 0
    for one in order:
        held += -1 if one.backward else 1
        most = max(most, held)
    return most


def _check(chunks: int, stages: int, microbatches: int, schedule: Schedule) -> None:
    if stages < 1 or microbatches < 1:
        raise InputError(
            "a pipeline needs at least one stage and one microbatch, not "
            f"{stages} and {microbatches}"
        )
    if chunks < stages or chunks % stages:
        raise InputError(f"{chunks} parts of a model do not divide evenly among {stages} stages")
    if chunks > stages and schedule is not Schedule.INTERLEAVED:
        raise InputError(
            f"{chunks // stages} parts of the model on each stage need the interleaved schedule"
        )
    if chunks > stages and microbatches % stages:
        raise InputError(
            f"the interleaved schedule runs microbatches in rounds of {stages}, one for each "
            f"stage: {microbatches} microbatches are not a multiple of that"
        )
