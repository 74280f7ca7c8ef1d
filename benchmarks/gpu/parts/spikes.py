"""Does a spike of 20 to 50 % of a step show in the right leaf, to 2 % of the step, or a notice?

Three bases (bound by the device, by the host, one CUDA graph) with eight kinds of spike of known
size, base and spiked step diagnosed in turn. The truth is the host's clock over synchronised blocks
of the same steps, before anything is profiled and again after. Refuted by a row whose ``off`` is
above 0.02 while its diagnosis has no notice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks.gpu.clocks import (
    NEEDS_CUDA,
    Budget,
    Step,
    block_s,
    captured,
    ceilings_of,
    in_turns,
    on_cuda,
    row_of,
    steps_in,
)
from benchmarks.gpu.setting import Setting

import gobrrr

LIMIT_S = 70
SHARE = 0.35
ROUNDS = 3
# Of a base's seconds, for the clock after the last diagnosis.
AFTER_S = 3.0
BLOCK_S = 0.05
# Of a unit that takes a microsecond: more would make traces that take longer than the part has.
MOST_UNITS = 1000


@dataclass(frozen=True)
class Kind:
    """A spike: ``unit`` is repeated until it takes its share of the step.

    ``leaf`` begins the names of the leaves that it belongs to. Of one that only the host works at,
    a device that is busy hides what it can: there the truth is what the step grew by.
    """

    name: str
    leaf: str
    unit: Step
    of_host: bool = True


def kinds_of(setting: Setting) -> tuple[Kind, ...]:
    """All but Python, whose length is set and not measured."""
    import torch

    device = setting.device
    side, elements = setting.scaled(1024), setting.scaled(1 << 27)
    a = torch.randn(side, side, device=device)
    product = torch.empty_like(a)
    # One reads and one writes 512 MiB of it.
    v = torch.ones(elements, device=device)
    moved = torch.empty_like(v)
    host = torch.ones(setting.scaled(1 << 20))
    landed = torch.empty(len(host), device=device)
    serial = torch.ones(1 << 16)
    summed = torch.empty_like(serial)
    tiny = torch.ones(1, device=device)

    def item() -> None:
        tiny.item()

    return (
        # An op whose span is long and launches nothing: serial, on the processor.
        Kind("dispatch", "overhead.dispatch", lambda: torch.cumsum(serial, 0, out=summed)),
        Kind("views", "overhead.", lambda: tiny.view(1, 1)),
        Kind("launches", "overhead.", lambda: tiny.add_(1.0)),
        Kind("item", "overhead.", item),
        Kind("pageable copy", "memory.copies", lambda: landed.copy_(host), of_host=False),
        Kind("memory", "memory.device", lambda: torch.mul(v, 2.0, out=moved), of_host=False),
        Kind("matmul", "compute.", lambda: torch.mm(a, a, out=product), of_host=False),
    )


def bases_of(setting: Setting) -> dict[str, Callable[[], Step]]:
    """What makes each base; the graph needs CUDA and comes last, since it is likeliest to fail."""
    import torch

    def device() -> Step:
        side = setting.scaled(3584)
        a = torch.randn(side, side, device=setting.device)
        out = torch.empty_like(a)

        def step() -> Any:
            for _ in range(3):
                torch.mm(a, a, out=out)

        return step

    def host() -> Step:
        return setting.many_small_ops().step

    def graph() -> Step:
        layers = [torch.nn.Linear(1024, 1024) for _ in range(100)]
        model = torch.nn.Sequential(*layers).to(setting.device).eval()
        x = torch.randn(1024, 1024, device=setting.device)
        with torch.no_grad():
            return captured(lambda: model(x))

    return {"device": device, "host": host, "graph": graph}


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Rows of every repetition, by base and kind."""
    budget = Budget(LIMIT_S)
    ceilings, origin = ceilings_of(setting)
    found: dict[str, Any] = {"share": SHARE, "ceilings": origin, "bases": {}}
    bases = bases_of(setting)
    if setting.small:
        del bases["device"]
    for number, (name, make) in enumerate(bases.items()):
        if name == "graph" and not on_cuda(setting):
            found["bases"][name] = NEEDS_CUDA
            continue
        rows: dict[str, Any] = {}
        found["bases"][name] = rows
        share_s = max(budget.left_s(), 0.0) / (len(bases) - number)
        work = partial(_of_base, setting, name, make, ceilings, rows, lambda: save(found), share_s)
        if (failed := budget.attempt(work, share_s + 2.0)) is not None:
            rows |= failed
        save(found)
    return found


def _of_base(
    setting: Setting, name: str, make: Callable[[], Step], ceilings: Any, rows: dict[str, Any],
    save: Callable[[], None], seconds: float,
) -> None:  # fmt: skip
    ends = time.monotonic() + seconds
    rounds, block, most = (1, 0.005, 20) if setting.small else (ROUNDS, BLOCK_S, MOST_UNITS)
    clock = partial(in_turns, setting, rounds=rounds, block=block)
    base = make()
    step_s = block_s(setting, base, steps_in(setting, base, block))
    spikes = {"python": _busy(round(SHARE * step_s * 1e9))}
    kinds = {kind.name: kind for kind in kinds_of(setting)}
    units = {"python": 1}
    for made in kinds.values():
        unit_s = block_s(setting, made.unit, steps_in(setting, made.unit, block / 5))
        units[made.name] = min(max(round(SHARE * step_s / unit_s), 1), most)
        spikes[made.name] = _repeated(made.unit, units[made.name])
    spiked = {kind: _both(spike, base) for kind, spike in spikes.items()}
    alone = clock(spikes)
    before = clock({"base": base, **spiked})
    rows["base_s"] = before.pop("base")
    rows["kinds"] = {}
    for kind in spikes:
        of_host, leaf = True, "overhead.python"
        if kind in kinds:
            of_host, leaf = kinds[kind].of_host, kinds[kind].leaf
        grew_s = median(before[kind]) - median(rows["base_s"])
        whole = not of_host or (name == "host" and kind in ("python", "dispatch"))
        rows["kinds"][kind] = {
            "leaf": leaf, "units": units[kind], "alone_s": alone[kind], "spiked_s": before[kind],
            "step_grew_s": grew_s, "truth_s": median(alone[kind]) if whole else grew_s, "told": [],
        }  # fmt: skip
    save()
    told = partial(
        setting.diagnose, steps=2 if setting.small else 12, warmup=3, restore=False,
        ceilings=ceilings,
    )  # fmt: skip
    # Round by round, so that what there is no time for is a repetition and not a kind.
    for _ in range(rounds):
        for kind, row in rows["kinds"].items():
            if time.monotonic() < ends - AFTER_S:
                pair = told(base, name="base"), told(spiked[kind], name=kind)
                row["told"].append(_compared(*pair, row["leaf"], row["truth_s"]))
        save()
    rows["after_s"] = clock({"base": base, **spiked})


def _compared(
    base: gobrrr.Diagnosis, spiked: gobrrr.Diagnosis, leaf: str, truth_s: float
) -> dict[str, Any]:
    grew = {name: value - base.leaves[name] for name, value in spiked.leaves.items()}
    told_s = sum(value for name, value in grew.items() if name.startswith(leaf))
    return {
        "told_s": told_s, "off": abs(told_s - truth_s) / spiked.step_s,
        "grew": {name: value for name, value in grew.items() if value},
        "base": row_of(base), "spiked": row_of(spiked),
    }  # fmt: skip


def _busy(ns: int) -> Step:
    def busy() -> None:
        ends = time.perf_counter_ns() + ns
        while time.perf_counter_ns() < ends:
            pass

    return busy


def _repeated(unit: Step, times: int) -> Step:
    def spike() -> None:
        for _ in range(times):
            unit()

    return spike


def _both(spike: Step, base: Step) -> Step:
    def step() -> Any:
        spike()
        return base()

    return step
