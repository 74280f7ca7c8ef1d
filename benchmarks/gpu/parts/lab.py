"""What do the lab's experiments say of the article's claims on this device?

``gobrrr lab NAME``, one after the other in this process, which has the ceilings in its cache after
the first. Refuted by a claim with the verdict "refuted", or an experiment that fails.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from benchmarks.gpu.clocks import Budget, ceilings_of
from benchmarks.gpu.setting import Setting

LIMIT_S = 60
# Seconds of each experiment, in the order of what only a device can tell.
EXPERIMENTS = {"run-ahead": 5, "overhead": 6, "fusion": 10, "regimes": 10, "tensor-cores": 9}


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Exit code, standard output and the experiment's own file, by name."""
    budget = Budget(LIMIT_S)
    # From here on in the cache: the first experiment does not pay for them.
    measured = budget.attempt(lambda: ceilings_of(setting, measured=True)[1])
    found: dict[str, Any] = {"ceilings": measured}
    names = ("run-ahead",) if setting.small else EXPERIMENTS
    for name in names:
        seconds = EXPERIMENTS[name]
        found[name] = budget.attempt(partial(_experiment, setting, name, seconds), 2.5 * seconds)
        save(found)
    return found


def _experiment(setting: Setting, name: str, seconds: float) -> dict[str, Any]:
    from gobrrr.cli import main

    folder = setting.out / "lab" / name
    arguments = ["lab", name, "--device", setting.device.partition(":")[0], "--out", str(folder)]
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            code: Any = main([*arguments, "--budget", str(seconds)])
    except SystemExit as ended:
        code = ended.code
    return {
        "exit": code,
        "budget_s": seconds,
        "stdout": said.getvalue().replace(str(folder), "OUT"),
        "results": [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))],
    }
