"""What has to be tidied up before a signal ends this process: folders, processes it started."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

_came: list[int] = []


@contextlib.contextmanager
def ends_first(*signals: signal.Signals) -> Iterator[None]:
    """What is inside comes to its end before SIGTERM, or these, do what they do by themselves.

    For what is short, or asks ``is_asked_to_end`` now and then. A signal that somebody hears
    already is left to them.
    """
    held: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in signals or (signal.SIGTERM,):
            before = signal.getsignal(number)
            if before in (signal.SIG_DFL, signal.default_int_handler):
                held[number] = before
                signal.signal(number, lambda number, frame: _came.append(number))
    try:
        yield
    finally:
        for kept, before in held.items():
            signal.signal(kept, before)
        for came in [each for each in _came if each in held]:
            _came.remove(came)
            os.kill(os.getpid(), came)


def is_asked_to_end() -> bool:
    """Whether a signal has come that ``ends_first`` puts off."""
    return bool(_came)
