"""The one savable object: what was measured, where the time went, and what would help.

Field names are the contract with scripts that read the JSON. Times are seconds, sizes bytes, rates
per second; ``None`` is unknown. Everything a report shows is in here: reports compute nothing.

``Ceiling``, ``SeenSteps`` and ``WallTime`` are saved as the rooms that make them know them: the
names of their fields are a part of the contract.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from gobrrr.attribution.leaves import LEAVES, TOP_LEVELS, AccountingError, top_levels
from gobrrr.devices.ceilings import Ceiling
from gobrrr.diagnosis.fix_schema import Finding as Finding
from gobrrr.diagnosis.fix_schema import FixSummary as FixSummary
from gobrrr.diagnosis.fix_schema import MemoryCurve as MemoryCurve
from gobrrr.diagnosis.fix_schema import MemoryPoint as MemoryPoint
from gobrrr.diagnosis.fix_schema import Portion as Portion
from gobrrr.diagnosis.fix_schema import Prediction as Prediction
from gobrrr.diagnosis.fix_schema import Ratio as Ratio
from gobrrr.diagnosis.fix_schema import Untried as Untried
from gobrrr.diagnosis.fix_schema import Verification as Verification
from gobrrr.diagnosis.rank_schema import CollectiveRow as CollectiveRow
from gobrrr.diagnosis.rank_schema import DeviceTime as DeviceTime
from gobrrr.diagnosis.rank_schema import ExposedRow as ExposedRow
from gobrrr.diagnosis.rank_schema import JobLanes as JobLanes
from gobrrr.diagnosis.rank_schema import JobRecord as JobRecord
from gobrrr.diagnosis.rank_schema import RankLane as RankLane
from gobrrr.diagnosis.rank_schema import RankRow as RankRow
from gobrrr.diagnosis.rank_schema import Split as Split
from gobrrr.diagnosis.record import Record as Record
from gobrrr.diagnosis.step_schema import BatchDoubling as BatchDoubling
from gobrrr.diagnosis.step_schema import CardRecord as CardRecord
from gobrrr.diagnosis.step_schema import EnergyRecord as EnergyRecord
from gobrrr.diagnosis.step_schema import GrowthRow as GrowthRow
from gobrrr.diagnosis.step_schema import ProvisionalVerdict as ProvisionalVerdict
from gobrrr.diagnosis.step_schema import Spread as Spread
from gobrrr.diagnosis.writing import encode
from gobrrr.measure.load import TOO_LONG
from gobrrr.timeline.files import write_output
from gobrrr.timeline.quantities import time_text
from gobrrr.timeline.step_kinds import SeenSteps, WallTime

SCHEMA_VERSION = 1
# Stands in the notice that says why a diagnosis has no regime.
NO_VERDICT = "there is no verdict"
# Stands in the notice of a diagnosis whose program had too little of the machine to be timed.
OF_THE_MACHINE = "These times describe the machine and not the program"

# Reports come after this room, so the one behind ``print(diagnosis)`` is named, not imported.
_TEXT_REPORT = "gobrrr.reports.terminal"
_NOTEBOOK_REPORT = "gobrrr.reports.notebook"


class LevelRow(Record, kw_only=True):
    """A memory level; ``rates`` are (write fraction of the bytes, bytes/s)."""

    name: str
    capacity_bytes: int | None
    rates: list[tuple[float, float]]


class DeviceRecord(Record, kw_only=True):
    """The device and its ceilings; ``kind`` is ``cpu``, ``cuda``, ``hip``, ..."""

    name: str
    kind: str
    threads: int | None = None
    memory_bytes: int | None = None
    ceilings: list[Ceiling] = []
    levels: list[LevelRow] = []


class SlowStep(Record, kw_only=True):
    """A step that took far longer than the median, and what it spent the excess on (if known)."""

    index: int
    time_s: float
    cause: str | None = None


class StepRecord(Record, kw_only=True):
    """Step time without profiler, with it, and what was done about the difference.

    ``profiler_cost_s`` was subtracted from host leaves of each profiled step;
    ``host_scale`` and ``kernel_scale`` were then applied so that the leaves sum to the median.

    ``basis`` is the figure of ``time_s`` that the leaves sum to: ``median`` of the unprofiled
    steps, or ``mean`` over the windows of a trace (leaves are means over windows).
    ``kind`` says what a step is: ``training step``, ``step``, ``decode step (...)``, ``trace``.
    ``what`` says what ended one and how many ran, of a program whose steps were found.
    ``varying``: steps differ in size; figures are means over them. ``tokens``: that one step makes.
    ``fused_optimizer``: an optimizer of the program has a fused implementation; ``None``: unknown.
    ``ended_s`` is when each of ``samples_s`` ended, in seconds on the ``time.perf_counter`` of the
    process that ran it, so that they can be laid beside another clock; empty where it is unknown.
    ``seen``: all steps of this kind that the run saw, not the timed ones alone.
    """

    time_s: Spread
    kind: str = "step"
    what: str = ""
    basis: str = "median"
    profiled_time_s: float | None = None
    profiler_cost_s: float | None = None
    host_scale: float | None = None
    kernel_scale: float | None = None
    slow_steps: list[SlowStep] = []
    samples_s: list[float] = []
    ended_s: list[float] = []
    profiled_steps: int = 0
    varying: bool = False
    tokens: int | None = None
    fused_optimizer: bool | None = None
    seen: SeenSteps | None = None


class OpRow(Record, kw_only=True):
    """One op with one set of shapes, summed over a step.

    ``time_s`` is kernel time plus fixed cost; ``flops`` and ``bytes`` are totals over ``count``
    calls; ``roof_fraction`` is roof / time, of an op that was faster than fixed cost plus roof its
    roof / the time of its kernel (above 1). ``unit``: ``matrix``, ``vector`` or, where neither
    FLOPs nor bytes decide, what does (``gobrrr.roofline.operator_limits.LIMITS``).
    """

    name: str
    shapes: str
    dtypes: str
    count: float
    time_s: float
    kernel_s: float
    fixed_s: float
    flops: float | None
    bytes: float | None
    intensity: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    regime: str
    roof_s: float | None
    roof_fraction: float | None
    below_s: float | None
    page_faults_s: float = 0.0
    dtype: str | None = None
    memory_level: str | None = None
    unit: str | None = None
    op_class: str | None = None
    module: str | None = None
    source: str | None = None
    phase: str | None = None


class GroupRow(Record, kw_only=True):
    """A module path, source line, op class or phase, with the split of its time.

    ``module_class`` is the class of a module, where it is known.
    """

    name: str
    phase: str | None = None
    count: float = 0
    time_s: float
    compute_s: float
    memory_s: float
    overhead_s: float
    unmodelled_s: float
    flops: float | None
    bytes: float | None
    flops_share: float | None = None
    time_share: float | None = None
    flops_per_s: float | None = None
    regime: str | None = None
    module_class: str | None = None


class IdleRow(Record, kw_only=True):
    """Idle or overhead time with its cause (a leaf name without ``overhead.``) and source line."""

    cause: str
    time_s: float
    source: str | None = None
    detail: str | None = None


class UnmodelledOp(Record, kw_only=True):
    """An op without a formula or a ceiling."""

    op: str
    time_s: float
    reason: str | None = None


class Coverage(Record, kw_only=True):
    """How much kernel time has a formula and a ceiling."""

    modelled_time_fraction: float | None
    unmodelled: list[UnmodelledOp] = []
    unlinked_s: float = 0.0


class TimelineColumns(Record, kw_only=True):
    """One step, columnar, for a report to draw. Times are ns from the step's start.

    ``host_*``: spans of host threads (op, runtime, annotation, python); ``kernel_*``: device work
    (on a CPU: ops that do work), coloured by ``kernel_regime``; ``idle_*``: gaps by cause.
    Names index ``names``.
    """

    names: list[str] = []
    host_start_ns: list[int] = []
    host_duration_ns: list[int] = []
    host_thread: list[int] = []
    host_kind: list[int] = []
    host_name: list[int] = []
    kernel_start_ns: list[int] = []
    kernel_duration_ns: list[int] = []
    kernel_stream: list[int] = []
    kernel_name: list[int] = []
    kernel_regime: list[str] = []
    idle_start_ns: list[int] = []
    idle_duration_ns: list[int] = []
    idle_cause: list[str] = []


class Concurrent(Record, kw_only=True):
    """Work beside the step's lane, on another thread or device: outside the sum."""

    thread: str
    name: str
    time_s: float


class AboveCeiling(Record, kw_only=True):
    """Ops faster than roof plus fixed cost: cache, or a wrong formula or ceiling."""

    op: str
    shapes: str
    time_s: float
    roof_s: float


class Diagnosis(Record, kw_only=True):
    """A step's diagnosis. ``save`` writes it; ``gobrrr.load`` reads it.

    ``regime``: the largest top level; ``None`` where no verdict is drawn, because the times are not
    the program's or the figures contradict each other (``notices`` say which). ``source`` holds the
    program's or trace's ``command``, as it stood behind the options of ``gobrrr``. ``mfu`` counts
    the model's FLOPs once; ``hfu`` also those that activation checkpointing computes again
    (``None``: nothing is).
    """

    schema_version: int = SCHEMA_VERSION
    environment: dict[str, Any]
    source: dict[str, Any]
    device: DeviceRecord
    step: StepRecord
    split: Split
    leaves: dict[str, float]
    regime: str | None
    close: bool = False
    provisional: ProvisionalVerdict | None = None
    mfu: float | None = None
    mfu_dtype: str | None = None
    hfu: float | None = None
    speed_of_light_s: float | None = None
    coverage: Coverage
    above_ceiling: list[AboveCeiling] = []
    concurrent: list[Concurrent] = []
    ops: list[OpRow] = []
    classes: list[GroupRow] = []
    modules: list[GroupRow] = []
    lines: list[GroupRow] = []
    phases: list[GroupRow] = []
    idle: list[IdleRow] = []
    wall: WallTime | None = None
    device_time: DeviceTime | None = None
    batch_doubling: BatchDoubling | None = None
    energy: EnergyRecord | None = None
    card: CardRecord | None = None
    ranks: list[RankRow] | None = None
    collectives: list[CollectiveRow] = []
    job: JobRecord | None = None
    exposed: list[ExposedRow] = []
    lanes: JobLanes | None = None
    timeline: TimelineColumns | None = None
    findings: list[Finding] = []
    fixes: FixSummary | None = None
    untried: Untried | None = None
    verdict: str = ""
    notices: list[str] = []
    counters: dict[str, float] = {}

    @property
    def step_s(self) -> float:
        """Median seconds per step, unprofiled."""
        return self.step.time_s.median

    @property
    def accounted_s(self) -> float:
        """Seconds that the leaves sum to: the median or the mean, as ``step.basis`` says."""
        return self.step.time_s.mean if self.step.basis == "mean" else self.step.time_s.median

    @property
    def timed_on_busy_machine(self) -> bool:
        """Whether its own notices say that its times are not the program's."""
        return any(OF_THE_MACHINE in notice for notice in self.notices)

    @property
    def too_long(self) -> bool:
        """Whether its own notices say that its times hold for the steps that were timed alone."""
        return self.timed_on_busy_machine or any(
            # Not where they may be.
            f": {TOO_LONG}" in notice
            for notice in self.notices
        )

    def check(self) -> None:
        """Verifies the one rule of accounting: leaves sum to the step, and to the split.

        The tolerance is 1 ns plus a billionth of the step: float rounding, nothing else.

        Raises:
            AccountingError: a leaf is missing, unknown or negative, or a sum is wrong.
        """
        if set(self.leaves) != set(LEAVES):
            raise AccountingError(
                f"leaves missing or unknown: {sorted(set(self.leaves) ^ set(LEAVES))}"
            )
        step_s = self.accounted_s
        tolerance = 1e-9 + 1e-9 * abs(step_s)
        for name, value in self.leaves.items():
            # Written so that NaN fails.
            if not value >= -tolerance:
                raise AccountingError(f"leaf {name} is {value} s")
        total = sum(self.leaves.values())
        if not abs(total - step_s) <= tolerance:
            raise AccountingError(f"leaves sum to {total} s, the step is {step_s} s")
        for level, value in top_levels(self.leaves).items():
            stated = getattr(self.split, f"{level}_s")
            if not abs(stated - value) <= tolerance:
                raise AccountingError(f"{level} is {stated} s, its leaves sum to {value} s")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the diagnosis as JSON, whole or not at all; returns the path.

        Raises:
            AccountingError: ``check`` fails.
            InputError: the path cannot be written.
            UnsavableError: a number that is required has no value.
        """
        self.check()
        return write_output(path, encode(self))

    def __str__(self) -> str:
        text: str = import_module(_TEXT_REPORT).report_text(self)
        return text

    def _repr_html_(self) -> str:
        """The page of the HTML report in a frame, for a notebook; nothing is fetched."""
        html: str = import_module(_NOTEBOOK_REPORT).notebook_html(self)
        return html

    def __repr__(self) -> str:
        parts = {level: time_text(getattr(self.split, f"{level}_s")) for level in TOP_LEVELS}
        shares = ", ".join(f"{level} {text}" for level, text in parts.items())
        return f"<Diagnosis of {self.source.get('name')}: {time_text(self.step_s)}, {shares}>"
