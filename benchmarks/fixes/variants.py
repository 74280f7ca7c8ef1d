"""Steps of one variant of a program in a process of its own, timed by its own clock.

    python benchmarks/fixes/variants.py function FILE NAME VARIANT   # then numbers on stdin
    python benchmarks/fixes/variants.py script FILE STEPS VARIANT

A variant is ``original``, ``fixes:a,b`` (what ``FixResult.apply`` or the fixes in a script give),
or ``mode:default``: ``torch.compile`` by hand. A function runs as many steps as each line says, and
answers with the seconds per step. A script runs as many as it is told to, and its last line is the
seconds per step between the ends of its optimizer's steps, the first quarter left out.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

WARM_UP_S, WARM_UP_STEPS = 1.0, 3


def function_step(made: Any, variant: str) -> Callable[[], Any]:
    """One step of the variant, as the program's author would call it."""
    import torch

    from gobrrr import Workload
    from gobrrr.fixes.catalogue import FIXES
    from gobrrr.verification.winner import with_fixes

    what, _, names = variant.partition(":")
    is_workload = isinstance(made, Workload)
    if what == "original":
        return made.step if is_workload else made
    if what == "mode":
        if not is_workload:
            return torch.compile(made, mode=names)
        return replace(made, model=torch.compile(made.model, mode=names)).step
    by_name = {fix.name: fix for fix in FIXES}
    chosen = [by_name[name] for name in names.split(",")]
    if is_workload and not made.trains and isinstance(made.model, torch.nn.Module):
        return replace(made, model=with_fixes(made.model, chosen, made.inputs)).step
    return with_fixes(made, chosen).step


def serve(make: Callable[[], Any], variant: str) -> None:
    """Warm the variant of what ``make`` gives up, say so, then take turns."""
    answers = os.fdopen(os.dup(1), "w")
    # What a program prints is no answer.
    os.dup2(2, 1)
    step = function_step(make(), variant)
    begun, steps = time.perf_counter(), 0
    while steps < WARM_UP_STEPS or time.perf_counter() - begun < WARM_UP_S:
        step()
        steps += 1
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        count = int(line)
        begun = time.perf_counter()
        for _ in range(count):
            kept = step()
        seconds = time.perf_counter() - begun
        del kept
        print(seconds / count, file=answers, flush=True)


def run_script(file: str, steps: int, variant: str) -> float:
    """Seconds per step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from gobrrr.fixes import catalogue as known

    ends: list[float] = []
    sys.argv = [file, str(steps)]
    names = variant.partition(":")[2].split(",") if variant.startswith("fixes:") else []
    chosen = [fix for fix in known.FIXES if fix.name in names and fix.in_script is not None]
    with contextlib.ExitStack() as stack:
        for fix in chosen:
            assert fix.in_script is not None
            stack.enter_context(fix.in_script())
        register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter()))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        # Scripts that take no number of steps are ended after as many.
        register_optimizer_step_post_hook(lambda *_: _stop(len(ends) >= steps))
        with contextlib.suppress(_Enough):
            runpy.run_path(file, run_name="__main__")
    first = len(ends) // 4
    return (ends[-1] - ends[first]) / (len(ends) - 1 - first)


class _Enough(BaseException):
    """The script has run as many steps as were asked for."""


def _stop(enough: bool) -> None:
    if enough:
        raise _Enough


if __name__ == "__main__":
    kind, file, name, variant = sys.argv[1:5]
    sys.path.insert(0, str(Path(file).parent))
    if kind == "function":
        from gobrrr.timeline.workload import load_function

        serve(lambda: load_function(f"{file}:{name}"), variant)
    else:
        print(run_script(file, int(name), variant), flush=True)
        # Loader workers need no goodbye.
        os._exit(0)
