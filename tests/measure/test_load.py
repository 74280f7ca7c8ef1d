from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gobrrr.measure.load import (
    Load,
    LoadReading,
    LoadWatch,
    SystemLoadCounters,
    family_ns,
    keep_family_of,
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
    # 50 ms of 150 + 50 ms.
    assert load.disturbance() == (
        "other programs took 25 % of the processor time while this was measured; its threads "
        "spent 25 % of their runnable time waiting"
    )
    assert not load.taken_away


def test_programs_on_processors_that_nobody_here_wanted_disturb_nothing() -> None:
    # One thread on its own processor, another program on the second.
    load = load_between(
        LoadReading(0, 0, 0, 0), LoadReading(100 * MS, 99 * MS, 1 * MS, 198 * MS), 2
    )
    assert load.others_share == pytest.approx(0.495)
    assert load.disturbance() is None


def test_what_this_program_has_started_is_no_other_program() -> None:
    # 60 ms here, 120 ms in its workers, which leave its own thread waiting.
    load = load_between(
        LoadReading(0, 0, 0, 0, 40 * MS),
        LoadReading(100 * MS, 60 * MS, 60 * MS, 182 * MS, 160 * MS),
        2,
    )
    assert load.others_s == pytest.approx(0.002)
    assert "more of them than" in str(load.disturbance())


def test_a_machine_that_was_taken_away() -> None:
    load = load_between(
        LoadReading(0, 0, 0, 0), LoadReading(1000 * MS, 50 * MS, 900 * MS, 1000 * MS), 1
    )
    assert load.taken_away


def test_a_machine_that_a_hypervisor_took_away() -> None:
    # No thread ever waited: a run queue does not count what is stolen. 800 of 1000 ms were.
    start, end = LoadReading(0, 0, 0, 0), LoadReading(1000 * MS, 200 * MS, 0, 1000 * MS)
    assert load_between(start, replace(end, stolen_ns=800 * MS), 1).taken_away
    assert not load_between(start, replace(end, stolen_ns=700 * MS), 1).taken_away
    # Of the 40 % that were left its threads had half: 20 % of what they wanted.
    both = replace(end, stolen_ns=600 * MS, waiting_ns=200 * MS)
    assert load_between(start, both, 1).taken_away
    assert not load_between(start, replace(both, stolen_ns=0), 1).taken_away


def test_a_few_ticks_are_no_share_of_what_a_hypervisor_took() -> None:
    # A block of 40 ms, of which the counter shows four ticks, all of them stolen.
    load = load_between(
        LoadReading(0, 0, 0, 0), LoadReading(40 * MS, 40 * MS, 0, 40 * MS, stolen_ns=40 * MS), 1
    )
    assert load.stolen_share == 1.0
    assert not load.taken_away


def test_the_time_of_children_is_found() -> None:
    before = family_ns()
    child = subprocess.Popen(
        [sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass\ninput()"],
        stdin=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 60
        while family_ns() - before < 100 * MS:
            assert time.monotonic() < deadline, "the child's processor time was never seen"
            time.sleep(0.05)
    finally:
        child.communicate(b"\n")
    # What it used stays counted after its end.
    assert family_ns() - before >= 100 * MS


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux tells of processes")
def test_what_workers_of_a_killed_child_used_stays_counted() -> None:
    work = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); time.sleep(60)"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    child = subprocess.Popen(
        [sys.executable, "-c", starts], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        before = family_ns()
        assert child.stdout is not None
        child.stdout.readline()
        keep_family_of(child.pid)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    # Its child's time, which nobody has waited for.
    assert family_ns() - before >= 200 * MS


def test_too_many_threads_are_named() -> None:
    # Four threads on 2 processors: all 200 ms used here, and as long again waited.
    load = load_between(
        LoadReading(0, 0, 0, 0), LoadReading(100 * MS, 200 * MS, 200 * MS, 200 * MS), 2
    )
    assert load.others_s == 0.0
    assert load.waiting_share == pytest.approx(0.5)
    assert "50 % of their runnable time" in str(load.disturbance())
    assert "the 2 processors" in str(load.disturbance())


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
    assert reading.stolen_ns == 40 * MS


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


def test_what_a_hypervisor_took_is_known_of_the_time_with_work() -> None:
    # Busy 160 of 2 x 100 ms, 40 of them taken away.
    load = load_between(
        LoadReading(0, 0, 0, 10 * MS, stolen_ns=5 * MS),
        LoadReading(100 * MS, 100 * MS, 0, 170 * MS, stolen_ns=45 * MS),
        2,
    )
    assert load.stolen_share == pytest.approx(0.25)


def test_what_a_hypervisor_took_is_told_though_no_thread_waited() -> None:
    load = Load(1.0, 1.5, 0.0, 0.5, processors=2, stolen_s=0.5, busy_s=2.0)
    assert load.disturbance() == (
        "a hypervisor took the processors away for 25 % of the time in which they had work"
    )
    # With other programs beside it, each has its own share: of 1 s elsewhere half was stolen.
    load = Load(1.0, 1.0, 0.5, 1.0, processors=2, stolen_s=0.5, busy_s=2.0)
    said = str(load.disturbance())
    assert "a hypervisor took the processors away for 25 %" in said
    assert "other programs took 25 % of the processor time" in said


def test_threads_that_wait_for_one_another_beside_a_busy_program_were_taken_away() -> None:
    # Measured: two threads at barriers, which have both processors at once hardly ever.
    beside = Load(wall_s=1.0, cpu_s=0.96, waiting_s=0.972, others_s=1.04, processors=2)
    assert beside.waiting_share == pytest.approx(0.503, abs=1e-3)
    assert beside.others_share == pytest.approx(0.52)
    assert beside.taken_away
    # They wait as long for each other where nobody else is there: that is the program's own.
    alone = Load(wall_s=1.0, cpu_s=0.96, waiting_s=0.972, others_s=0.1, processors=2)
    assert not alone.taken_away


def test_a_fair_share_of_the_machine_is_not_taken_away() -> None:
    # One thread of three on a processor waits two thirds of the time.
    one = Load(wall_s=1.0, cpu_s=0.33, waiting_s=0.67, others_s=0.67, processors=1)
    assert one.waiting_share == pytest.approx(0.67)
    assert not one.taken_away
    # Two threads of three on two processors, one third each.
    two = Load(wall_s=1.0, cpu_s=1.33, waiting_s=0.67, others_s=0.67, processors=2)
    assert not two.taken_away


def test_how_bad_a_load_is_can_be_compared() -> None:
    waited = Load(1.0, 0.5, 0.5, 0.6, processors=1)
    stolen = Load(1.0, 0.2, 0.0, 0.8, processors=1, stolen_s=0.8, busy_s=1.0)
    uncounted = Load(1.0, 0.3, None, 0.7, processors=1)
    assert waited.severity == pytest.approx(0.5)
    assert stolen.severity == pytest.approx(0.8)
    assert uncounted.severity == pytest.approx(0.7)


def test_a_thread_that_ended_keeps_what_it_had_waited(tmp_path: Path) -> None:
    _write_proc(tmp_path)
    counters = SystemLoadCounters(tmp_path)
    assert counters.read().waiting_ns == 300 + 400
    first, second = (tmp_path / "self" / "task" / number for number in "12")
    (first / "schedstat").write_text("1000 350 7\n")
    (second / "schedstat").unlink()
    assert counters.read().waiting_ns == 350 + 400
    # Its number comes back with a new thread.
    (second / "schedstat").write_text("1000 30 7\n")
    assert counters.read().waiting_ns == 350 + 400 + 30
