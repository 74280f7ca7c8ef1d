"""Timing on a GPU that PyTorch sees, and the rows found so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gobrrr.devices.card import CardState
from gobrrr.devices.ceilings import Ceiling
from gobrrr.measure.clock import Clock

MIB = 1024**2
_TRIALS = 5


@dataclass
class Found:
    """Rows so far, and sentences on what could not be measured."""

    rows: dict[str, Ceiling] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    short_of_memory: bool = False

    def add(
        self, name: str, value: float | None, unit: str, source: str, sm_hz: float | None = None
    ) -> None:
        """Keep a rate if it is the highest of its name so far; nothing, if it is not positive."""
        if value is not None and value > 0:
            known = self.rows.get(name)
            if known is None or value > known.value:
                self.rows[name] = Ceiling(name, value, unit, "measured", source, sm_hz)


def out_of_memory(error: BaseException) -> bool:
    """Whether PyTorch's allocator found no memory (``torch.OutOfMemoryError``, by its name)."""
    return type(error).__name__ == "OutOfMemoryError"


@dataclass(frozen=True)
class Gpu:
    """One device, PyTorch, the host's clock, and what the driver says of the card."""

    torch: Any
    device: Any
    clock: Clock
    card_state: Callable[[], CardState | None] = lambda: None

    def sm_hz(self) -> float | None:
        """The clock of its multiprocessors now; ``None`` if the driver does not say."""
        state = self.card_state()
        return None if state is None or state.sm_mhz is None else state.sm_mhz * 1e6

    def synchronise(self) -> None:
        """Wait until the device is done."""
        self.torch.cuda.synchronize(self.device)

    def seconds(self, call: Callable[[], object], least_s: float = 0.02) -> float:
        """Device seconds per call: events around a block, the best of several."""
        cuda = self.torch.cuda
        call()
        self.synchronise()
        start = self.clock.now_ns()
        call()
        self.synchronise()
        once_s = max((self.clock.now_ns() - start) * 1e-9, 1e-7)
        calls = max(1, min(1000, int(least_s / once_s)))
        best_s = float("inf")
        for _ in range(_TRIALS):
            before, after = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            before.record()
            for _ in range(calls):
                call()
            after.record()
            self.synchronise()
            best_s = min(best_s, before.elapsed_time(after) * 1e-3 / calls)
        return best_s

    def seconds_without_launches(self, call: Callable[[], object], calls: int = 50) -> float:
        """Device seconds per call when a captured graph launches them, back to back."""
        cuda = self.torch.cuda
        graph = cuda.CUDAGraph()
        side = cuda.Stream(self.device)
        side.wait_stream(cuda.current_stream(self.device))
        with cuda.stream(side):
            call()
        cuda.current_stream(self.device).wait_stream(side)
        with cuda.graph(graph):
            for _ in range(calls):
                call()
        return self.seconds(graph.replay) / calls

    def host_seconds(self, call: Callable[[], object], calls: int) -> float:
        """Host seconds per call, the best of several blocks; the device is idle before each."""
        best_s = float("inf")
        for _ in range(_TRIALS):
            self.synchronise()
            start = self.clock.now_ns()
            for _ in range(calls):
                call()
            best_s = min(best_s, (self.clock.now_ns() - start) * 1e-9 / calls)
        self.synchronise()
        return best_s
