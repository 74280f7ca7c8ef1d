"""What tells steps apart: which modules they call, how, on what; and what else the wall time holds.

Plain data. A window is the time from one step's end to the next one's; what a program does there
besides its step (evaluation, a checkpoint) is a part of the wall time and not of the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

PLAIN, WARM, RECORDED, PROFILED = "plain", "warm-up", "recorded", "profiled"


@dataclass(frozen=True, slots=True)
class CallKey:
    """What an outermost call of a module is, whichever step makes it.

    Attributes:
        module: its class.
        instance: which module, by order of first appearance.
        training: ``module.training``.
        gradients: whether gradients are recorded.
        shapes: of the tensors that it is given.
        tokens: whether the first of them holds integers.
        synced: whether a backward pass averages its gradients over ranks (no ``no_sync``).
        source: the user's line of the first such call; no part of what it is.
    """

    module: str
    instance: int
    training: bool
    gradients: bool
    shapes: tuple[tuple[int, ...], ...]
    tokens: bool = False
    synced: bool = True
    source: str = field(default="", compare=False)

    @property
    def size(self) -> int:
        """Elements of the tensors that it is given."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def alike(self) -> tuple[int, bool, bool]:
        """The same for calls that differ in shapes alone."""
        return self.instance, self.training, self.gradients


@dataclass(frozen=True, slots=True)
class Call:
    """One outermost call of a module, on the clock of the windows."""

    key: CallKey
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of a window whose purpose is known: ``checkpointing`` around ``torch.save``."""

    name: str
    begin_ns: int
    end_ns: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class StepWindow:
    """The time from one step's end to the next one's.

    ``phase``: what gobrrr did meanwhile; only a ``PLAIN`` one's times are the program's own.
    ``page_faults``: minor ones of the process. ``compiles``: torch.compile worked in it.
    """

    begin_ns: int
    end_ns: int
    calls: tuple[Call, ...] = ()
    marks: tuple[Mark, ...] = ()
    phase: str = PLAIN
    page_faults: int = 0
    compiles: bool = False

    @property
    def length_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.begin_ns

    @property
    def attached(self) -> bool:
        """Whether something of gobrrr's was attached to it, which makes it longer."""
        return self.phase in (RECORDED, PROFILED)

    @property
    def keys(self) -> tuple[CallKey, ...]:
        """Its calls without their times."""
        return tuple(call.key for call in self.calls)

    @property
    def size(self) -> int:
        """Elements that its calls are given."""
        return sum(call.key.size for call in self.calls)


@dataclass(frozen=True, slots=True)
class SeenSteps:
    """All steps of a kind that were seen, without what else stood in their windows.

    Attributes:
        count: those that nothing was attached to: timed ones, and others of the warm-up and
            between two phases.
        mean_s: of these, in seconds.
        median_s: of these.
        attached: further ones, which were recorded or profiled.
        attached_mean_s: of those; ``None`` if there are none.
    """

    count: int
    mean_s: float
    median_s: float
    attached: int
    attached_mean_s: float | None


@dataclass(frozen=True, slots=True)
class WallPart:
    """A part of the wall time beside the steps.

    Attributes:
        name: ``evaluation``, ``checkpointing``, ``prefill``, a function of the program.
        time_s: how long it takes each time.
        share: of the wall time.
        per_step: how often there is one for each step.
        source: the line that it comes from; ``None`` if unknown.
    """

    name: str
    time_s: float
    share: float
    per_step: float
    source: str | None = None


@dataclass(frozen=True, slots=True)
class WallTime:
    """What the time of the program's loop goes to.

    Attributes:
        steps_share: of the wall time, what the steps that are diagnosed take.
        parts: everything else, the most first; the shares and ``steps_share`` sum to 1.
        windows: how many steps were looked at.
    """

    steps_share: float
    parts: tuple[WallPart, ...]
    windows: int
