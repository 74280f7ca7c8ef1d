"""The other end of ``processes.Child``: ``python -m gobrrr.verification.child FD``.

The first message says what to do (``kind``): ``function`` answers one message after the other,
``turns`` loads a function and takes turns, ``script`` and ``module`` run a script whose steps take
turns. What goes wrong is answered as ``{"error": sentence}``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from gobrrr.timeline.errors import GobrrrError, UserCodeError
from gobrrr.verification.trial import describe

# prctl(2): the signal that this process gets when its parent ends.
_PR_SET_PDEATHSIG = 1
REGISTRY = "gobrrr.fixes:FIXES"


class Parent:
    """Messages to and from the process that started this one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        self._connection.send_bytes(json.dumps(message).encode())

    def ask(self) -> dict[str, Any]:
        """The next message. Raises EOFError if the parent has gone."""
        message: dict[str, Any] = json.loads(self._connection.recv_bytes())
        return message


def main(descriptor: int) -> None:
    """Do what the first message says."""
    _end_with_parent()
    parent = Parent(Connection(descriptor))
    spec = parent.ask()
    from gobrrr.verification import function_child, script_child

    kinds = {
        "function": function_child.answer,
        "turns": function_child.take_part,
        "script": script_child.run,
        "module": script_child.run,
    }
    try:
        kinds[spec["kind"]](spec, parent)
    except EOFError:
        return
    except UserCodeError as error:
        cause = error.__cause__
        parent.tell({"error": f"{error}: {cause}" if cause is not None else str(error)})
    except GobrrrError as error:
        parent.tell({"error": str(error)})
    except Exception as error:
        import traceback

        traceback.print_exc()
        parent.tell({"error": describe(error)})


def find_fixes(names: Sequence[str], registry: str = REGISTRY) -> list[Any]:
    """Fixes by name from ``module:ATTRIBUTE`` or ``file.py:ATTRIBUTE``.

    Raises GobrrrError if there is no such fix.
    """
    from importlib import import_module
    from runpy import run_path

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


def draw_as_eager_code_does() -> None:
    """Tell the compiler to: its random numbers are others otherwise, though as good."""
    import torch._inductor.config as inductor

    inductor.fallback_random = True


def peak_bytes() -> int:
    """The most memory that this process has held so far: resident, or on a GPU allocated."""
    import resource

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def enter_in_script(fixes: Sequence[Any], stack: ExitStack) -> None:
    """Install fixes before a script runs."""
    for fix in fixes:
        if fix.in_script is not None:
            stack.enter_context(fix.in_script())


def _end_with_parent() -> None:
    # A frozen child would otherwise outlive a parent that was killed.
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
