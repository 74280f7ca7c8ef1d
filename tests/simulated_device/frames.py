"""Python's calls as PyTorch's profiler writes them, with ``with_stack``, on the simulated clock.

Names are Kineto's: ``folder/file.py(30): function``, where 30 is the line of the function's ``def``
and the folder is relative to ``sys.path``; ``nn.Module: Linear_0`` for a module's call; the text of
a function that is not written in Python. Calls take no time of their own.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from simulated_device.machine import Machine

_MODULE_CALL = torch.nn.Module.__call__.__code__


class FrameTracer:
    """Writes the calls between ``start`` and ``stop`` into the machine's trace.

    Those of the files ``hidden``, and what they call, would not be there on a real device.
    """

    def __init__(self, machine: Machine, hidden: set[str], thread: Callable[[], int]) -> None:
        self._machine = machine
        self._hidden = hidden
        self._thread = thread
        # Innermost last: what is written of a call, if anything; whether it is hidden; whether
        # its function is written in Python.
        self._open: list[tuple[dict[str, Any] | None, bool, bool]] = []
        self._below_hidden = 0
        self._modules: dict[int, str] = {}
        self._kept: list[Any] = []
        self._per_class: Counter[str] = Counter()
        self._calls = 0

    def start(self) -> None:
        """Begin, with the calls that are on their way now."""
        frame: FrameType | None = sys._getframe()
        outer = []
        while frame is not None:
            outer.append(frame)
            frame = frame.f_back
        for one in reversed(outer):
            self._enter(one)
        sys.setprofile(self._on)

    def stop(self) -> None:
        """End; what is still on its way ends here."""
        sys.setprofile(None)
        while self._open:
            self._leave()

    def _on(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._enter(frame)
        elif event == "c_call":
            name = "" if self._below_hidden else repr(argument).partition(" at 0x")[0]
            self._write(name, in_python=False)
        # Python 3.12 tells the end of a call whose begin it did not tell: of a method that pybind11
        # has made, once the place that calls it is warm.
        elif self._open and self._open[-1][2] is (event == "return"):
            self._leave()

    def _enter(self, frame: FrameType) -> None:
        if self._below_hidden or frame.f_code.co_filename in self._hidden:
            self._below_hidden += 1
            self._write("", hidden=True)
        else:
            self._write(self._name_of(frame))

    def _write(self, name: str, hidden: bool = False, in_python: bool = True) -> None:
        trace = self._machine.trace
        if not name or trace is None:
            self._open.append((None, hidden, in_python))
            return
        self._calls += 1
        # Before what it calls, so that a parent comes first where both begin at once.
        event = {
            "ph": "X", "cat": "python_function", "name": name, "pid": 7, "tid": self._thread(),
            "ts": self._machine.now_ns / 1000, "dur": 0.0,
            "args": {"Python id": self._calls, "Python thread": 0},
        }  # fmt: skip
        trace.append(event)
        self._open.append((event, False, in_python))

    def _leave(self) -> None:
        event, hidden, _ = self._open.pop()
        self._below_hidden -= hidden
        if event is not None:
            event["dur"] = round(self._machine.now_ns - event["ts"] * 1000) / 1000

    def _name_of(self, frame: FrameType) -> str:
        code = frame.f_code
        if code is _MODULE_CALL:
            return f"nn.Module: {self._numbered(frame.f_locals['self'])}"
        homes = [path for path in sys.path if path and code.co_filename.startswith(f"{path}/")]
        home = max(homes, key=len, default="")
        path = code.co_filename[len(home) + 1 :] if home else code.co_filename
        return f"{path}({code.co_firstlineno}): {code.co_name}"

    def _numbered(self, module: Any) -> str:
        if id(module) not in self._modules:
            name = type(module).__name__
            self._modules[id(module)] = f"{name}_{self._per_class[name]}"
            self._per_class[name] += 1
            self._kept.append(module)
        return self._modules[id(module)]
