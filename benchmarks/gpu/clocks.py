"""Clocks that know nothing of gobrrr, diagnoses as rows of a result, and limits of time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeAlias

from benchmarks.gpu.raw import synchronise
from benchmarks.gpu.setting import Setting

import gobrrr
from gobrrr.devices import Ceilings

Step: TypeAlias = Callable[[], Any]
NEEDS_CUDA = {"skipped": "needs CUDA"}
# Of a part's limit: starting Python, importing PyTorch, the device's context, writing the result.
START_S = 12.0
# A limit rings again after so long: an exception that is raised in a destructor is lost. A profiler
# that stops meanwhile has the time to.
AGAIN_S = 5.0


class TooLongError(BaseException):
    """A piece took longer than it may; no ``except Exception`` keeps it."""


class Budget:
    """The seconds of a part that its pieces share."""

    def __init__(self, limit_s: float) -> None:
        self._ends = time.monotonic() + limit_s - START_S

    def left_s(self) -> float:
        """Seconds that are left, below 0 when it is overdrawn."""
        return self._ends - time.monotonic()

    def attempt(self, call: Callable[[], Any], limit_s: float = float("inf")) -> Any:
        """What the call gives; its error, or that there was no time, in place of it."""
        seconds = min(limit_s, self.left_s())
        if seconds < 1.0:
            return {"skipped": "no time left"}
        try:
            with _at_most(seconds):
                return call()
        except (Exception, TooLongError) as error:
            line = (str(error).splitlines() or [""])[0]
            return {"error": f"{type(error).__name__}: {line}"[:500]}


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises ``TooLongError`` in the block after so long, where signals can tell (not Windows)."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(*_: Any) -> None:
        raise TooLongError(f"not done after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    began = time.monotonic()
    outer_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        # A limit around this one has gone on meanwhile.
        left_s = max(outer_s - (time.monotonic() - began), 0.001) if outer_s else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left_s, AGAIN_S)


def on_cuda(setting: Setting) -> bool:
    """Whether the part runs on a CUDA device."""
    return setting.device.partition(":")[0] == "cuda"


def block_s(setting: Setting, step: Step, steps: int) -> float:
    """Seconds per step of a block between two synchronisations, by the host's clock."""
    synchronise(setting.device)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    synchronise(setting.device)
    return (time.perf_counter() - began) / steps


def steps_in(setting: Setting, step: Step, block: float) -> int:
    """How many warm steps fill a block of so many seconds; at least three."""
    step()
    once_s = min(block_s(setting, step, 3) for _ in range(2))
    return min(max(round(block / once_s), 3), 10_000)


def in_turns(
    setting: Setting, steps: Mapping[str, Step], *, rounds: int, block: float
) -> dict[str, list[float]]:
    """Seconds per step of each, in blocks that take turns."""
    counts = {name: steps_in(setting, step, block) for name, step in steps.items()}
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            found[name].append(block_s(setting, step, counts[name]))
    return found


def events_s(setting: Setting, step: Step, steps: int) -> list[float]:
    """Lengths of steps by CUDA's events; by the host's clock where there is no such device."""
    import torch

    if not on_cuda(setting):
        return [block_s(setting, step, 1) for _ in range(steps)]
    synchronise(setting.device)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    synchronise(setting.device)
    return [a.elapsed_time(b) * 1e-3 for a, b in pairwise(events)]


def captured(step: Step) -> Step:
    """The replay of a step in a CUDA graph, warmed up on a side stream as PyTorch asks for."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    # A graph reads the tensors that its step was captured with, and does not keep them.
    def replay(kept: Step = step) -> None:
        graph.replay()

    return replay


def ceilings_of(setting: Setting, *, measured: bool = False) -> tuple[Ceilings, str]:
    """The device's ceilings and where they are from; its data sheet's take no time to have."""
    from gobrrr.devices import ceilings_for_this_machine, ceilings_from_datasheet, identify

    kind: Any = "gpu" if on_cuda(setting) else None
    sheet = None if measured else ceilings_from_datasheet(identify(kind).name)
    if sheet is not None:
        return sheet, "data sheet"
    return ceilings_for_this_machine(kind=kind), "measured"


def plain(record: Any) -> Any:
    """A record of gobrrr as plain data; what is no finite number is null."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(record))


def row_of(found: gobrrr.Diagnosis) -> dict[str, Any]:
    """What a diagnosis told: the step with its scales, leaves, causes of idleness, sentences."""
    idle = sorted(found.idle, key=lambda row: -row.time_s)[:5]
    kernel_s = sum(op.kernel_s for op in found.ops)

    def share(key: str) -> float | None:
        known_s = sum(op.kernel_s for op in found.ops if getattr(op, key))
        return known_s / kernel_s if kernel_s > 0 else None

    return {
        "step_s": found.step_s,
        "step": plain(found.step),
        "regime": found.regime,
        "leaves": {name: value for name, value in found.leaves.items() if value},
        "idle": plain(idle),
        "with_line": share("source"),
        "with_module": share("module"),
        "counters": plain(found.counters),
        "verdict": found.verdict,
        "notices": list(found.notices),
        "first_lines": str(found).splitlines()[:12],
    }
