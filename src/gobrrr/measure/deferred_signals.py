"""Signals of the program that come while gobrrr works in its thread, handled after that."""

from __future__ import annotations

import contextlib
import functools
import inspect
import signal
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

# Time limits and what programs tell each other. Those that ask the process to end are heard at
# once: what gobrrr does may take seconds.
_NAMES = ("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGHUP")
_NUMBERS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


def came_from_handler(error: BaseException) -> bool:
    """Whether a signal handler of the program's has raised it: it is for the program to hear."""
    handlers = (_handler(number) for number in (*_NUMBERS, signal.SIGINT, signal.SIGTERM))
    codes = {_code_of(handler) for handler in handlers if handler is not None}
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_code in codes for frame in frames)


def _code_of(handler: Any) -> Any:
    while isinstance(handler, functools.partial):
        handler = handler.func
    plain = inspect.isroutine(handler)
    return getattr(handler if plain else type(handler).__call__, "__code__", None)


def _handler(number: int) -> Any:
    """Python's own of the program; ``None``: the system's, or one that C installed."""
    found = signal.getsignal(number)
    # Of what the system does by itself Python has numbers, which cannot be called.
    return found if callable(found) else None


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """The program's handlers of these signals are called when the block is left.

    What they raise (a time limit that is over) then reaches the program, and not the block. All
    are called; of several errors the last reaches the program, with the others as its context.
    """
    if threading.current_thread() is not threading.main_thread():
        # Handlers run in the main thread alone.
        yield
        return
    handlers = {n: handler for n in _NUMBERS if (handler := _handler(n)) is not None}
    if not handlers:
        yield
        return
    came: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))

    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        with contextlib.ExitStack() as calls:
            # A stack calls the last first.
            for number, frame in reversed(came):
                calls.callback(handlers[number], number, frame)
