"""How much of Python's time was sleep: counters of undisturbed steps say, samples say where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gobrrr.attribution.cpu.sleep import with_sleep_apart
from gobrrr.attribution.leaves import IdleGap, empty_leaves
from gobrrr.live.measurements import Measurements, StepKind
from gobrrr.live.profiles.profile import RawEvents
from gobrrr.measure.thread_effort import StepEffort
from gobrrr.observe.sampler import LineSample

NOTHING = np.zeros(0, np.int64)
RAW = RawEvents((), NOTHING, NOTHING, NOTHING.astype(np.int32), NOTHING.astype(np.int32),
                NOTHING.astype(bool), 100)  # fmt: skip
SAMPLED: list[tuple[RawEvents, list[LineSample]]] = [(RAW, [])]
# A step of 1000 ns, 400 of them Python: samples saw it asleep in 300 at one line.
GAPS = (
    IdleGap(300.0, "overhead.asleep", "a.py:1"),
    IdleGap(100.0, "overhead.python", "a.py:2"),
    IdleGap(200.0, "overhead.dispatch", "a.py:3"),
)


def _split(
    slept_ns: list[int], threads: int | None = 1, network: float = 0.0, **measured: Any
) -> dict[tuple[str, str | None], float]:
    leaves = {**empty_leaves(), "overhead.python": 400.0, "overhead.dispatch": 200.0,
              "memory.network": network, "compute.matrix.roof": 400.0 - network}  # fmt: skip
    measurements = Measurements(
        efforts={i: StepEffort(0, 0, ns) for i, ns in enumerate(slept_ns)},
        plain_windows=[list(range(len(slept_ns))), []],
        sampled=SAMPLED,
        **measured,
    )
    found, gaps = with_sleep_apart(leaves, GAPS, measurements, threads)
    assert sum(found.values()) == pytest.approx(1000.0)
    for leaf in ("overhead.asleep", "overhead.python", "overhead.dispatch"):
        assert sum(g.duration_ns for g in gaps if g.leaf == leaf) == pytest.approx(found[leaf])
    return {(g.leaf.partition(".")[2], g.source): pytest.approx(g.duration_ns) for g in gaps}


def test_samples_that_saw_sleep_where_the_counters_saw_none_are_wrong() -> None:
    # Others had the processor: 300 ns of the samples' steps, none of the thread's own sleep.
    assert _split([0, 2, 0]) == {
        ("python", "a.py:1"): 300, ("python", "a.py:2"): 100, ("dispatch", "a.py:3"): 200,
    }  # fmt: skip


def test_the_counters_say_how_long_and_the_samples_where() -> None:
    assert _split([150, 150, 900]) == {
        ("python", "a.py:1"): 150, ("asleep", "a.py:1"): 150,
        ("python", "a.py:2"): 100, ("dispatch", "a.py:3"): 200,
    }  # fmt: skip
    # 50 more than was seen: half of what was not seen asleep.
    assert _split([350]) == {
        ("asleep", "a.py:1"): 300, ("python", "a.py:2"): 50, ("asleep", "a.py:2"): 50,
        ("dispatch", "a.py:3"): 200,
    }  # fmt: skip


def test_sleep_in_operators_that_wait_for_other_threads_is_none_of_pythons() -> None:
    assert _split([800], threads=2)["asleep", "a.py:1"] == 300
    assert _split([100], threads=2)["asleep", "a.py:1"] == 100


def test_a_wait_that_has_a_name_is_not_counted_twice() -> None:
    assert ("asleep", "a.py:1") not in _split([200], network=200.0)
    # Of 450 the network explains 200; of the rest only what samples saw is sure to be sleep.
    assert _split([450], network=200.0)["asleep", "a.py:1"] == 250


def test_steps_of_different_sizes_count_by_their_mean() -> None:
    kind = StepKind(varying=True)
    assert _split([0, 0, 600], kind=kind)["asleep", "a.py:1"] == 200


def test_what_a_hypervisor_took_is_no_sleep() -> None:
    assert ("asleep", "a.py:1") not in _split([300], stolen=0.3)


def test_where_nothing_counts_sleep_the_samples_stand() -> None:
    assert _split([])["asleep", "a.py:1"] == 300
