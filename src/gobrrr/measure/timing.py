"""Time callables: warm up until they settle, then take turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gobrrr.measure.clock import Clock, SystemClock
from gobrrr.measure.summary import Summary, summarise


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one callable in the order they were taken.

    Attributes:
        seconds: seconds per call, one entry per round.
        settled: whether the warm-up saw its times settle.
    """

    seconds: tuple[float, ...]
    settled: bool

    @property
    def best_s(self) -> float:
        """The smallest sample, in seconds: what the machine can do when nothing disturbs it."""
        return min(self.seconds)

    def summary(self) -> Summary:
        """Median and interval, in seconds."""
        return summarise(self.seconds)


# A thread that has slept wakes up where its caller runs, and every operator waits for it until the
# system has moved it (seen: 8 ms for one of 0.05 ms, for about 0.1 s).
THREADS_WAKE_S = 0.2


def _nothing() -> None:
    """The sync hook of a device that runs synchronously."""


def time_block(
    call: Callable[[], object], calls: int, clock: Clock, sync: Callable[[], object]
) -> float:
    """Seconds per call over ``calls`` calls between two synchronisations."""
    sync()
    start_ns = clock.now_ns()
    for _ in range(calls):
        call()
    sync()
    return (clock.now_ns() - start_ns) * 1e-9 / calls


def warm_up(
    call: Callable[[], object],
    *,
    clock: Clock | None = None,
    sync: Callable[[], object] = _nothing,
    tolerance: float = 0.05,
    least: int = 3,
    most: int = 50,
    limit_s: float = 5.0,
) -> tuple[float, bool]:
    """Call until the time per call settles; returns (last seconds per call, settled).

    Settled means that the faster of the last two calls is within ``tolerance`` of the faster of
    the two before: one slow call alone does not count against it. Stops unsettled after ``most``
    calls or ``limit_s`` seconds.
    """
    clock = clock or SystemClock()
    times: list[float] = []
    start_ns = clock.now_ns()
    while len(times) < most:
        times.append(time_block(call, 1, clock, sync))
        if len(times) >= max(least, 4):
            before, after = min(times[-4:-2]), min(times[-2:])
            if abs(after - before) <= tolerance * before:
                return times[-1], True
        if len(times) >= least and (clock.now_ns() - start_ns) * 1e-9 >= limit_s:
            break
    return times[-1], False


def time_interleaved(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    block_s: float = 0.0,
    clock: Clock | None = None,
    sync: Callable[[], object] = _nothing,
    warm_up_limit_s: float = 5.0,
) -> dict[str, Series]:
    """Warm each callable up, then time them in turns (A B C A B C ...).

    Args:
        calls: what to time, by name.
        rounds: samples per callable.
        block_s: at least this many seconds per sample; short calls are repeated to fill it.
        clock: where time is read; the system's by default.
        sync: waits until the device is done; called at both ends of every sample.
        warm_up_limit_s: seconds of warm-up per callable at most.

    Raises:
        ValueError: nothing to time, or fewer than one round.
    """
    if not calls:
        raise ValueError("nothing to time")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    clock = clock or SystemClock()
    repeats: dict[str, int] = {}
    settled: dict[str, bool] = {}
    for name, call in calls.items():
        once_s, settled[name] = warm_up(call, clock=clock, sync=sync, limit_s=warm_up_limit_s)
        repeats[name] = max(1, round(block_s / once_s)) if once_s > 0 else 1
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            samples[name].append(time_block(call, repeats[name], clock, sync))
    return {name: Series(tuple(taken), settled[name]) for name, taken in samples.items()}


def time_in_turns(
    once: Callable[[], object],
    twice: Callable[[], object],
    *,
    seconds: float = 2.0,
    limit_s: float = 30.0,
    clock: Clock | None = None,
    lengths_of: Callable[[Callable[[], object]], list[int]] | None = None,
) -> tuple[list[int], list[int]]:
    """Two callables of different length, timed one call each in turns after one of each.

    Rounds go on for ``seconds`` of calls: at least 5 and at most 100; but none begins after
    ``limit_s``. Returns nanoseconds per call. What a call returns is dropped after its end.
    ``lengths_of`` makes calls and gives their lengths, where the host's clock does not tell them.
    """
    clock = clock or SystemClock()

    def timed(step: Callable[[], object]) -> list[int]:
        if lengths_of is not None:
            return lengths_of(step)
        begin = clock.now_ns()
        result = step()
        length = clock.now_ns() - begin
        del result
        return [length]

    for step in (once, twice):
        timed(step)
    samples: tuple[list[int], list[int]] = ([], [])
    spent_s = 0.0
    while len(samples[0]) < 5 or (spent_s < seconds and len(samples[0]) < 100):
        for step, taken in zip((once, twice), samples):
            taken += (lengths := timed(step))
            spent_s += sum(lengths) * 1e-9
        if spent_s > limit_s:
            break
    return samples
