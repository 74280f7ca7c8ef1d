from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.measure.load import (
    Load,
    LoadReading,
    LoadWatch,
    SystemLoadCounters,
    load_between,
)

MS = 1_000_000


class Readings:
    """Counters that show one prepared reading after the other."""

    def __init__(self, processors: int, *readings: LoadReading) -> None:
        self.processors = processors
        self._readings = list(readings)

    def read(self) -> LoadReading:
        return self._readings.pop(0)


def test_an_idle_machine_disturbs_nothing() -> None:
    # 2 processors x 100 ms; this process used 190 ms of the 196 ms they were busy.
    load = LoadWatch(
        Readings(
            2,
            LoadReading(0, 0, 0, 0),
            LoadReading(100 * MS, 190 * MS, 1 * MS, 196 * MS),
        )
    ).so_far()
    assert load.others_s == pytest.approx(0.006)
    assert load.others_share == pytest.approx(0.03)
    # 1 ms of 190 + 1 ms
    assert load.waiting_share == pytest.approx(1 / 191)
    assert load.disturbance() is None


def test_other_programs_are_named() -> None:
    # Busy 200 ms of 2 x 100 ms, 150 ms of them here: 50 / 200 = 25 % went elsewhere.
    load = load_between(
        LoadReading(0, 0, 0, 0), LoadReading(100 * MS, 150 * MS, 50 * MS, 200 * MS), 2
    )
    assert load.others_share == pytest.approx(0.25)
    assert load.disturbance() == (
        "other programs took 25 % of the processor time while this was measured"
    )


def test_too_many_threads_are_named() -> None:
    # Four threads on 2 processors: all 200 ms used here, and as long again waited.
    load = load_between(
        LoadReading(0, 0, 0, 0), LoadReading(100 * MS, 200 * MS, 200 * MS, 200 * MS), 2
    )
    assert load.others_s == 0.0
    assert load.waiting_share == pytest.approx(0.5)
    assert "50 % of the time" in str(load.disturbance())
    assert "the 2 there are" in str(load.disturbance())


def test_what_is_not_counted_is_unknown() -> None:
    load = load_between(
        LoadReading(0, 0, None, None), LoadReading(100 * MS, 10 * MS, None, None), 2
    )
    assert (load.waiting_s, load.others_s) == (None, None)
    assert (load.waiting_share, load.others_share) == (None, None)
    assert load.disturbance() is None


def test_counters_that_fall_count_zero() -> None:
    # A thread ended and took 40 ms of waiting with it; busy ticks lag behind.
    load = load_between(
        LoadReading(0, 0, 50 * MS, 100 * MS), LoadReading(10 * MS, 15 * MS, 10 * MS, 110 * MS), 1
    )
    assert (load.waiting_s, load.others_s) == (0.0, 0.0)


def test_nothing_happened() -> None:
    load = Load(wall_s=0.0, cpu_s=0.0, waiting_s=0.0, others_s=0.0, processors=1)
    assert (load.waiting_share, load.others_share) == (0.0, 0.0)


def _write_proc(root: Path) -> None:
    (root / "self" / "task" / "1").mkdir(parents=True)
    (root / "self" / "task" / "2").mkdir()
    (root / "self" / "task" / "1" / "schedstat").write_text("1000 300 7\n")
    (root / "self" / "task" / "2" / "schedstat").write_text("1000 400 7\n")
    (root / "stat").write_text(
        "cpu  999 0 0 0 0 0 0 0 0 0\n"
        "cpu0 10 1 5 700 9 2 3 4 0 0\n"
        "cpu1 20 0 0 700 0 0 0 0 0 0\n"
        "intr 1 2 3\n"
    )


def test_reads_the_files_of_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0}, raising=False)
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    _write_proc(tmp_path)
    reading = SystemLoadCounters(tmp_path).read()
    assert reading.waiting_ns == 300 + 400
    # cpu0 alone: 10 + 1 + 5 + 2 + 3 + 4 = 25 ticks of 10 ms
    assert reading.busy_ns == 250 * MS


def test_missing_or_odd_files_are_unknown(tmp_path: Path) -> None:
    reading = SystemLoadCounters(tmp_path).read()
    assert (reading.waiting_ns, reading.busy_ns) == (None, None)
    (tmp_path / "self" / "task" / "1").mkdir(parents=True)
    (tmp_path / "self" / "task" / "1" / "schedstat").write_text("not supported\n")
    assert SystemLoadCounters(tmp_path).read().waiting_ns is None


def test_the_systems_own_counters_do_not_fall() -> None:
    watch = LoadWatch()
    sum(range(1000))
    load = watch.so_far()
    assert load.wall_s > 0
    assert load.processors >= 1
    assert load.cpu_s >= 0
