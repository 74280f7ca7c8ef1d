"""The other end of ``processes.Child``: ``python -m gobrrr.verification.child FD``.

The first message, a ``Spec``, names the function that does the job. What goes wrong is answered as
``Failed``, whatever the job.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from runpy import run_path
from typing import Any

import msgspec

from gobrrr.timeline.errors import GobrrrError, UserCodeError
from gobrrr.verification.messages import REGISTRY, Answer, Failed, Question, Spec
from gobrrr.verification.trial import describe

# prctl(2): the signal that this process gets when its parent ends.
_PR_SET_PDEATHSIG = 1
# What a program that reads standard input is told: it runs many times, and input comes once.
NO_INPUT = "; it reads standard input, which is closed here: pass arguments or a file instead"


class Parent:
    """Messages to and from the process that started this one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._question = msgspec.msgpack.Decoder(Question)

    def spec(self) -> Spec:
        """The first message."""
        return msgspec.msgpack.decode(self._connection.recv_bytes(), type=Spec)

    def tell(self, message: Answer) -> None:
        """Send a message."""
        self._connection.send_bytes(msgspec.msgpack.encode(message))

    def ask(self) -> Question:
        """The next message. Raises EOFError if the parent has gone."""
        question: Question = self._question.decode(self._connection.recv_bytes())
        return question


def main(descriptor: int) -> None:
    """Do what the first message says."""
    _end_with_parent()
    parent = Parent(Connection(descriptor))
    spec = parent.spec()
    if spec.target.is_function:
        # What reads arguments where it is imported gets none, as from a shell.
        sys.argv = [spec.target.name.rpartition(":")[0]]
    if spec.target.threads:
        import torch

        torch.set_num_threads(spec.target.threads)
    try:
        module, _, name = spec.job.partition(":")
        getattr(import_module(module), name)(spec, parent)
    except EOFError:
        return
    except SystemExit as leaving:
        parent.tell(
            Failed(f"{spec.target.name} ended with sys.exit({leaving.code!r})", by_user=True)
        )
    except UserCodeError as error:
        cause = f": {error.__cause__}" if error.__cause__ is not None else ""
        waits = NO_INPUT if isinstance(error.__cause__, EOFError) else ""
        parent.tell(Failed(f"{error}{cause}{waits}", by_user=True))
    except GobrrrError as error:
        parent.tell(Failed(str(error)))
    except Exception as error:
        import traceback

        traceback.print_exc()
        parent.tell(Failed(describe(error)))


def find_fixes(names: Sequence[str], registry: str = REGISTRY) -> list[Any]:
    """Fixes by name from ``module:ATTRIBUTE`` or ``file.py:ATTRIBUTE``.

    Raises GobrrrError if there is no such fix.
    """
    if not names:
        # The unchanged program loads nothing that it would not load by itself.
        return []
    place, _, attribute = registry.rpartition(":")
    if place.endswith(".py"):
        known = run_path(place)[attribute]
    else:
        known = getattr(import_module(place), attribute)
    by_name = {fix.name: fix for fix in known}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise GobrrrError(f"no fix is called {', '.join(missing)}")
    return [by_name[name] for name in names]


def _end_with_parent() -> None:
    # A frozen child would otherwise outlive a parent that was killed.
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
