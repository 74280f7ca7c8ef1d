"""Try fixes on a workload in this process: a copy as it is against a copy with the change.

For a crash, a hang or a runaway allocation there is ``programs.py``, which does the same in a
process of its own; here an exception is the worst that becomes a result.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gobrrr.devices.backends import synchronise
from gobrrr.diagnosis.fix_schema import INCOMPARABLE, Verification
from gobrrr.fixes.fix import MEMORY, Fix
from gobrrr.measure.clock import Clock, SystemClock
from gobrrr.measure.noise import is_quiet
from gobrrr.measure.timing import THREADS_WAKE_S, warm_up
from gobrrr.observe.snapshot import Snapshot
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.workload import Workload, as_workload
from gobrrr.verification.copies import (
    StepFunction,
    module_of,
    private_copy,
    shared_code,
    shared_parameters,
)
from gobrrr.verification.evaluation import Evaluation, Expected, evaluate, expect
from gobrrr.verification.memory import device_peak_bytes, step_peak_bytes
from gobrrr.verification.numerics import TOLERANCE, Numerics, compare
from gobrrr.verification.settings import THREADS, Settings, changed, read_settings, write_settings
from gobrrr.verification.timing import (
    TURN_S,
    Null,
    Side,
    Timed,
    clear_of,
    extended_s,
    never,
    null_of,
    take_turns,
    undecided_by,
)
from gobrrr.verification.trial import Changes, Measured, describe, failed, trial_of

BUDGET_S = 30.0
# The null's share of the budget, where the caller has not measured it.
NULL_SHARE = 0.5


@dataclass(frozen=True)
class Baseline:
    """What all trials of one workload share.

    Attributes:
        workload: the user's own, never run.
        expected: what it computes, with the reference's; ``None`` where ``trouble`` says why.
        trouble: why no fix can be verified; empty if one can.
        first_steps_s: seconds of the steps that ``evaluate`` ran.
        notices: how what is tried differs from the user's program.
    """

    workload: Workload
    expected: Expected | None
    trouble: str
    first_steps_s: float
    notices: tuple[str, ...] = ()


def as_trial_workload(target: Any) -> Workload:
    """What a user may hand over, as a workload: a bare callable becomes a ``StepFunction``.

    Raises InputError as ``as_workload`` does.
    """
    work = as_workload(target)
    return work if isinstance(work, Workload) else StepFunction(work)


def prepare(target: Any) -> Baseline:
    """Run the original's few steps and the reference's, on copies.

    What the original raises is the baseline's ``trouble``: then no fix can be verified.
    """
    workload = as_trial_workload(target)
    with left_as_found(workload):
        pieces: list[float] = []
        try:
            copy = private_copy(workload)
            notices = shared_parameters(workload, copy)
            original = evaluated(workload, copy, pieces)
            found = expect(workload, original)
        except InputError as error:
            return Baseline(workload, None, str(error), math.nan)
        except Exception as error:
            return Baseline(
                workload, None, f"the unchanged step raised {describe(error)}", math.nan
            )
    trouble = ""
    if not (original.outputs or original.losses or original.gradients):
        trouble = (
            "the step returns nothing and leaves no tensor behind, so a compiler may delete all "
            "of it: return its result"
        )
    return Baseline(workload, found, trouble, sum(pieces), notices)


def measure_null(
    target: Any,
    *,
    budget_s: float = BUDGET_S * NULL_SHARE,
    clock: Clock | None = None,
) -> Null:
    """The workload against itself, on two copies, until it is quiet or the budget is spent.

    Raises what the workload raises.
    """
    workload = as_trial_workload(target)
    with left_as_found(workload):
        one, other = private_copy(workload), private_copy(workload)
        warm_up(one.step, clock=clock, sync=synchronise, limit_s=budget_s / 4)
        warm_up(other.step, clock=clock, sync=synchronise, limit_s=budget_s / 4)
        return null_of(
            take_turns(
                Side(one.step), Side(other.step), budget_s=budget_s, enough=is_quiet,
                clock=clock, sync=synchronise,
            )
        )  # fmt: skip


def verify_workload(
    target: Any,
    fixes: Sequence[Fix],
    *,
    null: Null | None = None,
    baseline: Baseline | None = None,
    speed_of_light_s: float | None = None,
    tolerance: float = TOLERANCE,
    budget_s: float = BUDGET_S,
    deadline: float = math.inf,
    clock: Clock | None = None,
) -> Verification:
    """Apply ``fixes`` together to a copy of the target, compare what it computes, time it in turns.

    ``null`` and ``baseline`` are measured here if not given; ``budget_s`` is for the timing, which
    takes longer where it is undecided then and ``deadline`` (of ``time.monotonic``) allows it. The
    workload and every global setting are left as they were; an exception, wrong numbers or a
    setting that leaks make a failed trial. No fixes at all make a null trial.
    """
    names = tuple(fix.name for fix in fixes)
    for fix in fixes:
        if fix.apply is None:
            return failed(names, f"{fix.name} cannot be applied to a workload in this process")
    try:
        baseline = baseline or prepare(target)
    except InputError as error:
        return failed(names, str(error))
    if baseline.trouble or baseline.expected is None:
        return failed(names, baseline.trouble)
    try:
        null = null or measure_null(baseline.workload, budget_s=budget_s * NULL_SHARE, clock=clock)
    except Exception as error:
        return failed(names, f"the unchanged step raised {describe(error)}")
    _load_compiler_settings()
    outside = read_settings()
    leaks: tuple[str, ...] = ()
    with left_as_found(baseline.workload):
        try:
            trial = _tried(
                baseline, baseline.expected, fixes, names, null, speed_of_light_s, tolerance,
                budget_s, deadline, clock or SystemClock(), outside,
            )  # fmt: skip
        except Exception as error:
            trial = failed(names, describe(error))
        finally:
            leaks = changed(outside, read_settings())
            refused = write_settings(outside, leaks)
            _forget_compiled()
    if leaks:
        more = f" and {len(leaks) - 3} more" if len(leaks) > 3 else ""
        reason = f"left a global setting changed: {', '.join(leaks[:3])}{more}"
        if refused:
            reason += f"; {', '.join(refused[:3])} could not be put back"
        return failed(names, reason, numerics=trial.numerics, notices=trial.notices)
    return trial


def _tried(
    baseline: Baseline,
    expected: Expected,
    fixes: Sequence[Fix],
    names: tuple[str, ...],
    null: Null,
    speed_of_light_s: float | None,
    tolerance: float,
    budget_s: float,
    deadline: float,
    clock: Clock,
    outside: Settings,
) -> Verification:
    notices = [*baseline.notices, *((expected.notice,) if expected.notice else ())]
    _forget_compiled()
    workload = baseline.workload
    with ExitStack() as applied:
        pieces: list[float] = []
        changes = Changes(fixes)
        begun = time.perf_counter()
        new = apply_all(private_copy(workload), fixes, applied)
        inside = read_settings()
        switched = changed(outside, inside)
        # Contexts undo what they did from where they left it.
        applied.callback(write_settings, inside, switched)
        apply_s = time.perf_counter() - begun
        evaluation = evaluated(workload, new, pieces)
        numerics = compare(expected, evaluation, tolerance, fixes)
        idle = changes.idle()
        first_call_s = apply_s + sum(pieces[: 2 if len(pieces) > 1 else 1])
        known: dict[str, Any] = {"first_call_s": first_call_s, "notices": list(notices)}
        if numerics.verdict == "failed":
            return failed(names, numerics.reason, numerics=numerics.as_record(), **known)
        old = private_copy(workload)
        restrained = write_settings(outside, switched)
        if restrained:
            return failed(
                names,
                f"changes {', '.join(restrained)} for the whole process, which cannot be undone "
                "while the unchanged program is timed",
                numerics=numerics.as_record(), **known,
            )  # fmt: skip
        timed = _timed(
            workload, old, new, outside, inside, switched, null, budget_s, deadline, clock
        )
        write_settings(inside, switched)
        peak = device_peak_bytes(new.step)
        memory: tuple[int | None, int | None] = None, None
        if any(MEMORY in fix.may_change for fix in fixes):
            write_settings(outside, switched)
            before_bytes = step_peak_bytes(old.step)
            write_settings(inside, switched)
            memory = before_bytes, step_peak_bytes(new.step)
        write_settings(inside, switched)
    if numerics.verdict == INCOMPARABLE:
        numerics = _with_eager_randomness(baseline, expected, fixes, tolerance, notices) or numerics
    measured = Measured(
        timed, timed.ratio, (baseline.first_steps_s, apply_s + sum(pieces)), first_call_s, peak,
        memory,
    )  # fmt: skip
    return trial_of(fixes, measured, numerics, null, speed_of_light_s, notices, idle)


def apply_all(workload: Workload, fixes: Sequence[Fix], stack: ExitStack) -> Workload:
    """The workload with all fixes applied, one on the other, until ``stack`` is left."""
    for fix in fixes:
        assert fix.apply is not None
        workload = stack.enter_context(fix.apply(workload))
    return workload


def evaluated(workload: Workload, copy: Workload, pieces: list[float]) -> Evaluation:
    """``evaluate`` on a copy; each piece's seconds are appended to ``pieces``."""

    def around(call: Callable[[], Any]) -> Any:
        synchronise()
        begun = time.perf_counter()
        result = call()
        synchronise()
        pieces.append(time.perf_counter() - begun)
        return result

    if not isinstance(workload, StepFunction):
        return evaluate(copy, around=around)
    # A bare callable works on the user's own tensors: they are put back.
    before = Snapshot(workload.model)
    versions = {id(t): _version(t) for t in before.tensors}
    gradients = {id(t): None if t.grad is None else _version(t.grad) for t in _leaves(before)}

    def left_behind() -> dict[str, Any]:
        # Held until it has been read: ids are those of living tensors.
        after = Snapshot(workload.model)
        found = {}
        for number, tensor in enumerate(after.tensors):
            if versions.get(id(tensor), -1) != _version(tensor):
                found[f"left behind {number} {tuple(tensor.shape)}"] = tensor
        for number, tensor in enumerate(_leaves(after)):
            grad = tensor.grad
            if grad is not None and gradients.get(id(tensor), -1) != _version(grad):
                found[f"gradient left behind {number} {tuple(tensor.shape)}"] = grad
        return found

    try:
        return evaluate(copy, around=around, reached=left_behind)
    finally:
        before.restore()


def _leaves(snapshot: Snapshot) -> list[Any]:
    return [t for t in snapshot.tensors if t.is_leaf]


def _version(tensor: Any) -> int:
    # Tensors made in inference mode do not count their changes.
    return -2 if tensor.is_inference() else int(tensor._version)


def _timed(
    workload: Workload,
    old: Workload,
    new: Workload,
    outside: Settings,
    inside: Settings,
    switched: tuple[str, ...],
    null: Null,
    budget_s: float,
    deadline: float,
    clock: Clock,
) -> Timed:
    threads = THREADS in switched

    def entering(workload: Workload, settings: Settings) -> Callable[[], object]:
        if not switched:
            return lambda: None

        def enter() -> None:
            write_settings(settings, switched)
            # The first step pays for the switch: threads start, kernels are chosen anew.
            begun = time.perf_counter()
            workload.step()
            while threads and time.perf_counter() - begun < THREADS_WAKE_S:
                workload.step()

        return enter

    before = Side(old.step, enter=entering(old, outside))
    after = Side(new.step, enter=entering(new, inside))
    for side in (before, after):
        side.enter()
        warm_up(side.step, clock=clock, sync=synchronise, limit_s=max(1.0, budget_s / 8))
    # What has to be done after it counts too: a trial that is ended has no result.
    may_extend = time.monotonic() + extended_s(budget_s) + budget_s < deadline
    return take_turns(
        before, after, budget_s=budget_s, enough=clear_of(null), clock=clock, sync=synchronise,
        turn_s=THREADS_WAKE_S if threads else TURN_S,
        undecided=undecided_by(null) if may_extend else never,
    )  # fmt: skip


def _with_eager_randomness(
    baseline: Baseline,
    expected: Expected,
    fixes: Sequence[Fix],
    tolerance: float,
    notices: list[str],
) -> Numerics | None:
    """Compare once more with compiled code told to draw random numbers as eager code does.

    ``None`` if that raises, of which ``notices`` is told, or changes nothing. The timed step is not
    this one: everything but the order of the random numbers is.
    """
    config = sys.modules.get("torch._inductor.config")
    if config is None:
        return None
    _forget_compiled()
    try:
        with config.patch(fallback_random=True), ExitStack() as applied:
            new = apply_all(private_copy(baseline.workload), fixes, applied)
            found = compare(expected, evaluated(baseline.workload, new, []), tolerance, fixes)
    except Exception as error:
        notices.append(
            "Comparing once more, with random numbers drawn as without compilation, raised "
            f"{type(error).__name__}."
        )
        return None
    if found.verdict == INCOMPARABLE:
        return None
    return replace(found, reason=f"{found.reason} (compiled with eager random numbers)")


@contextmanager
def left_as_found(workload: Workload) -> Iterator[None]:
    """Puts back what a copy may share with the user's objects, and the random generators.

    Copies of modules share nothing but the code of hooks. What a function reaches is not copied:
    it is put back.
    """
    model = (workload.model,) if module_of(workload.model) is None else ()
    snapshot = Snapshot(*model, *shared_code(workload))
    try:
        yield
    finally:
        snapshot.restore()


def _load_compiler_settings() -> None:
    # So that what a fix sets there has an earlier value to be compared with.
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config  # noqa: F401


def _forget_compiled() -> None:
    """Compiled code counts per source function, whoever's copy it belongs to: start from none."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
