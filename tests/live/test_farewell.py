"""Processes that leave by SIGTERM, wherever they are: each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from gobrrr.live.farewell import heard_before_it_leaves
from observe.process_threads import system_threads, system_threads_once_ended

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

SETUP = """
import ctypes, os, signal, sys, threading, time
from gobrrr.live import farewell
farewell.PATIENCE_S = 0.5
ME = os.getpid()
def told(exit_): print("told", exit_.how, flush=True)
def end_me(): os.kill(ME, signal.SIGTERM)
def hang():
    # A lock that is taken twice: no signal makes it return.
    lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(256)
    lock(mutex)
    print("hangs", flush=True)
    lock(mutex)
"""


TOLD = "told its script was ended by SIGTERM\n"


def leave(body: str) -> subprocess.CompletedProcess[str]:
    # A signal in the very moment in which the thread that watches begins may come a little later.
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"{SETUP}\nwith farewell.heard_before_it_leaves(told):\n    time.sleep(0.1)\n{lines}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_signal_between_instructions_is_heard() -> None:
    done = leave("end_me(); time.sleep(60)")
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert done.stdout == TOLD


def test_an_exit_code_is_heard() -> None:
    done = leave("os._exit(7)")
    assert done.returncode == 7, done.stderr
    assert done.stdout == "told its script ended with exit code 7\n"


def test_a_signal_waits_for_what_is_told_to_its_end() -> None:
    done = leave(
        """
with farewell.told_to_its_end():
    with farewell.told_to_its_end():
        end_me()
        time.sleep(1.5)
    print("done", flush=True)
print("not here")
"""
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert done.stdout == f"done\n{TOLD}"


def test_a_second_signal_waits_for_nothing() -> None:
    done = leave("with farewell.told_to_its_end(): end_me(); end_me(); print('not here')")
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(sys.platform != "linux", reason="a lock as glibc makes it")
def test_a_signal_ends_a_process_that_hangs_in_native_code() -> None:
    done = leave("threading.Timer(0.3, end_me).start(); hang()")
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert done.stdout == "hangs\n"
    assert "inside native code" in done.stderr


def test_what_takes_long_to_tell_is_told_to_its_end() -> None:
    done = leave(
        """
def slowly(exit_): time.sleep(1.5); told(exit_)
farewell._open[0]._before = slowly
end_me()
"""
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert done.stdout == TOLD


def test_a_scripts_own_handler_is_left_to_itself() -> None:
    done = leave(
        """
signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
end_me()
time.sleep(1.5)
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "mine\n"


def test_a_signal_to_a_fork_does_not_end_its_parent() -> None:
    # Often before any hook of the child has run, and from a thread that is not the main one too.
    done = leave(
        """
for _ in range(20):
    child = os.fork()
    if child == 0: time.sleep(60)
    os.kill(child, signal.SIGTERM)
    assert os.waitpid(child, 0)[1] == signal.SIGTERM
thread_child = []
def fork():
    child = os.fork()
    if child == 0: time.sleep(60)
    os.kill(child, signal.SIGTERM)
    thread_child.append(os.waitpid(child, 0)[1])
thread = threading.Thread(target=fork)
thread.start(); thread.join()
assert thread_child == [signal.SIGTERM]
assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
time.sleep(1.5)
print("alive")
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "alive\n"


def test_nothing_is_left_behind() -> None:
    threads, handler = system_threads(), signal.getsignal(signal.SIGTERM)
    with heard_before_it_leaves(lambda exit_: None):
        assert system_threads() == threads + 1
    assert system_threads_once_ended(threads) == threads
    assert signal.getsignal(signal.SIGTERM) == handler
    assert signal.set_wakeup_fd(-1) == -1
