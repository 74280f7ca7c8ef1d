"""The figures that a gate holds a step to: of a diagnosis, of one recorded step, or of a file.

As a file they are a baseline small enough to be read in a diff.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gobrrr.attribution.attributed import READ_OF_ONE_VALUE, READS_COUNTED, READS_OF_LIBRARY
from gobrrr.diagnosis.record import Record
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.storage import decode, read
from gobrrr.diagnosis.writing import encode
from gobrrr.timeline.data import PHASE_NAMES, Phase
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.files import write_output
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import count

FIGURES_VERSION = 1
SYNCHRONISATIONS = "synchronisations"
# Counters that depend on the program alone. Page faults depend on the allocator and the system.
COUNTED: tuple[str, ...] = (
    "flops", "bytes", "ops", "kernels", "copies", "collectives", SYNCHRONISATIONS,
    READS_COUNTED, "graph_breaks", "recompilations",
)  # fmt: skip
_LINES = 3


class StepTime(Record, kw_only=True):
    """Seconds per step: what its parts sum to, its 95 % interval, and over how many steps.

    ``busy``: the machine was too busy to time the program.
    """

    step_s: float
    low_s: float
    high_s: float | None
    steps: int
    busy: bool = False


class Figures(Record, kw_only=True, omit_defaults=True):
    """What a gate asks of a step.

    ``counters``: per step, as ``Diagnosis.counters``. On a processor, which has nothing to
    synchronise with, ``synchronisations`` are what waits for the device on any other: reads of one
    value, but for those that a library's optimizer makes of its own figures.
    ``varying``: steps differ in size; counts are means.
    ``time``: ``None`` where nothing was timed.
    ``lines``: how often a step synchronises at each line, as far as that is known. This and what
    follows is of a step, and not kept in files. ``regime``, ``overhead`` (its share of the step):
    ``None`` without a verdict.
    """

    figures_version: int
    name: str
    device: str
    kind: str
    threads: int | None = None
    varying: bool = False
    counters: dict[str, float]
    time: StepTime | None = None
    lines: dict[str, float] = msgspec.field(default_factory=dict)
    regime: str | None = None
    overhead: float | None = None

    @property
    def held(self) -> tuple[str, ...]:
        """The counters that a baseline of these figures holds."""
        return tuple(name for name in COUNTED if name in self.counted)

    @property
    def counted(self) -> dict[str, float]:
        """The counters, each thing once: a processor's synchronisations are reads of one value."""
        twice: tuple[str, ...] = ()
        if self.kind == "cpu" and SYNCHRONISATIONS in self.counters:
            twice = READS_COUNTED, READS_OF_LIBRARY
        return {name: value for name, value in self.counters.items() if name not in twice}

    @property
    def where(self) -> str:
        """The lines that synchronise, the most often first, as text; empty where none is known."""
        lines = sorted(self.lines, key=lambda line: -self.lines[line])
        more = f" and {len(lines) - _LINES} more" if len(lines) > _LINES else ""
        return ", ".join(_line(line, self.lines[line]) for line in lines[:_LINES]) + more

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes them as a baseline: what is held, a line each. Raises InputError."""
        # A whole number is written as one.
        counters: dict[str, float] = {}
        for name in self.held:
            value = self.counters[name]
            counters[name] = int(value) if value == int(value) else value
        time = self.time
        if time is not None:
            # To the nanosecond.
            step_s, low_s, high_s = (
                None if each is None else round(each, 9)
                for each in (time.step_s, time.low_s, time.high_s)
            )
            time = replace(time, step_s=step_s, low_s=low_s, high_s=high_s)
        kept = replace(self, counters=counters, time=time, lines={}, regime=None, overhead=None)
        return write_output(path, msgspec.json.format(encode(kept), indent=2) + b"\n")


def _line(line: str, times: float) -> str:
    often = f" ({count(times)} times)" if times > 1 else ""
    return f"{plain_name(line)}{often}"


def figures_of(diagnosis: Diagnosis) -> Figures:
    """The figures of a diagnosed step."""
    spread, split = diagnosis.step.time_s, diagnosis.split
    on_cpu = diagnosis.device.kind == "cpu"
    counters = with_synchronisations(diagnosis.counters) if on_cpu else diagnosis.counters
    # Without a verdict something contradicts the parts of the step, which may be its overhead.
    told = diagnosis.regime is not None and diagnosis.accounted_s > 0
    return Figures(
        figures_version=FIGURES_VERSION,
        name=str(diagnosis.source.get("name") or ""),
        device=diagnosis.device.name,
        kind=diagnosis.device.kind,
        threads=diagnosis.device.threads,
        varying=diagnosis.step.varying,
        counters=counters,
        time=StepTime(
            step_s=diagnosis.accounted_s, low_s=spread.low, high_s=spread.high, steps=spread.n,
            busy=diagnosis.timed_on_busy_machine,
        ),
        lines=_lines_of(diagnosis, counters),
        regime=diagnosis.regime,
        overhead=split.overhead_s / diagnosis.accounted_s if told else None,
    )  # fmt: skip


def with_synchronisations(counters: Mapping[str, float]) -> dict[str, float]:
    """Counters of a processor's step with what are synchronisations there, if it is known."""
    if SYNCHRONISATIONS in counters or READS_COUNTED not in counters:
        return dict(counters)
    own = counters[READS_COUNTED] - counters.get(READS_OF_LIBRARY, 0.0)
    return {**counters, SYNCHRONISATIONS: own}


def _lines_of(diagnosis: Diagnosis, counters: Mapping[str, float]) -> dict[str, float]:
    """Lines that read one value, and on a device those that wait for it in another way."""
    lines: dict[str, float] = {}
    rows = [row for row in diagnosis.ops if row.name == READ_OF_ONE_VALUE and row.source]
    optimizer = PHASE_NAMES[Phase.OPTIMIZER]
    outside = [row for row in rows if row.phase != optimizer]
    counted = counters.get(SYNCHRONISATIONS, 0.0)
    # Those of the user's own optimizer are counted; the rows do not say whose they are.
    if diagnosis.device.kind == "cpu" and sum(row.count for row in outside) >= counted:
        rows = outside
    for row in rows:
        assert row.source is not None
        lines[row.source] = lines.get(row.source, 0.0) + row.count
    for idle in diagnosis.idle:
        if idle.cause == "synchronisation" and idle.source:
            lines.setdefault(idle.source, 0.0)
    return lines


class _Version(msgspec.Struct):
    figures_version: int | None = None


def load_figures(path: str | os.PathLike[str]) -> Figures:
    """Reads figures that ``Figures.save`` wrote, or those of a diagnosis.

    Raises:
        InputError: no such file, neither of the two, or written by a newer version.
    """
    data = read(path)
    try:
        version = msgspec.json.decode(data, type=_Version).figures_version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        version = None
    if version is None:
        return figures_of(decode(data, name=str(path)))
    if version > FIGURES_VERSION:
        raise InputError(f"{path} was written by a newer gobrrr; upgrade gobrrr")
    try:
        return msgspec.json.decode(data, type=Figures)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"{path} is not a baseline of gobrrr: {error}") from error
