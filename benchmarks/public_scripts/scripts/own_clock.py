"""The clock that every script of this benchmark carries; it knows nothing of gobrrr.

``mark()`` stands where a step ends, ``mark(name)`` where something else does: a step took from the
mark before it to its own. With ``PUBLIC_SCRIPT_CLOCK=path`` all marks are written there when the
process ends, a line each: nanoseconds of ``time.perf_counter`` and the name.
"""

import atexit
import os
import time

_marks: list[tuple[int, str]] = []


def mark(name: str = "step") -> None:
    """Something ends here."""
    _marks.append((time.perf_counter_ns(), name))


def _write(path: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123  (pathlib is one more import in the user's process)
        file.writelines(f"{when} {name}\n" for when, name in _marks)


if "PUBLIC_SCRIPT_CLOCK" in os.environ:
    atexit.register(_write, os.environ["PUBLIC_SCRIPT_CLOCK"])
