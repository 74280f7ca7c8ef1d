"""What a diagnosis says of fixes: predicted, tried, and the best set of them."""

from __future__ import annotations

from typing import Any

from gobrrr.diagnosis.record import Record


class Prediction(Record, kw_only=True):
    """Seconds per step that a fix will save."""

    low_s: float
    expected_s: float
    high_s: float
    speedup: float


class Ratio(Record, kw_only=True):
    """A measured speedup with its interval."""

    median: float
    low: float
    high: float


class Verification(Record, kw_only=True):
    """Before against after, measured. Times in seconds per step, unless they say otherwise.

    ``compile_s`` is paid once and won back after ``break_even_steps``. ``step_memory_bytes`` is the
    most that tensors made within a step take at once, ``step_memory_before_bytes`` the same of the
    step as it was.
    """

    speedup: Ratio | None = None
    verdict: str
    reason: str = ""
    numerics: dict[str, Any] | None = None
    before_s: float | None = None
    after_s: float | None = None
    first_call_s: float | None = None
    compile_s: float | None = None
    break_even_steps: float | None = None
    peak_memory_bytes: int | None = None
    step_memory_bytes: int | None = None
    step_memory_before_bytes: int | None = None
    notices: list[str] = []


class Finding(Record, kw_only=True):
    """A fix with its prediction and, once tried, its verification.

    ``leaves`` are those that it takes time from, so that a report can point from one to the other.
    ``advice``: a change that only the user can make, which is predicted and never tried.
    """

    fix: str
    prediction: Prediction | None
    because: str
    verification: Verification | None = None
    title: str | None = None
    sources: list[str] = []
    leaves: list[str] = []
    advice: bool = False


class MemoryPoint(Record, kw_only=True):
    """One way to run the step: how long it takes, and the most memory that it takes meanwhile.

    ``fix`` is empty for the program as it is. ``budget`` is the share of activations that is kept,
    ``None`` where nothing is compiled. ``step_s`` follows from the ratio to the program as it is.
    ``price`` is its time over the reference's, with an interval that holds both ratios';
    ``saved_bytes`` is what it takes less than the reference (negative: more). ``on_front``: no
    other point takes as little of both, and less of one.
    """

    fix: str
    budget: float | None
    step_s: float
    memory_bytes: int
    price: Ratio
    saved_bytes: int
    on_front: bool


class MemoryCurve(Record, kw_only=True):
    """Peak memory of a step against its time, over settings of the partitioner's memory budget.

    ``reference`` is the fix that time and memory are compared with: ``compile``, or empty for the
    program as it is where that was not measured. Points: the most memory first.
    """

    reference: str
    points: list[MemoryPoint]


class FixSummary(Record, kw_only=True):
    """The outcome of a search for fixes (``gobrrr fix``).

    ``best`` names the fastest verified set, ``snippet`` is that set as code, ``ruled_out`` gives
    the reason for each fix that was not considered, ``null`` what no change at all measured.
    """

    best: list[str] = []
    verification: Verification | None = None
    snippet: str = ""
    ruled_out: dict[str, str] = {}
    null: Ratio | None = None
    notices: list[str] = []
    memory_curve: MemoryCurve | None = None
