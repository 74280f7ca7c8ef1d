"""A thread that the program does not meet."""

from __future__ import annotations

import threading

from gobrrr.measure.own_thread import OwnThread
from gobrrr.measure.thread_effort import effort_of


def test_it_runs_beside_the_program_and_is_none_of_its_threads() -> None:
    before = threading.enumerate()
    go_on, started, efforts = threading.Event(), threading.Event(), []

    def target() -> None:
        efforts.append(effort_of(threading.get_ident()))
        started.set()
        go_on.wait(30)

    thread = OwnThread(target)
    assert not thread.is_alive()
    thread.start()
    assert started.wait(30)
    assert thread.is_alive()
    assert threading.enumerate() == before
    # (Where the system tells what a thread did, of this one too.)
    assert (efforts[0] is None) == (effort_of(threading.get_ident()) is None)
    go_on.set()
    thread.join()
    assert not thread.is_alive()
