"""Profilers that the program itself runs: only one can run at a time, and it is the program's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class ProgramProfilers:
    """Hears of each profiler that the program starts and steps.

    ``before_start`` is called in the watched thread before any is started, gobrrr's own included.
    """

    def __init__(self) -> None:
        self.before_start: Callable[[], None] = lambda: None
        self._stepped: Any = None

    def watch(self, after_step: Callable[[], None], thread: int = 0) -> Callable[[], None]:
        """Begin, for this thread or the one given; ``after_step`` follows each step of one.

        Returns what ends it.
        """
        from torch.autograd.profiler import profile as plain
        from torch.profiler import profile

        from gobrrr.measure.torch_profiler import see_start

        start, step, stop, enter = profile.start, profile.step, profile.stop, plain.__enter__
        thread = thread or threading.get_ident()

        def begins(profiler: Any) -> None:
            see_start(profiler)
            if threading.get_ident() == thread:
                self.before_start()

        def starts(profiler: Any) -> None:
            begins(profiler)
            start(profiler)
            # One with a schedule prepares for its first steps already; gobrrr's own have none.
            if getattr(profiler, "record_steps", False):
                self._stepped = profiler

        def steps(profiler: Any) -> None:
            step(profiler)
            self._stepped = profiler
            after_step()

        def stops(profiler: Any) -> None:
            stop(profiler)
            if self._stepped is profiler:
                self._stepped = None

        def enters(profiler: Any) -> Any:
            begins(profiler)
            return enter(profiler)

        profile.start, profile.step, profile.stop = starts, steps, stops
        plain.__enter__ = enters

        def undo() -> None:
            profile.start, profile.step, profile.stop = start, step, stop
            plain.__enter__ = enter
            self._stepped = None

        return undo

    def expected(self) -> bool:
        """Whether one that is stepped is open.

        With its trace written, too: its range of a step is around the start of any other's, which
        then crashes now and then.
        """
        return self._stepped is not None
