"""A script that leaves without Python's farewell, by ``os._exit`` or a signal, is heard first."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from gobrrr.live.launcher import rank_of
from gobrrr.live.script import ScriptExit
from gobrrr.measure.own_descriptor import OwnDescriptor
from gobrrr.measure.own_thread import OwnThread

# A handler of Python's runs between two instructions of the main thread. If that is in native code
# for longer than this, SIGTERM ends the process unheard.
PATIENCE_S = 5.0
_STOP = b"\0"

# Called with how the script is about to end.
Before = Callable[[ScriptExit], None]

_open: list[_Farewell] = []
# One entry for each ``told_to_its_end`` that is open, and what waits for the last of them.
_busy: list[None] = []
_put_off: list[Callable[[], None]] = []


class _Farewell:
    """Stands in the place of ``os._exit`` and of what SIGTERM does by itself."""

    def __init__(self, before: Before) -> None:
        self._before = before
        self._process = os.getpid()
        self._thread = threading.get_ident()
        self._leave = os._exit
        self._signals = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        self._watch: _SignalWatch | None = None

    def install(self) -> None:
        os._exit = self.exit_heard
        if self._signals:
            if os.name == "posix":
                self._watch = _SignalWatch(self._hears)
            signal.signal(signal.SIGTERM, self.end_heard)

    def remove(self) -> None:
        """What the script has put in their place stays."""
        if os._exit == self.exit_heard:
            os._exit = self._leave
        # A thread that is not the main one may not ask for this.
        with contextlib.suppress(ValueError):
            if self._signals and self._hears():
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            watch, self._watch = self._watch, None
            if watch is not None:
                watch.remove(os.getpid() == self._process)

    def _hears(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self.end_heard

    def exit_heard(self, status: int) -> NoReturn:
        try:
            if os.getpid() == self._process and threading.get_ident() == self._thread:
                self._hear(ScriptExit(status & 0xFF))
        finally:
            self._leave(status)

    def end_heard(self, number: int, frame: FrameType | None) -> None:
        # A second one ends the process at once.
        signal.signal(number, signal.SIG_DFL)
        if self._watch is not None:
            self._watch.handled.set()
        if _busy:
            _put_off.append(lambda: self._end(number))
        else:
            self._end(number)

    def _end(self, number: int) -> None:
        try:
            if os.getpid() == self._process:
                self._hear(ScriptExit(128 + number, signal=signal.Signals(number).name))
        finally:
            os.kill(os.getpid(), number)

    def _hear(self, exit_: ScriptExit) -> None:
        try:
            self._before(exit_)
        except Exception:
            # The script is about to end, and does.
            traceback.print_exc()


class _SignalWatch:
    """A thread that ends the process by SIGTERM if the main thread does not come to handle it.

    Python's own part of a signal (in C) writes the signal's number where this thread reads. It can
    do no more than others: native code that keeps the interpreter's lock stops it as well. What was
    measured is not told then, since the main thread may be in the midst of it. ``asked``: whether
    the handler of the signal is still gobrrr's.
    """

    def __init__(self, asked: Callable[[], bool]) -> None:
        self._asked = asked
        self.handled = threading.Event()
        self._read, self._write = map(OwnDescriptor, os.pipe())
        os.set_blocking(self._write.number, False)
        before = signal.set_wakeup_fd(self._write.number, warn_on_full_buffer=False)
        if before != -1:
            # Somebody listens there already, and goes on to.
            signal.set_wakeup_fd(before)
        self._thread = OwnThread(self._run)
        self._thread.start()

    def _run(self) -> None:
        while self._read.is_own() and (byte := os.read(self._read.number, 1)) not in (_STOP, b""):
            if byte[0] != signal.SIGTERM or self.handled.wait(PATIENCE_S):
                continue
            if self._asked():
                _end_by_signal(signal.SIGTERM)

    def remove(self, own: bool) -> None:
        """Ends the thread; ``own``: not in a process that was forked since, which has none.

        Raises ValueError outside the main thread.
        """
        before = signal.set_wakeup_fd(-1)
        if before not in (-1, self._write.number):
            signal.set_wakeup_fd(before)
        self.handled.set()
        if own and self._read.is_own() and self._write.is_own():
            os.write(self._write.number, _STOP)
            self._thread.join()
        self._read.close()
        self._write.close()


def _end_by_signal(number: int) -> None:
    """End this process as the signal does by itself, from any thread.

    ``signal.signal`` is for the main thread alone; the function of Python's C API below it is not.
    """
    # Of a job a launcher asks all ranks, which all wait for the same.
    if rank_of(os.environ) == 0:
        print(
            f"gobrrr: the script was asked to end ({signal.Signals(number).name}) inside native "
            "code that did not return: it ends without a report of what was not told yet.",
            file=sys.stderr,
            flush=True,
        )
    install = ctypes.pythonapi.PyOS_setsig
    install.argtypes, install.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    install(number, int(signal.SIG_DFL))
    os.kill(os.getpid(), number)


@contextlib.contextmanager
def told_to_its_end() -> Iterator[None]:
    """What is inside comes to its end before SIGTERM is heard; a second SIGTERM does not wait."""
    _busy.append(None)
    try:
        yield
    finally:
        _busy.pop()
        if not _busy and _put_off:
            _put_off.pop()()


def asked_to_end() -> bool:
    """Whether SIGTERM has come that ``told_to_its_end`` puts off."""
    return bool(_put_off)


@contextlib.contextmanager
def heard_before_it_leaves(before: Before) -> Iterator[None]:
    """``before`` is called when this thread calls ``os._exit``, or SIGTERM ends the process.

    Then the process ends as it would have. Processes that it forks leave as ever.
    """
    farewell = _Farewell(before)
    if not _known:
        _known.append(True)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_forget)
    farewell.install()
    _open.append(farewell)
    try:
        yield
    finally:
        _open.remove(farewell)
        farewell.remove()


_known: list[bool] = []


_held = threading.local()


def _hold() -> None:
    # A SIGTERM to the child would be written where this process reads of its own.
    if _open:
        _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _let_go() -> None:
    mask = _held.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forget() -> None:
    for farewell in _open:
        farewell.remove()
    _let_go()
