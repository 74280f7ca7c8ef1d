"""What a child does with a ``file.py:function`` target."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from gobrrr.capture.workload import load_function
from gobrrr.measure.summary import Interval
from gobrrr.measure.timing import warm_up
from gobrrr.timeline.errors import GobrrrError
from gobrrr.verification.child import (
    Parent,
    draw_as_eager_code_does,
    find_fixes,
    peak_bytes,
)
from gobrrr.verification.copies import set_seeds
from gobrrr.verification.memory import set_limit
from gobrrr.verification.records import record_of
from gobrrr.verification.timing import Null
from gobrrr.verification.trial import describe
from gobrrr.verification.workloads import (
    Baseline,
    apply_all,
    as_trial_workload,
    evaluated,
    measure_null,
    prepare,
    synchronise,
    verify_workload,
)

WARM_UP_LIMIT_S = 5.0


def answer(spec: Mapping[str, Any], parent: Parent) -> None:
    """Load the function; then measure the null or try fixes in this process, as asked."""
    workload = _load(spec)
    parent.tell({"event": "ready"})
    baseline: Baseline | None = None
    null: Null | None = None
    while True:
        asked = parent.ask()
        if asked["do"] == "null":
            null = measure_null(workload, budget_s=asked["budget_s"])
            parent.tell({"null": null_message(null)})
            continue
        baseline = baseline or prepare(workload)
        given = asked.get("null")
        null = read_null(given) if given is not None else null
        trial = verify_workload(
            workload,
            find_fixes(asked["fixes"], spec["registry"]),
            null=null,
            baseline=baseline,
            speed_of_light_s=asked["speed_of_light_s"],
            tolerance=asked["tolerance"],
            budget_s=asked["budget_s"],
        )
        parent.tell({"trial": trial.as_message()})


def take_part(spec: Mapping[str, Any], parent: Parent) -> None:
    """Load the function with the fixes applied for good, and run steps when it is our turn."""
    workload = _load(spec)
    fixes = [f for f in find_fixes(spec["fixes"], spec["registry"]) if f.apply is not None]
    if spec.get("eager_random"):
        draw_as_eager_code_does()
    with ExitStack() as applied:
        begun = time.perf_counter()
        changed = apply_all(workload, fixes, applied)
        apply_s = time.perf_counter() - begun
        pieces: list[float] = []
        try:
            evaluation = evaluated(workload, changed, pieces)
            step_s, _ = warm_up(changed.step, sync=synchronise, limit_s=WARM_UP_LIMIT_S)
        except Exception as error:
            raise GobrrrError(describe(error)) from error
        parent.tell(
            {
                "event": "ready",
                "step_s": step_s,
                "first_call_s": apply_s + sum(pieces[:2]),
                "first_steps_s": apply_s + sum(pieces),
                "record": record_of(evaluation),
                "peak_bytes": peak_bytes(),
            }
        )
        while True:
            steps = parent.ask()["go"]
            synchronise()
            start = time.perf_counter_ns()
            for _ in range(steps):
                kept = changed.step()
            synchronise()
            length_s = (time.perf_counter_ns() - start) * 1e-9
            del kept
            parent.tell({"event": "turn", "seconds": length_s, "peak_bytes": peak_bytes()})


def _load(spec: Mapping[str, Any]) -> Any:
    import torch

    if spec.get("threads"):
        torch.set_num_threads(spec["threads"])
    # Two processes make the same inputs.
    set_seeds()
    workload = as_trial_workload(load_function(spec["target"]))
    if spec.get("memory_limit_bytes") is not None:
        set_limit(spec["memory_limit_bytes"])
    return workload


def null_message(null: Null) -> dict[str, Any]:
    """A null as plain values."""
    return {**asdict(null), "ratio": list(null.ratio)}


def read_null(message: Mapping[str, Any]) -> Null:
    """The inverse of ``null_message``."""
    return Null(Interval(*message["ratio"]), message["quiet"], message["before_s"])
