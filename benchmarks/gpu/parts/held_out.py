"""How far are predicted steps from measured ones on programs that nothing was fitted on?

Twelve families that are not in ``programs.py`` (eager, float32), then some of its programs compiled
(float32). Each is predicted from the device's data sheet, with the host that a prediction assumes
and with this host's own addition (as ``benchmarks/prediction_host`` does), and then timed by
events. Refuted where a measured time is outside of its interval.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gpu.clocks import Budget, block_s, events_s, on_cuda, steps_in
from benchmarks.gpu.held_out_programs import HELD_OUT
from benchmarks.gpu.programs import PROGRAMS, SMALL, Program
from benchmarks.gpu.setting import Setting

import gobrrr

LIMIT_S = 60
EACH_S, COMPILED_S = 10.0, 18.0
# By what decides them: the host, memory, products, a mixture; in the order of their worth.
COMPILED = (
    "mlp 512, batch 32, inference",
    "chain of 16, 16777216 elements",
    "norms 16384 x 4096",
    "block 512, 128 tokens x 8, inference",
    "mlp 2048, batch 4096, training",
)


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Rows by program."""
    from gobrrr.devices import identify

    budget = Budget(LIMIT_S)
    sheet = setting.predict_as or (identify("gpu").name if on_cuda(setting) else "H100")
    addition = budget.attempt(lambda: _addition_s(setting))
    found: dict[str, Any] = {"sheet": sheet, "addition_s": addition, "programs": {}}
    by_name = {program.name: program for program in PROGRAMS}
    eager, compiled = HELD_OUT, tuple(by_name[name] for name in COMPILED)
    if setting.small:
        eager, compiled = SMALL, ()
    for program in (*eager, *compiled):
        compile = program in compiled
        row: dict[str, Any] = {"compiled": compile, "family_held_out": not compile}
        found["programs"][program.name] = row
        measure = partial(_measured, program, compile, setting, sheet, addition, row)
        if (failed := budget.attempt(measure, COMPILED_S if compile else EACH_S)) is not None:
            row |= failed
        gc.collect()
        save(found)
    return found


def _addition_s(setting: Setting) -> list[float]:
    """Seconds of the smallest addition on the device, five times: what a host is judged by."""
    import torch

    one, other = (torch.ones(1, device=setting.device) for _ in range(2))
    out = torch.empty_like(one)

    def additions() -> None:
        # Fewer than a launch queue holds.
        for _ in range(300):
            torch.add(one, other, out=out)

    with torch.no_grad():
        return [block_s(setting, additions, 1) / 300 for _ in range(6)][1:]


def _measured(
    program: Program, compile: bool, setting: Setting, sheet: str, addition: Any,
    row: dict[str, Any],
) -> None:  # fmt: skip
    """Adds to ``row`` as it goes: what was predicted stays where measuring fails."""
    import torch

    from gobrrr.prediction.step.host_lane import ADDITION_S

    torch.manual_seed(38)
    model, inputs = program.build(torch, setting.device, torch.float32)
    model = model.train(program.trains)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3) if program.trains else None
    loss = (lambda y: y.float().square().mean()) if program.trains else None

    def work(of: Any) -> gobrrr.Workload:
        return gobrrr.Workload(of, inputs, loss=loss, optimizer=optimizer)

    overheads: dict[str, float | None] = {"predicted": None}
    if isinstance(addition, list):
        overheads["host_known"] = min(addition) / ADDITION_S
    for name, overhead in overheads.items():
        told = gobrrr.predict(
            work(model), sheet, compile=compile, host_overhead=overhead, progress=False
        )
        time_s = told.step.time_s
        row[name] = {
            "step_s": time_s.median, "low_s": time_s.low, "high_s": time_s.high,
            "host_overhead": overhead, "host_bound": told.source.get("host_bound"),
        }  # fmt: skip
    step = work(torch.compile(model) if compile else model).step
    count = max(min(steps_in(setting, step, 0.3), 100), 5)
    row["events_s"] = events_s(setting, step, count)
    row["block_s"] = [block_s(setting, step, count) for _ in range(2)]
