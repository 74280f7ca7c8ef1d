"""Where an experiment runs and for how long, and the timing that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gobrrr.devices import ceilings_for_this_machine
from gobrrr.devices.backends import synchronise
from gobrrr.devices.ceilings import Ceilings
from gobrrr.measure import (
    Clock,
    Load,
    LoadWatch,
    Series,
    Summary,
    SystemClock,
    ratio_interval,
    summarise,
)
from gobrrr.measure.timing import time_block, warm_up

if TYPE_CHECKING:
    from gobrrr.diagnosis.schema import Diagnosis

# Below six samples no distribution-free interval of the median reaches 95 %.
LEAST_ROUNDS = 7
MOST_ROUNDS = 101


def _silent(sentence: str) -> None:
    pass


@dataclass(frozen=True)
class Setting:
    """The device, the time there is, and the means to measure.

    Attributes:
        device: ``cpu`` or ``cuda`` (an AMD GPU is ``cuda`` to PyTorch).
        budget_s: seconds the experiment may take.
        seed: of every random number.
        clock: where time is read.
        progress: called with one sentence.
        started_ns: the clock's time when the budget began.
        loads: what the machine did during each stretch of timing.
    """

    device: str = "cpu"
    budget_s: float = 30.0
    seed: int = 0
    clock: Clock = field(default_factory=SystemClock)
    progress: Callable[[str], None] = _silent
    started_ns: int = 0
    loads: list[Load] = field(default_factory=list)

    @property
    def is_gpu(self) -> bool:
        """Whether the device is not the processor."""
        return self.device != "cpu"

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left; below 0 when it is overdrawn."""
        return self.budget_s - (self.clock.now_ns() - self.started_ns) * 1e-9

    def synchronise(self) -> None:
        """Waits until the device is done; nothing on a CPU, which runs synchronously."""
        if self.is_gpu:
            synchronise()

    def diagnose(self, step: Callable[[], object], *, steps: int, warmup: int) -> Diagnosis:
        """Gobrrr's own diagnosis of a step, with this device's ceilings."""
        from gobrrr.pipeline.live import diagnose

        watch = LoadWatch()
        found = diagnose(
            step, steps=steps, warmup=warmup, batch_test=False, restore=False, progress=False,
            ceilings=self.ceilings(),
        )  # fmt: skip
        self.loads.append(watch.so_far())
        return found

    def waiting_share(self) -> float | None:
        """Of the time that threads wanted a processor while timed, the part they had none.

        ``None`` if nothing was timed or the system does not count it.
        """
        known = [(load.cpu_s, load.waiting_s) for load in self.loads if load.waiting_s is not None]
        waited = sum(waiting for _, waiting in known if waiting is not None)
        wanted = waited + sum(cpu for cpu, _ in known)
        return waited / wanted if wanted > 0 else None

    def ceilings(self) -> Ceilings:
        """Ceilings of the device, from the cache or measured."""
        return ceilings_for_this_machine(kind="gpu" if self.is_gpu else "cpu")

    def time_in_turns(
        self,
        calls: Mapping[str, Callable[[], object]],
        *,
        seconds: float,
        block_s: float | None = None,
        warm_up_s: float = 0.3,
    ) -> dict[str, Series]:
        """Warm each callable up, then time them in turns (A B C A B C ...) for about ``seconds``.

        At least seven rounds, so that medians have a 95 % interval. A sample is a block of calls
        of at least ``block_s`` (0.2 ms on a CPU, 2 ms on a GPU, where a synchronisation ends it).
        Sample i of one callable and sample i of another were taken next to each other.
        """
        least_s = block_s if block_s is not None else (2e-3 if self.is_gpu else 2e-4)
        repeats: dict[str, int] = {}
        settled: dict[str, bool] = {}
        for name, call in calls.items():
            once_s, settled[name] = warm_up(
                call,
                clock=self.clock,
                sync=self.synchronise,
                limit_s=warm_up_s,
                least=1,
                most=20,
            )
            repeats[name] = max(1, min(100_000, round(least_s / max(once_s, 1e-9))))
        samples: dict[str, list[float]] = {name: [] for name in calls}
        begun_ns = self.clock.now_ns()
        watch = LoadWatch()
        for done in range(MOST_ROUNDS):
            if done >= LEAST_ROUNDS and (self.clock.now_ns() - begun_ns) * 1e-9 > seconds:
                break
            for name, call in calls.items():
                samples[name].append(time_block(call, repeats[name], self.clock, self.synchronise))
        self.loads.append(watch.so_far())
        return {name: Series(tuple(taken), settled[name]) for name, taken in samples.items()}


def ratio_of(numerator: Series, denominator: Series) -> tuple[float, float, float]:
    """Median of the paired ratios with its 95 % interval."""
    found = ratio_interval(numerator.seconds, denominator.seconds)
    return found.median, found.low, found.high


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    """Median and 95 % interval of samples of a quantity."""
    found: Summary = summarise(list(values))
    return found.median, found.low, found.high


def crossing(x: Sequence[float], y: Sequence[float], level: float) -> float | None:
    """The first x at which y has risen past ``level``, interpolated between points in log-log.

    ``None`` if y never does.
    """
    for (x0, y0), (x1, y1) in zip(zip(x, y), zip(x[1:], y[1:])):
        if y1 > level >= y0:
            share = (np.log(level) - np.log(y0)) / (np.log(y1) - np.log(y0))
            return float(np.exp(np.log(x0) + share * (np.log(x1) - np.log(x0))))
    return x[0] if y and y[0] > level else None


def torch_generator(setting: Setting) -> Any:
    """A generator of the setting's device, seeded."""
    import torch

    return torch.Generator(device=setting.device).manual_seed(setting.seed)


def forget_compilations() -> None:
    """Drops what Dynamo keeps of earlier experiments, so that no recompilation limit is hit."""
    with suppress(ImportError):
        import torch._dynamo as dynamo

        dynamo.reset()
