"""Which lines Python time goes to: the thread asked, from a second one, where it is.

Profiler events say when no operator ran; only the interpreter's frame says what did. Samples are
used for lines alone, never for times, and are taken in steps of their own, because waking a
second thread takes the interpreter's lock from the first.

The second thread does not read the frames itself: in CPython 3.11 another thread's frames may be
half made even under the lock. It leaves a pending call, which the main thread runs between two
bytecodes and which reads its own frames. A thread that sleeps (a timer, a lock, a file) answers
none; its frames are whole, and whether it sleeps its own processor time says. Threads but the main
one run no pending calls: only what they sleep in is known.

While the main thread answers, a signal may come whose handler raises: Ctrl-C, or an alarm of the
user's. It must reach the program. A callback of ctypes would lose it; the pending call is therefore
the interpreter's own ``PyObject_IsTrue``, which asks an object of ours for its truth and hands on
what that raises. (The handler of a made-up signal would as well, but writes to ``set_wakeup_fd``:
with a reader there, half of the answers came too late.)
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from gobrrr.measure.own_thread import OwnThread
from gobrrr.measure.thread_effort import ThreadEffort, effort_of
from gobrrr.observe.source_lines import blamed_line
from gobrrr.timeline.names import UNASKED_LINE

if TYPE_CHECKING:
    from gobrrr.live.profiles.profile import RawEvents

INTERVAL_S = 0.0005
# How long the main thread may keep the interpreter's lock once the sampler wants it; Python's
# default of 5 ms would show only lines that happen to release it.
SWITCH_INTERVAL_S = 0.0005
# A call that had to wait longer found the thread inside an operator: it shows where that returned
# to, not what the thread was doing when asked.
LATEST_ANSWER_NS = 100_000
# A question is asked again after this: a signal's handler that raised as the call began took the
# first one's answer with it, or the thread has been in one operator all the time.
ASKED_AGAIN_NS = 5_000_000_000

# The thread slept since the last look if it used less than this share of the time itself, and
# waited for a processor for less than this share.
ASLEEP_BELOW, QUEUED_BELOW = 0.1, 0.5
# Counters that were read this far apart are of different moments: the reader lost its processor.
LONGEST_LOOK_NS = 100_000


@dataclass(frozen=True, slots=True)
class LineSample:
    """The user's line at a moment of ``time.perf_counter_ns``; ``None``: no line is the user's.

    ``asleep_since_ns``: the thread had done nothing since then, and had not wanted to (-1: it had).
    """

    time_ns: int
    line: str | None
    asleep_since_ns: int = -1

    def from_start(self, begin_ns: int) -> LineSample:
        """The same on a clock that began at ``begin_ns``."""
        since_ns = max(0, self.asleep_since_ns - begin_ns) if self.asleep else -1
        return LineSample(self.time_ns - begin_ns, self.line, since_ns)

    @property
    def asleep(self) -> bool:
        """Whether the thread slept."""
        return self.asleep_since_ns >= 0


class Regularly:
    """Calls ``act`` at intervals, in a thread of its own.

    Args:
        interval_s: from one call's end to the next call.
        act: what is called.
    """

    def __init__(self, interval_s: float, act: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._act = act
        self._stop = threading.Event()
        self._worker = OwnThread(self._run)

    def start(self) -> None:
        """Begin."""
        self._worker.start()

    def stop(self) -> bool:
        """Call no more; whether this ended it, so that it was running until now."""
        if not self._worker.is_alive() or self._stop.is_set():
            return False
        self._stop.set()
        return True

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._worker.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._act()


class MainThreadAsker(Regularly):
    """Asks the main thread at intervals where it is, from a thread of its own.

    Args:
        interval_s: from one question to the next; none is asked while one is pending.
        heard: called in the main thread, between two bytecodes, with its frame and with the time
            of ``time.perf_counter_ns`` at which it was asked.
        between: called in the asking thread before each question.
    """

    def __init__(
        self,
        interval_s: float,
        heard: Callable[[FrameType, int], None],
        between: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(interval_s, self._ask)
        self._heard = heard
        self._between = between
        self._asked_ns = 0
        self._question = _Question(self._answer)

    def stop(self) -> bool:
        """Ask no more; whether this ended it, so that it was running until now."""
        ended = super().stop()
        if ended:
            # A call may still be pending: it must find its object alive.
            _ALIVE.append(self._question)
        return ended

    def _ask(self) -> None:
        self._between()
        now = time.perf_counter_ns()
        if now - self._asked_ns > ASKED_AGAIN_NS or self._asked_ns == 0:
            self._asked_ns = now
            ctypes.pythonapi.Py_AddPendingCall(
                ctypes.pythonapi.PyObject_IsTrue, ctypes.py_object(self._question)
            )

    def _answer(self, frame: FrameType) -> None:
        try:
            if not self._stop.is_set():
                self._heard(frame, self._asked_ns)
        finally:
            self._asked_ns = 0


class _Question:
    """Calls ``answer`` with the frame in which it is asked for its truth; is never true.

    It outlives the asker, and with a reference it would keep all that the asker has heard.
    """

    def __init__(self, answer: Callable[[FrameType], None]) -> None:
        self._answer = weakref.WeakMethod(answer)

    def __bool__(self) -> bool:
        answer = self._answer()
        if answer is not None:
            answer(sys._getframe(1))
        return False


class LineSampler:
    """Samples a thread until stopped.

    One that is not the main thread cannot be asked: where it sleeps it has a line, elsewhere
    ``UNASKED_LINE``, so that no other line is taken for it.
    """

    def __init__(self, thread: int) -> None:
        self._samples: list[LineSample] = []
        self._seen: tuple[int, int, int, int] | None = None
        self._own: ThreadEffort | None = None
        self._switch_interval_s = sys.getswitchinterval()
        self._thread = thread
        self._effort: ThreadEffort | None = effort_of(thread)
        self._answers = is_main_thread(thread)
        self._asker = (
            MainThreadAsker(INTERVAL_S, self._note, self._look)
            if self._answers
            else Regularly(INTERVAL_S, self._look)
        )

    def start(self) -> None:
        """Begin sampling."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._asker.start()

    def stop(self) -> list[LineSample]:
        """End sampling; the samples in order of time."""
        if self._asker.stop():
            self._asker.join()
            sys.setswitchinterval(self._switch_interval_s)
        self._samples.sort(key=lambda sample: sample.time_ns)
        return self._samples

    def _look(self) -> None:
        if not self._look_whether_it_sleeps() and not self._answers:
            self._samples.append(LineSample(time.perf_counter_ns(), UNASKED_LINE))

    def _look_whether_it_sleeps(self) -> bool:
        if self._effort is None:
            return False
        if self._own is None:
            self._own = effort_of(threading.get_ident())
        began = time.perf_counter_ns()
        done, runnable = self._effort.read(), self._effort.is_runnable()
        if done is None or runnable is None:
            self._effort = None
            return False
        own = (0, 0) if self._own is None else self._own.read()
        now = time.perf_counter_ns()
        if own is None:
            # Opened anew at the next look, which begins anew.
            self._own = self._seen = None
            return False
        before, self._seen = self._seen, (now, *done, own[1])
        if now - began > LONGEST_LOOK_NS:
            self._seen = None
            return False
        if before is None:
            return False
        passed = (late - early for late, early in zip(self._seen, before))
        if runnable or not has_slept(*passed):
            return False
        frame = sys._current_frames().get(self._thread)
        self._samples.append(LineSample(now, blamed_line(frame), before[0]))
        return True

    def _note(self, frame: FrameType, asked_ns: int) -> None:
        now = time.perf_counter_ns()
        if now - asked_ns < LATEST_ANSWER_NS:
            self._samples.append(LineSample(now, blamed_line(frame)))


def is_main_thread(thread: int) -> bool:
    """Whether a thread, by its identifier, is the one that can be asked for its lines."""
    return thread == threading.main_thread().ident


def has_slept(passed_ns: int, used_ns: int, queued_ns: int, held_ns: int) -> bool:
    """Whether a thread slept most of some time.

    Args:
        passed_ns: the time.
        used_ns: of the thread on a processor.
        queued_ns: of the thread on a run queue: others had the processor.
        held_ns: of the thread that asks on a run queue. It may have had the interpreter's lock
            then, for which the other one waited.
    """
    return (
        used_ns < ASLEEP_BELOW * passed_ns
        and queued_ns < QUEUED_BELOW * passed_ns
        and held_ns <= ASLEEP_BELOW * passed_ns
    )


def samples_of_steps(
    steps: Sequence[RawEvents], starts_ns: Sequence[int], samples: Sequence[LineSample]
) -> list[tuple[RawEvents, list[LineSample]]]:
    """Each step with its samples, whose times then count from its start."""
    return [
        (
            raw,
            [s.from_start(begin) for s in samples if 0 <= s.time_ns - begin < raw.length_ns],
        )
        for raw, begin in zip(steps, starts_ns)
    ]


_ALIVE: list[object] = []
