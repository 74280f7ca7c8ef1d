"""A callable, run through every phase of a session."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gobrrr.live.bare_steps import BareSteps
from gobrrr.live.measurements import Measurements, Plan
from gobrrr.live.profiles.device_profile import device_in_use
from gobrrr.live.session import Session
from gobrrr.live.watch.call_watch import CallWatch
from gobrrr.timeline.errors import DefectError, GobrrrError, InputError, UserCodeError


def measure_step(
    step: Callable[[], Any],
    plan: Plan,
    *,
    modules: dict[str, Any] | None = None,
    progress: Callable[[str, int, int], None] = lambda phase, done, wanted: None,
) -> Measurements:
    """Run a callable through every phase. What it raises comes back as ``UserCodeError``.

    Raises InputError for one that returns a coroutine or a generator: nothing of it has run then.
    """
    calls = CallWatch()
    bare: BareSteps | None = None

    def begin_bare(wanted: int, step_s: float) -> BareSteps | None:
        nonlocal bare
        # On a processor what is done between two steps is in neither; a device may wait for it.
        if device_in_use() is not None and calls.begin_bare():
            bare = BareSteps(wanted, step_s, step)
        return bare

    session = Session(
        plan,
        on_phase=progress,
        modules=modules,
        find_device=device_in_use,
        calls=calls,
        on_settled=lambda: _settle(calls, undo),
        begin_bare=begin_bare,
    )
    result = None
    calls.install()
    undo = calls.discover()
    try:
        session.boundary("function")
        while not session.done:
            previous, result = result, None
            try:
                result = step()
            except Exception as error:
                whose = _whose(error, step, session)
                why = f"{type(error).__name__}: {error}".split("\n", 1)[0]
                if not (isinstance(whose, DefectError) and session.go_on_without(why)):
                    raise whose from error
            _refuse_unrun(result, step)
            if bare is None or not bare.goes_on(step):
                if bare is not None:
                    bare = None
                    calls.end_bare()
                session.boundary("function")
            # Dropped after the step's end: freeing a result is not part of the next step.
            del previous
    finally:
        session.abandon()
        undo()
        calls.remove()
    return session.result


def _refuse_unrun(result: Any, step: Callable[[], Any]) -> None:
    """Raises InputError for what a call has only made, to be run by whoever takes it.

    A step that has run may return a generator of something else, such as a model's parameters.
    """
    if inspect.isawaitable(result):
        what, runs = "a coroutine", "lambda: asyncio.run(step())"
    elif inspect.isasyncgen(result) or (
        inspect.isgenerator(result) and result.gi_code is getattr(step, "__code__", None)
    ):
        what, runs = "a generator", "lambda: list(step())"
    else:
        return
    if inspect.iscoroutine(result):
        # Python would warn that nobody has awaited it.
        result.close()
    raise InputError(
        f"the step returned {what}, of which nothing has run: give a function that runs it ({runs})"
    )


def _settle(calls: CallWatch, undo: Callable[[], None]) -> None:
    calls.settle()
    undo()


def _whose(error: Exception, step: Callable[[], Any], session: Session) -> GobrrrError:
    """The step's own error, or gobrrr's: the same step runs once more with nothing attached."""
    phase, watched = session.phase, session.watches
    session.abandon()
    if watched and not isinstance(error, GobrrrError):
        try:
            step()
        except Exception as again:
            error = again
        else:
            return DefectError(
                f"gobrrr could not measure this step: during {phase} it failed with "
                f"{type(error).__name__}: {error}; it runs without gobrrr"
            )
    if isinstance(error, GobrrrError):
        return error
    return UserCodeError(f"the step raised {type(error).__name__}: {error}")
