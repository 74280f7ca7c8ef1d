"""Threads of a step under capture: they meet stand-ins too, and their operators are kept.

Modes are a thread's own, so a thread that the step starts would run for real, on stand-ins that
only the capture understands. Here each such thread enters the modes before it runs. One operator
is dispatched at a time, whichever thread asks for it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.timeline.errors import GobrrrError

# How long the capture waits for threads that the step started and did not wait for.
PATIENCE_S = 1.0


class StepThreads:
    """Follows the threads of a step from ``followed`` on.

    Attributes:
        modes: makes the context in which a thread's operators are captured, one for each thread.
        count: threads that the step started.

    Args:
        explain: what went wrong in a thread as an error of gobrrr's; ``None`` if it is the
            program's own, which then goes its usual way.
    """

    def __init__(
        self,
        explain: Callable[[Exception], GobrrrError | None],
    ) -> None:
        self.modes: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        self._explain = explain
        self._here = threading.local()
        self._started: list[weakref.ref[threading.Thread]] = []
        self._following = False
        self._owner = threading.current_thread()
        self.count = 0
        self.failure: GobrrrError | None = None

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Threads started, and work handed to pools, by this thread or by one of those."""
        start = threading.Thread.start
        submit = concurrent.futures.ThreadPoolExecutor.submit

        def start_followed(thread: threading.Thread) -> None:
            if self._follows_here() and not _is_of_pool(thread):
                self.count += 1
                self._started.append(weakref.ref(thread))
                run = thread.run
                thread.run = functools.partial(self._run_thread, thread, run)  # type: ignore[method-assign]
            start(thread)

        def submit_followed(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            if self._follows_here():
                function = functools.partial(self.run, function)
            return submit(pool, function, *args, **kwargs)

        self._here.inside = True
        self._following = True
        threading.Thread.start = start_followed  # type: ignore[method-assign,assignment]
        concurrent.futures.ThreadPoolExecutor.submit = submit_followed  # type: ignore[method-assign]
        _forget_in_children(self)
        try:
            with self._heard():
                yield
        finally:
            self._following = False
            self._here.inside = False
            threading.Thread.start = start  # type: ignore[method-assign]
            concurrent.futures.ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        """The signal that wakes the step is heard where the process ignores it.

        A shell starts background jobs so. A Ctrl-C that is meant for others is still ignored.
        """
        ignored = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        )
        if ignored:
            signal.signal(signal.SIGINT, self._wake)
        try:
            yield
        finally:
            if ignored:
                signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _wake(self, *_: Any) -> None:
        if self.failure is not None:
            raise KeyboardInterrupt

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``function`` in this thread as a part of the step."""
        if not self.is_foreign():
            return function(*args, **kwargs)
        self._here.inside = True
        try:
            with self.modes():
                return function(*args, **kwargs)
        finally:
            self._here.inside = False

    def running(self) -> int:
        """How many threads of the step are still at work after a moment's wait."""
        deadline = time.monotonic() + PATIENCE_S
        for reference in self._started:
            thread = reference()
            if thread is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        return sum(
            thread is not None and thread.is_alive() for thread in (r() for r in self._started)
        )

    def check(self) -> None:
        """Raises what the capture could not do in another thread."""
        if self.failure is not None:
            raise self.failure

    def is_foreign(self) -> bool:
        """Whether a step is being followed and this thread is none of its."""
        return self._following and not getattr(self._here, "inside", False)

    def _follows_here(self) -> bool:
        return self._following and getattr(self._here, "inside", False)

    def _run_thread(self, thread: threading.Thread, run: Callable[[], None]) -> None:
        # The thread is to be as it was, should anybody look at it afterwards.
        with contextlib.suppress(AttributeError):
            del thread.run
        try:
            self.run(run)
        except Exception as error:
            ours = self._explain(error)
            if ours is None or not self._following:
                raise
            self._fail(ours)

    def _fail(self, error: GobrrrError) -> None:
        """The step hears of it at its next operator, or where it waits for this thread."""
        self.failure = self.failure or error
        # A main thread that waits in a lock is woken by a signal alone.
        if (
            self._owner is threading.main_thread()
            and hasattr(signal, "pthread_kill")
            and signal.getsignal(signal.SIGINT) in (signal.default_int_handler, self._wake)
        ):
            signal.pthread_kill(self._owner.ident or 0, signal.SIGINT)


def _is_of_pool(thread: threading.Thread) -> bool:
    # It lives as long as its pool; what it is given to do is followed one by one.
    target = getattr(thread, "_target", None)
    return getattr(target, "__module__", None) == "concurrent.futures.thread"


def fake_mode_of(threads: StepThreads) -> Any:
    """A ``FakeTensorMode`` for several threads.

    A stand-in in a thread that was there before the step has come from the step: what is done to it
    there is a part of the step as well.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    class ThreadedFakeMode(FakeTensorMode):  # type: ignore[misc]
        """What a ``FakeTensorMode`` notes on entry and while a kernel runs is a thread's own."""

        def __init__(self, **options: Any) -> None:
            self._of_thread = threading.local()
            super().__init__(**options)

        def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensorMode:
            # A stand-in that is copied refers to it, and the copy is to be of the same capture.
            return self

        @property
        def enter_stack(self) -> list[Any]:
            stack: list[Any] | None = getattr(self._of_thread, "enter_stack", None)
            if stack is None:
                stack = self._of_thread.enter_stack = []
            return stack

        @enter_stack.setter
        def enter_stack(self, stack: list[Any]) -> None:
            self._of_thread.enter_stack = stack

        @property
        def in_kernel_invocation(self) -> bool:
            return bool(getattr(self._of_thread, "in_kernel", False))

        @in_kernel_invocation.setter
        def in_kernel_invocation(self, value: bool) -> None:
            self._of_thread.in_kernel = value

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if threads.is_foreign():
                return threads.run(func, *args, **(kwargs or {}))
            return super().__torch_dispatch__(func, types, args, kwargs)

    return ThreadedFakeMode(allow_non_fake_inputs=True)


_forgetting: list[weakref.ref[StepThreads]] = []


def _forget_in_children(threads: StepThreads) -> None:
    """A process forked during the capture (a data loader's worker) runs for real."""
    if not _forgetting and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_leave_all_modes)
    _forgetting[:] = [weakref.ref(threads)]


def _leave_all_modes() -> None:
    threads = _forgetting[0]()
    if threads is None or not threads._following:
        return
    threads._following = False
    import torch
    from torch.utils._python_dispatch import _pop_mode

    while torch._C._len_torch_dispatch_stack():
        top = torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1)
        _pop_mode(getattr(top, "_mode_key", None))
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
