"""What a thread that has come to no instruction of Python's for a while is in the midst of."""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gobrrr.devices.backends import gpu_in_use
from gobrrr.observe.source_lines import blamed_line, is_gobrrr_file, is_user_file

# Calls that wait for other ranks, or for a device on which a collective waits for them, by how they
# are written where no frame of torch's names them.
_WAITS = (".wait(", ".wait_tensor(")
_WAITS_FOR_DEVICE = (".item(", ".cpu(", ".tolist(", ".synchronize(")
# What gobrrr does at the end of a step.
_STEP_ENDS = "_on_boundary"
# A function of gobrrr around ``Work.wait``, and what torch's are called by.
_AROUND_WAIT = "ranged"
_PASSED_ON = ("c10d_logger.py", "_ops.py", "contextlib.py", "_contextlib.py")


@dataclass(frozen=True, slots=True)
class CallInProgress:
    """A call that has not returned.

    Attributes:
        line: of the user's program; ``None`` if none of it is running.
        waits_in: what it waits for other ranks in (``all_reduce``, ``backward``); ``""``: it is no
            such call.
        of_gobrrr: it belongs to the measurement.
    """

    line: str | None
    waits_in: str = ""
    of_gobrrr: bool = False


def call_in_progress(frame: FrameType | None) -> CallInProgress:
    """The call that a thread is in by its innermost frame."""
    line = blamed_line(frame)
    inner = list(_up_to_user(frame))
    # Told where no frame of torch's further out has a name that users know.
    private = ""
    if any(f.f_code.co_name == _STEP_ENDS and is_gobrrr_file(_file(f)) for f in inner):
        return CallInProgress(line, of_gobrrr=True)
    for each in inner:
        name, path = each.f_code.co_name, _file(each)
        if is_gobrrr_file(path):
            if name == _AROUND_WAIT:
                return CallInProgress(line, "wait")
            continue
        if path.startswith(_distributed_homes()):
            if Path(path).name in _PASSED_ON:
                continue
            if not name.startswith("_"):
                return CallInProgress(line, name)
            private = private or name
        elif name == "_engine_run_backward":
            return CallInProgress(line, "backward")
        elif Path(path).name not in _PASSED_ON:
            return CallInProgress(line, private or _written_wait(each))
    return CallInProgress(line, private)


def _up_to_user(frame: FrameType | None) -> Iterator[FrameType]:
    """Frames from the innermost to the first of the user's own, which is among them."""
    while frame is not None:
        yield frame
        if is_user_file(_file(frame)):
            return
        frame = frame.f_back


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


@functools.cache
def _distributed_homes() -> tuple[str, ...]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.__file__:
        return ()
    home = Path(torch.__file__).parent
    return (
        str(home / "distributed") + os.sep,
        str(home / "nn" / "parallel" / "distributed.py"),
    )


def _written_wait(frame: FrameType) -> str:
    text = _call_text(frame)
    calls = _WAITS if gpu_in_use() is None else (*_WAITS, *_WAITS_FOR_DEVICE)
    return text if any(call in text for call in calls) else ""


def _call_text(frame: FrameType) -> str:
    """The source of the call that a frame is in: of the whole line where Python tells no more."""
    path = _file(frame)
    text = linecache.getline(path, frame.f_lineno)
    if sys.version_info >= (3, 11):
        positions = frame.f_code.co_positions()
        found = next(itertools.islice(positions, frame.f_lasti // 2, None), None)
        if found is not None:
            first, last, begin, end = found
            if first == last == frame.f_lineno and begin is not None and end is not None:
                # Columns count bytes.
                text = text.encode()[begin:end].decode()
    return text.strip()
