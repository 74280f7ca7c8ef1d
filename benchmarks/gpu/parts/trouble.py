"""What goes wrong: does a script end under ``gobrrr run`` as it does alone, and what is said of it?

Memory that runs out, an assert on the device, Ctrl-C, a whole step captured into a CUDA graph while
gobrrr waits for steps to settle, and a profiler of the program's own. Refuted by another exit
status than alone (gobrrr's own is 3 where the script raised), by other last words of the script,
and by a traceback through gobrrr. All run beside each other: nothing here is a time.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.processes import (
    SCRIPTS,
    Budget,
    Child,
    ended_diagnosis,
    skipped,
    start_diagnosis,
)
from benchmarks.gpu.setting import Setting

from gobrrr.devices.cache import cache_folder

LIMIT_S = 20
# The kind, and the step in which it comes: one that gobrrr times.
CASES = (
    ("capture", 0), ("assert", 12), ("out_of_memory", 12), ("caught_out_of_memory", 12),
    ("interrupt", 18), ("own_profiler", 10),
)  # fmt: skip
ON_GPU_ONLY = {"assert", "capture"}
SCRIPT = SCRIPTS / "trouble.py"


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Rows by case: ``alone``, ``diagnosed``, and whether both ended with the same status."""
    budget = Budget(LIMIT_S, setting)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="t") as made:
        # Ceilings that are measured beside a dozen processes are no other part's to find.
        cache = Path(made) / "cache"
        if cache_folder().is_dir():
            shutil.copytree(cache_folder(), cache / "gobrrr")
        more = {"XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
        running: list[tuple[str, Child, Child]] = []
        for kind, at in CASES:
            name = f"{kind}_in_step_{at}"
            if kind in ON_GPU_ONLY and (without := skipped(setting)) is not None:
                found[name] = without
                continue
            folders = [Path(made) / f"{name}-{which}" for which in "da"]
            under = start_diagnosis(
                SCRIPT, folders[0], setting, arguments=(kind, str(at)), environment=more
            )
            alone = Child(
                (sys.executable, str(SCRIPT), kind, str(at)), folders[1], setting, environment=more
            )
            running.append((name, alone, under))
        for name, alone, under in running:
            # When one is asked how it ended is not when it did.
            rows = [alone.end(budget.left_s), ended_diagnosis(under, budget.left_s)]
            for row in rows:
                del row["wall_s"]
            found[name] = {
                "alone": rows[0], "diagnosed": rows[1],
                "same_exit": rows[0]["exit"] == rows[1]["exit"],
            }  # fmt: skip
            save(found)
    return found
