"""What the two ends of a child process say to each other: typed, one union each way, MessagePack.

A ``Spec`` comes first and says what to do with which program. Sketches of tensors travel as bytes,
and numbers that are not finite as themselves.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from gobrrr.diagnosis.fix_schema import Verification
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.fixes.fix import Fix
from gobrrr.verification.timing import Null

REGISTRY = "gobrrr.fixes.catalogue:FIXES"
# What a child may be asked to do: the function that its first message is handed to.
TAKE_TURNS = "gobrrr.verification.sides:take_turns"
TRY_FIXES = "gobrrr.verification.sides:try_fixes"


class Target(msgspec.Struct, frozen=True):
    """A program that is run in processes of its own.

    Attributes:
        kind: how it is run: a ``file.py:function``, ``python script``, or ``python -m module``.
        name: path with function, path, or name.
        argv: arguments of a script or module.
        registry: where the child finds fixes by name: ``module:NAME`` or ``file.py:NAME``.
        memory_limit_bytes: what each process may take beyond what it holds when the program starts.
        threads: ``torch.set_num_threads`` before it starts.
    """

    kind: Literal["function", "script", "module"]
    name: str
    argv: tuple[str, ...] = ()
    registry: str = REGISTRY
    memory_limit_bytes: int | None = None
    threads: int | None = None

    @property
    def is_function(self) -> bool:
        """Whether fixes are applied to parts that gobrrr holds, rather than from outside."""
        return self.kind == "function"

    def refusal(self, fix: Fix) -> str:
        """Why this fix cannot be applied to this kind of program; empty if it can."""
        if fix.environment or (fix.apply if self.is_function else fix.in_script) is not None:
            return ""
        if self.is_function:
            return "applies to scripts: gobrrr fix train.py"
        return "needs the model and its inputs: gobrrr fix file.py:function"


class Spec(msgspec.Struct, frozen=True):
    """The first message: a job, ``module:function``, and the program that it is done on.

    ``step_source``: what ends a script's steps, as its diagnosis knows it; empty where unknown.
    """

    job: str
    target: Target
    fixes: tuple[str, ...] = ()
    eager_random: bool = False
    step_source: str = ""


class Sketch(msgspec.Struct, frozen=True):
    """A tensor's shape, float64 sums of its elements (``records``), and whether of integers."""

    shape: tuple[int, ...]
    values: bytes
    integral: bool = False


class Computed(msgspec.Struct, frozen=True):
    """What a program computed; the fields are those of ``evaluation.Evaluation``."""

    outputs: dict[str, Sketch] = {}
    gradients: dict[str, Sketch] = {}
    moved: dict[str, Sketch] = {}
    losses: tuple[float, ...] = ()
    random: str = ""
    draws: bool = True
    given: tuple[str, ...] = ()


class Go(msgspec.Struct, tag=True):
    """Run so many steps; with ``memory``, one, and tell what its tensors take."""

    steps: int
    memory: bool = False


class MeasureNull(msgspec.Struct, tag=True):
    """Time the program against itself, in this process."""

    budget_s: float


class Try(msgspec.Struct, tag=True):
    """Try fixes on the program, in this process, which is ended after ``limit_s``."""

    fixes: tuple[str, ...]
    null: Null
    speed_of_light_s: float | None
    tolerance: float
    budget_s: float
    limit_s: float


class Loaded(msgspec.Struct, tag=True):
    """The program is there, and nothing has been asked of it yet."""


class Ready(msgspec.Struct, tag=True):
    """Its steps are warm.

    ``step_s`` is the length of one, ``started_s`` what it took to get here beyond as many of them;
    ``idle`` are fixes that have changed nothing on the way, ``modules`` how many outermost modules
    with parameters the others came upon in a script. ``seeded``: the script has seeded torch
    itself; ``None`` of a function.
    """

    step_s: float
    started_s: float
    computed: Computed
    peak_bytes: int
    first_call_s: float | None = None
    idle: tuple[str, ...] = ()
    modules: int | None = None
    seeded: bool | None = None


class Turn(msgspec.Struct, tag=True):
    """The steps have run, in so many seconds in all.

    Of them the process spent ``system_s`` in the kernel, with ``faults`` minor page faults.
    """

    seconds: float
    peak_bytes: int
    step_memory_bytes: int | None = None
    system_s: float = 0.0
    faults: int = 0


class Ended(msgspec.Struct, tag=True):
    """The script has ended by itself."""

    code: int
    steps: int
    raised: str = ""
    needs_input: bool = False


class NullMeasured(msgspec.Struct, tag=True):
    """The answer to ``MeasureNull``."""

    null: Null


class Tried(msgspec.Struct, tag=True):
    """The answer to ``Try``."""

    trial: Verification


class Diagnosed(msgspec.Struct, tag=True):
    """A diagnosis of the program, and the same for the fixes: pickled, since op calls nest."""

    diagnosis: Diagnosis
    facts: bytes


class Failed(msgspec.Struct, tag=True):
    """It did not work out: a sentence, and whether the user's own code raised."""

    error: str
    by_user: bool = False


Question: TypeAlias = Go | MeasureNull | Try
Answer: TypeAlias = Loaded | Ready | Turn | Ended | NullMeasured | Tried | Diagnosed | Failed
