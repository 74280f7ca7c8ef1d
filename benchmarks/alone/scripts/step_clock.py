"""The script's own clock: when each step ended and how many page faults there were by then.

Arrays that are made whole before the loop, so that keeping time allocates nothing in it. Written
as JSON to the file that STEP_CLOCK names, when the script ends.
"""

import atexit
import json
import os
import resource
import time
from array import array

MOST_STEPS = 20_000
_ended_ns = array("q", bytes(8 * MOST_STEPS))
_faults = array("q", bytes(8 * MOST_STEPS))
_count = 0


def tick() -> None:
    """One step has ended."""
    global _count
    _ended_ns[_count] = time.perf_counter_ns()
    _faults[_count] = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    _count += 1


def _write() -> None:
    path = os.environ.get("STEP_CLOCK")
    if path:
        with open(path, "w") as file:  # noqa: PTH123
            json.dump(
                {"ended_ns": _ended_ns[:_count].tolist(), "faults": _faults[:_count].tolist()}, file
            )


atexit.register(_write)
