"""Signals that come while gobrrr has the thread."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from gobrrr.measure.deferred_signals import came_from_handler, signals_deferred


class OverError(Exception):
    """The program's time limit."""


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT)}
    # (In the background of a shell Python leaves Ctrl-C ignored.)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def raises(number: int, frame: FrameType | None) -> None:
    raise OverError


def test_what_a_handler_raises_comes_after_the_block_and_reaches_the_program() -> None:
    signal.signal(signal.SIGALRM, raises)
    done = []
    with pytest.raises(OverError), signals_deferred():
        os.kill(os.getpid(), signal.SIGALRM)
        done.append("the whole block")
    assert done
    assert signal.getsignal(signal.SIGALRM) is raises


def test_a_handler_that_raises_keeps_no_other_from_being_called() -> None:
    heard = []
    signal.signal(signal.SIGALRM, raises)
    former = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        with pytest.raises(OverError), signals_deferred():
            signal.raise_signal(signal.SIGALRM)
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert heard == [signal.SIGUSR1]


def test_ctrl_c_does_not_wait() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), signals_deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("not reached")
    assert not done


def test_what_the_system_does_by_itself_stays_so() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    with signals_deferred():
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGALRM)


def test_in_another_thread_nothing_is_changed() -> None:
    signal.signal(signal.SIGALRM, raises)
    seen = []

    def inside() -> None:
        with signals_deferred():
            seen.append(signal.getsignal(signal.SIGALRM))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [raises]


class Limit:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise OverError

    def ends(self, number: int, frame: FrameType | None) -> None:
        raise OverError


@pytest.mark.parametrize(
    "handler",
    [raises, Limit(), Limit().ends, functools.partial(raises), lambda n, f: raises(n, f)],
    ids=["function", "object", "method", "partial", "lambda"],
)
def test_what_a_handler_raises_is_told_from_what_fails_otherwise(
    handler: Callable[[int, FrameType | None], None],
) -> None:
    signal.signal(signal.SIGALRM, handler)
    with pytest.raises(OverError) as caught:
        os.kill(os.getpid(), signal.SIGALRM)
    assert came_from_handler(caught.value)
    with pytest.raises(ZeroDivisionError) as other:
        1 / 0  # noqa: B018
    assert not came_from_handler(other.value)
