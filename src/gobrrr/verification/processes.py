"""A process of its own for what may crash, hang or take all memory, and messages to and from it.

What they say is in ``messages``. The child is ``python -m gobrrr.verification.child``; its end of
the pipe is inherited. Its standard input is closed, and what it prints is kept for the reason of a
failure. It is alone in its session, so that Ctrl-C reaches the parent alone, which ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection, Pipe
from types import TracebackType

import msgspec

from gobrrr.measure.load import keep_family_of
from gobrrr.timeline.errors import GobrrrError, InputError
from gobrrr.timeline.quantities import whole_seconds
from gobrrr.verification.messages import Answer, Question, Spec

# Random numbers, and the order of sets of names, are the same in each process.
STEADY = {"PYTHONHASHSEED": "0", "KINETO_LOG_LEVEL": "99"}
PRINTED_KEPT = 4000
_ANSWER = msgspec.msgpack.Decoder(Answer)


class ChildFailed(GobrrrError):  # noqa: N818 - what happened, as the other errors are named
    """The child did not answer; the message is a sentence that says what became of it."""


class Child:
    """One child process, alone in its session so that it can be frozen and killed with its own.

    Raises InputError where processes cannot inherit a pipe.
    """

    def __init__(self, spec: Spec, environment: Mapping[str, str] | None = None):
        if not hasattr(os, "killpg"):
            raise InputError("trials in separate processes need Linux or macOS")
        ours, theirs = Pipe(duplex=True)
        self._connection: Connection = ours
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._frozen = False
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gobrrr.verification.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, **STEADY, **merged_environment(environment or {})},
            )
        finally:
            theirs.close()
        self.send(spec)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._process.pid

    def send(self, message: Spec | Question) -> None:
        """Wake the child if it is frozen, and tell it something."""
        self.resume()
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            # A child that is gone shows when it is asked for its answer.
            self._connection.send_bytes(msgspec.msgpack.encode(message))

    def receive(self, timeout_s: float, doing: str) -> Answer:
        """Its next message. Raises ChildFailed if it ends or says nothing for ``timeout_s``."""
        try:
            if not self._connection.poll(max(timeout_s, 0.0)):
                self.close()
                raise ChildFailed(f"did not respond for {whole_seconds(timeout_s)} {doing}")
            received = self._connection.recv_bytes()
        except (EOFError, ConnectionError):
            raise ChildFailed(self._end(doing)) from None
        answer: Answer = _ANSWER.decode(received)
        return answer

    def freeze(self) -> None:
        """Stop it and all of its own (loader workers, prefetching threads) where they are."""
        if not self._frozen:
            self._signal(signal.SIGSTOP)
            self._frozen = True

    def resume(self) -> None:
        """Let it go on."""
        if self._frozen:
            self._signal(signal.SIGCONT)
            self._frozen = False

    def close(self) -> None:
        """End it and all of its own."""
        if self._process.poll() is None:
            # Still, they use no more; its loader workers are no other program's load.
            self._signal(signal.SIGSTOP)
            keep_family_of(self.pid)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._connection.close()

    def printed(self, most: int | None = PRINTED_KEPT) -> str:
        """The end of what it printed, ``most`` bytes of it (``None``: all)."""
        if self._printed.closed:
            return ""
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(0 if most is None else max(0, size - most))
        return self._printed.read().decode(errors="replace")

    def _signal(self, number: int) -> None:
        # A frozen process dies of SIGKILL too.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _end(self, doing: str) -> str:
        """How a child ended that closed its pipe, as a sentence without a subject."""
        self._connection.close()
        deadline = time.monotonic() + 10.0
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        code = self._process.returncode
        self._signal(signal.SIGKILL)
        self._process.wait()
        last = next((line for line in reversed(self.printed().splitlines()) if line.strip()), "")
        said = f" ({last.strip()[:300]})" if last else ""
        if code is None:
            return f"stopped answering {doing}{said}"
        if code < 0:
            name = signal.Signals(-code).name
            memory = ", probably because memory ran out" if name == "SIGKILL" else ""
            return f"crashed with {name} {doing}{memory}{said}"
        return f"ended with exit code {code} {doing}{said}"


def merged_environment(wanted: Mapping[str, str]) -> dict[str, str]:
    """``wanted`` over what is set: tunables of glibc are joined, all others replaced.

    >>> merged_environment({"OMP_PROC_BIND": "true"})
    {'OMP_PROC_BIND': 'true'}
    """
    merged = dict(wanted)
    name = "GLIBC_TUNABLES"
    if name in wanted and os.environ.get(name):
        merged[name] = f"{os.environ[name]}:{wanted[name]}"
    return merged


def joined_environment(parts: list[Mapping[str, str]]) -> dict[str, str]:
    """The variables of several fixes together; tunables of glibc are joined.

    >>> joined_environment([{"GLIBC_TUNABLES": "a=1"}, {"GLIBC_TUNABLES": "b=2", "X": "y"}])
    {'GLIBC_TUNABLES': 'a=1:b=2', 'X': 'y'}
    """
    joined: dict[str, str] = {}
    for part in parts:
        for name, value in part.items():
            both = name == "GLIBC_TUNABLES" and name in joined
            joined[name] = f"{joined[name]}:{value}" if both else value
    return joined
