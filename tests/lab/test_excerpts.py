"""Two lanes of a recording: what is read off them, and where the shipped ones are from."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.lab.excerpts import Excerpt, excerpt_of, shipped_excerpt
from gobrrr.lab.run_ahead import EXPERIMENT, LARGE, RECORDED, SMALL
from gobrrr.lab.setting import Setting
from gobrrr.recordings.traces import read_trace

TRACES = Path(__file__).parents[1] / "data" / "traces"


def lanes(launches: list[tuple[int, int]], kernels: list[tuple[int, int]]) -> Excerpt:
    return Excerpt(
        what="", source="", device="",
        launch_start_ns=[s for s, _ in launches], launch_end_ns=[e for _, e in launches],
        kernel_start_ns=[s for s, _ in kernels], kernel_end_ns=[e for _, e in kernels],
    )  # fmt: skip


def test_a_queue_grows_while_a_long_kernel_runs() -> None:
    # The first kernel runs from 2 to 100; two more are launched meanwhile and wait.
    found = lanes([(0, 1), (3, 4), (6, 7)], [(2, 100), (100, 150), (150, 200)])
    # At 1 the first has not started; at 4 one waits; at 7 two do.
    assert found.queued() == [1, 1, 2]
    assert found.waits_ns() == [1, 96, 143]


def test_nothing_waits_where_kernels_start_before_their_call_returns() -> None:
    found = lanes([(0, 10), (20, 30)], [(5, 8), (25, 28)])
    assert found.queued() == [0, 0]
    assert found.waits_ns() == [0, 0]


def test_active_time_counts_what_overlaps_once() -> None:
    # Of 100 ns, 0 to 40 is covered (two kernels overlap) and 90 to 100.
    found = lanes([(0, 1)] * 3, [(0, 30), (20, 40), (90, 100)])
    assert found.active_fractions(1) == [0.5]
    assert found.active_fractions(2) == [pytest.approx(0.8), pytest.approx(0.2)]


def test_the_small_recording_is_what_the_trace_says() -> None:
    name = RECORDED[SMALL]
    shipped = shipped_excerpt(name)
    read = excerpt_of(read_trace(TRACES / f"{name}.json.gz"), shipped.what, shipped.source)
    assert read == shipped


def test_recordings_show_both_sides() -> None:
    found = EXPERIMENT.run(Setting())
    by_size = {row["size"]: row for row in found.rows}
    assert by_size[LARGE]["active"] > 0.9 > 0.1 > by_size[SMALL]["active"]
    assert by_size[LARGE]["device"] == by_size[SMALL]["device"] == "NVIDIA H100 80GB HBM3"
    ahead, waiting = found.answers["ahead"].measured, found.answers["waiting"].measured
    assert ahead is not None and waiting is not None
    assert ahead.low > 10 > waiting.high
