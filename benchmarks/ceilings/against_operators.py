"""PyTorch's operators against the roofs that the cached ceilings give them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from benchmarks.ceilings.quiet import Pace

from gobrrr.devices import Ceilings, ceilings_for_this_machine, identify
from gobrrr.devices.cpu.identity import usable_cpus
from gobrrr.devices.cpu.memory import plan_levels
from gobrrr.roofline.roof import roof_of
from gobrrr.work.estimate import Work

_CASE_S = 0.06


@dataclass(frozen=True)
class Case:
    """An operator on buffers that exist already, and its work."""

    name: str
    call: Callable[[], object]
    work: Work


def _pointwise(read: int, written: int, unique: int, flops: float, special: float = 0.0) -> Work:
    return Work(0.0, flops, read, written, unique, "float32", "elementwise", special)


def _cases() -> Iterator[Case]:
    threads = torch.get_num_threads()
    for level in plan_levels(identify("cpu"), threads, usable_cpus()):
        if level.name == "l1":
            continue
        size = level.sets_bytes[0]
        whole = torch.ones(size // 4)
        a, a_out = torch.ones(size // 8), torch.ones(size // 8)
        b, b_other, b_out = (torch.ones(size // 12) for _ in range(3))
        n, half, third = 4 * whole.numel(), 4 * a.numel(), 4 * b.numel()
        for name, call, work in (
            ("sum", whole.sum, _pointwise(n, 0, n, n / 4)),
            ("fill_", lambda x=whole: x.fill_(1.0), _pointwise(0, n, n, 0)),
            ("mul_", lambda x=whole: x.mul_(1.0), _pointwise(n, n, n, n / 4)),
            ("copy_", lambda x=a, y=a_out: y.copy_(x), _pointwise(half, half, n, 0)),
            ("relu", lambda x=a, y=a_out: torch.clamp_min(x, 0, out=y),
             _pointwise(half, half, n, half / 4)),
            ("add_", lambda x=a, y=a_out: y.add_(x, alpha=0.0),
             _pointwise(2 * half, half, n, half / 2)),
            ("add", lambda x=b, y=b_other, z=b_out: torch.add(x, y, out=z),
             _pointwise(2 * third, third, n, third / 4)),
            ("exp", lambda x=a, y=a_out: torch.exp(x, out=y),
             _pointwise(half, half, n, half / 4, half / 4)),
        ):  # fmt: skip
            yield Case(f"{level.name}.{name}", call, work)
    for m, k, n in ((512, 512, 512), (1024, 1024, 1024), (2048, 768, 3072)):
        x, y, z = torch.ones(m, k), torch.ones(k, n), torch.empty(m, n)
        read, written = 4 * (m * k + k * n), 4 * m * n
        yield Case(
            f"mm.{m}x{k}x{n}",
            lambda x=x, y=y, z=z: torch.mm(x, y, out=z),
            Work(2.0 * m * k * n, 0.0, read, written, read + written, "float32", "contraction"),
        )


@cache
def _ceilings() -> Ceilings:
    return ceilings_for_this_machine(kind="cpu")


def one_round(pace: Pace) -> dict[str, dict[str, float | str]]:
    """Best seconds of each operator, its roof in seconds and which side of it decides."""
    found: dict[str, dict[str, float | str]] = {}
    for case in pace.begin(tuple(_cases())):
        roof = roof_of(case.work, _ceilings())
        assert roof is not None
        sides = {"matrix": roof.matrix_s, "vector": roof.vector_s, roof.level: roof.memory_s}
        found[case.name] = {
            "seconds": _best_seconds(case.call),
            "roof_s": roof.time_s,
            "roof_from": max(sides, key=lambda side: sides[side]),
        }
    return found


def _best_seconds(call: Callable[[], object]) -> float:
    best, end = float("inf"), time.perf_counter() + _CASE_S
    call()
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best


def summarise_rounds(
    rounds: list[dict[str, dict[str, float | str]]],
) -> dict[str, dict[str, float | str]]:
    """Share of its roof that each operator reached in its best round."""
    summary: dict[str, dict[str, float | str]] = {}
    last = {name: case for measured in rounds for name, case in measured.items()}
    for name, case in sorted(last.items()):
        shares = [
            float(measured[name]["roof_s"]) / float(measured[name]["seconds"])
            for measured in rounds
            if name in measured
        ]
        summary[name] = {"share_of_roof": max(shares), "roof_from": case["roof_from"]}
    return summary
