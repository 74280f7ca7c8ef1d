"""What users type: does ``gobrrr run`` tell of whole scripts what they do alone, and at what price?

Each script runs alone, with a clock in it that waits for the device after each step, and then under
``gobrrr run`` without that clock. Refuted by a told step that is not the one alone, by a script
that ends otherwise than alone, and by a time or a memory of the process that nobody would bear.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
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

LIMIT_S = 90
ROWS = ("alone", "diagnosed")


@dataclass(frozen=True)
class Script:
    """A script, what it imports beside torch, and its steps alone and under gobrrr."""

    name: str
    needs: tuple[str, ...] = ()
    alone: int = 20
    diagnosed: int = 60
    on_gpu_only: bool = False


# In the order of what they decide: the last are left out where the time does not suffice.
RUN = (
    Script("llm_1b", ("transformers",), alone=12, diagnosed=45),
    Script("hf_trainer", ("transformers", "accelerate"), alone=30, diagnosed=80),
    Script("loader_workers", alone=40, diagnosed=100),
    Script("lightning_text", ("lightning",), alone=40, diagnosed=120),
    Script("inference_loop", alone=60, diagnosed=200),
    Script("holds_gpu_tensor", alone=60, diagnosed=200, on_gpu_only=True),
)


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Rows by script: ``steps``, ``alone`` and ``diagnosed``; ``ceilings`` came before them all."""
    budget = Budget(LIMIT_S, setting)
    found: dict[str, Any] = {}
    todo = []
    for script in RUN:
        missing = [name for name in script.needs if importlib.util.find_spec(name) is None]
        if missing:
            found[script.name] = {"skipped": f"needs {', '.join(missing)}"}
        elif script.on_gpu_only and skipped(setting):
            found[script.name] = skipped(setting)
        else:
            todo.append(script)
    with tempfile.TemporaryDirectory(prefix="s") as made:
        # A script's imports, seconds of them, take place while the process before it runs.
        before = Child(
            (sys.executable, "-m", "gobrrr", "ceilings", "--quiet"), _folder(made, "c"), setting
        )
        waiting = [_alone(script, made, setting) for script in todo[:1]]
        found["ceilings"] = before.end(budget.left_s)
        save(found)
        for script, following in zip(todo, [*todo[1:], None]):
            steps = {which: _steps(getattr(script, which), setting) for which in ROWS}
            row: dict[str, Any] = {"steps": steps}
            found[script.name] = row
            alone = waiting.pop()
            alone.go()
            row["alone"] = alone.end(budget.at_most(40.0))
            save(found)
            if budget.left_s < 8:
                row["diagnosed"] = {"skipped": "no time left"}
                break
            child = start_diagnosis(
                SCRIPTS / f"{script.name}.py", _folder(made, f"{script.name}-d"), setting,
                environment={"STEPS": str(steps["diagnosed"])},
            )  # fmt: skip
            if following is not None:
                waiting.append(_alone(following, made, setting))
            row["diagnosed"] = ended_diagnosis(child, budget.at_most(60.0))
            save(found)
            if budget.left_s < 5:
                break
        for child in waiting:
            child.end(0.0)
    for script in todo:
        found.setdefault(script.name, {"skipped": "no time left"})
    return found


def _steps(steps: int, setting: Setting) -> int:
    return min(steps, 40) if setting.small else steps


def _folder(made: str, name: str) -> Path:
    folder = Path(made) / name
    folder.mkdir()
    return folder


def _alone(script: Script, made: str, setting: Setting) -> Child:
    return Child(
        (sys.executable, str(SCRIPTS / f"{script.name}.py")), _folder(made, script.name), setting,
        gated=True, clock=True, environment={"STEPS": str(_steps(script.alone, setting))},
    )  # fmt: skip
