"""One diagnosis of a job's ranks: who is waited for, in what, and what is said of the rest."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

import gobrrr
from gobrrr.diagnosis.schema import Diagnosis, GroupRow, IdleRow
from gobrrr.diagnosis.verdict import split_of
from gobrrr.diagnosis.writing import encode
from gobrrr.jobs import records as job_records
from gobrrr.jobs.diagnosis import job_diagnosis
from gobrrr.jobs.job import Job
from gobrrr.jobs.records import diagnosis_of_others, merge
from gobrrr.live.rank_of_job import Moment, RankOfJob
from gobrrr.live.script import ScriptExit
from gobrrr.live.script_run import ScriptEnd
from gobrrr.ranks.job import ExposedPart, JobComparison
from gobrrr.ranks.job_clocks import Clock
from gobrrr.ranks.rank_record import Call, RankRecord
from gobrrr.reports.terminal import report_text

STEP_S = 0.100


def _rank(data: Path, **leaves: float) -> Diagnosis:
    """A step of 100 ms: these leaves (dots as underscores), 20 ms of kernels, the rest network."""
    diagnosis = gobrrr.load(data / "minimal.json")
    given = {name.replace("__", "."): value for name, value in leaves.items()}
    diagnosis.leaves = dict.fromkeys(diagnosis.leaves, 0.0) | given
    diagnosis.leaves["memory.network"] = STEP_S - sum(given.values())
    diagnosis.split = split_of(diagnosis.leaves)
    time = diagnosis.step.time_s
    time.median = time.mean = time.low = time.high = STEP_S
    diagnosis.idle = [
        IdleRow(cause="python", time_s=given.get("overhead.python", 0.0), source="train.py:7")
    ]
    diagnosis.phases = [_group("backward", None, given["compute.matrix.below"])]
    diagnosis.modules = [_group("net.2", "backward", given["compute.matrix.below"])]
    return diagnosis


def _group(name: str, phase: str | None, compute_s: float) -> GroupRow:
    return GroupRow(
        name=name, phase=phase, time_s=compute_s, compute_s=compute_s, memory_s=0.0,
        overhead_s=0.0, unmodelled_s=0.0, flops=None, bytes=None,
    )  # fmt: skip


def _compared(slowest: int | None, *, share: float = 0.5) -> JobComparison:
    return JobComparison(
        ranks=(0, 1),
        figures=(),
        waited_share=(share, 0.0),
        waits_for_ns=np.array([[0.0, 30e6], [0.0, 0.0]]),
        busy_ns=(40e6, 70e6),
        ahead_ns=(-30e6, 30e6),
        slowest=slowest,
        exposed=(ExposedPart("world", "backward", "net.2", 45e6, 15e6),),
        clock_residual_ns=2e4,
        clocks=(Clock(0, 0), Clock(0, 0)),
    )


def _job(found: dict[int, Diagnosis], compared: JobComparison, **options: object) -> Diagnosis:
    given = {"world_size": 2, "hosts": 1, "missing": {}, "joined_s": {}} | options
    return job_diagnosis(found, compared, **given)  # type: ignore[arg-type]


def test_the_rank_that_others_wait_for_is_shown_with_what_it_takes_longer_for(data: Path) -> None:
    found = {
        0: _rank(data, overhead__python=0.010, compute__matrix__below=0.020),
        1: _rank(data, overhead__python=0.042, compute__matrix__below=0.021),
    }
    diagnosis = _job(found, _compared(1))
    job = diagnosis.job
    assert job is not None
    assert (job.slowest, job.cause, job.place) == (1, "overhead.python", "train.py:7")
    assert job.excess_s == pytest.approx(0.032)
    assert job.lost_s == pytest.approx(0.032)
    assert job.busier_s == pytest.approx(0.030)
    assert diagnosis.source["rank"] == 1
    assert diagnosis.verdict.endswith(
        "The other ranks wait for rank 1: it spends 32.0 ms per step more than they do on "
        "Python, most of it at train.py:7. The job loses that time."
    )
    first, second = diagnosis.ranks or []
    # Half of the 70 ms that rank 0 spends in collectives it waits for the other.
    assert first.leaves["memory.network_wait"] == pytest.approx(0.035)
    assert first.leaves["memory.network"] == pytest.approx(0.035)
    assert (first.wait_s, second.wait_s) == (pytest.approx(0.035), 0.0)
    assert job.mean is not None
    # (70 + 37) / 2 ms of communication.
    assert job.mean.memory_s == pytest.approx(0.0535)
    text = report_text(diagnosis)
    assert "Parts of the step by rank" in text
    assert "2 of 2 ranks on 1 host" in text


def test_the_job_loses_what_goes_with_the_longest_part_too(data: Path) -> None:
    """Ops that one rank has besides are kernels, their dispatch, and the Python around them."""
    found = {
        0: _rank(
            data, overhead__python=0.010, overhead__dispatch=0.002, compute__matrix__below=0.02
        ),
        1: _rank(
            data, overhead__python=0.042, overhead__dispatch=0.007, compute__matrix__below=0.02
        ),
    }
    longer = (("overhead.python", 32e6), ("overhead.dispatch", 9e6))
    compared = replace(_compared(1), longer=longer, runs_longer_ns=(-37e6, 37e6))
    job = _job(found, compared).job
    assert job is not None
    assert (job.excess_s, job.lost_s) == (pytest.approx(0.032), pytest.approx(0.037))
    assert "The job loses that time" not in job.sentence
    assert "the job loses 37.0 ms per step" in job.sentence


def test_where_no_verdict_is_drawn_of_the_rank_only_the_job_is_told(data: Path) -> None:
    found = {
        0: _rank(data, compute__matrix__below=0.020),
        1: _rank(data, overhead__python=0.040, compute__matrix__below=0.020),
    }
    found[1].regime = None
    job = _job(found, _compared(1))
    assert job.job is not None
    assert job.job.sentence
    assert job.verdict == job.job.sentence


@pytest.mark.parametrize(
    ("part", "runs_longer_ns", "lost_s"),
    [
        # With the dispatch of its ops, and the Python around them.
        ("kernels|optimizer", 50e6, 0.050),
        # A thread that waits for a processor runs less than its part lasts.
        ("kernels|forward", 20e6, 0.032),
        ("kernels|optimizer", -1e6, 0.032),
        ("overhead.data_loading", 50e6, 0.032),
    ],
)
def test_the_loss_is_the_larger_of_what_the_part_and_the_processor_tell(
    data: Path, part: str, runs_longer_ns: float, lost_s: float
) -> None:
    found = {rank: _rank(data, compute__matrix__below=0.020) for rank in (0, 1)}
    compared = replace(
        _compared(1), longer=((part, 32e6),), runs_longer_ns=(-runs_longer_ns, runs_longer_ns)
    )
    job = _job(found, compared).job
    assert job is not None
    assert job.cause == part.partition("|")[0]
    assert (job.excess_s, job.lost_s) == (pytest.approx(0.032), pytest.approx(lost_s))


@pytest.mark.parametrize(
    ("part", "runs_longer_ns", "queued_ns", "ahead_ns", "lost_s"),
    [
        # Of 32 ms 10 are the turns of other ranks on the same processors.
        ("kernels|forward", 20e6, 15e6, 22e6, 0.022),
        ("kernels|forward", 26e6, 15e6, 22e6, 0.026),
        # No more than the thread waits in the whole step, and nothing where it does not.
        ("kernels|forward", 20e6, 6e6, 22e6, 0.026),
        ("kernels|forward", 20e6, 0.0, 22e6, 0.032),
        # It is busy longer in other parts too.
        ("kernels|forward", 20e6, 15e6, 40e6, 0.032),
        # Loaded in the thread, and waited for where workers do it.
        ("overhead.data_loading", 30e6, 15e6, 22e6, 0.030),
        ("overhead.data_loading", 0.0, 1e6, 29e6, 0.031),
        ("overhead.data_loading", 50e6, 15e6, 22e6, 0.032),
    ],
)
def test_what_a_part_waits_for_a_processor_is_not_lost(
    data: Path, part: str, runs_longer_ns: float, queued_ns: float, ahead_ns: float, lost_s: float
) -> None:
    found = {rank: _rank(data, compute__matrix__below=0.020) for rank in (0, 1)}
    compared = replace(
        _compared(1),
        longer=((part, 32e6),),
        runs_longer_ns=(-runs_longer_ns, runs_longer_ns),
        queued_ns=(99e6, queued_ns),
        ahead_ns=(-ahead_ns, ahead_ns),
    )
    job = _job(found, compared).job
    assert job is not None
    assert (job.excess_s, job.lost_s) == (pytest.approx(0.032), pytest.approx(lost_s))
    told = f"Some of it is a wait for a processor: the job loses {lost_s * 1e3:.1f} ms per step."
    assert (told in job.sentence) == (lost_s < 0.0304)


@pytest.mark.parametrize(
    ("asleep_s", "idle_in_it", "cause"),
    [
        # Samples of a thread that waits for a processor too see less than half of its sleep, or
        # nothing.
        (0.014, True, "overhead.asleep"),
        (0.0, True, "overhead.asleep"),
        # They see more than half.
        (0.018, False, "overhead.asleep"),
        # It runs most of it.
        (0.014, False, "overhead.python"),
        (0.0, False, "overhead.python"),
    ],
)
def test_python_that_the_thread_does_not_run_is_sleep(
    data: Path, asleep_s: float, idle_in_it: bool, cause: str
) -> None:
    found = {
        0: _rank(data, compute__matrix__below=0.020),
        1: _rank(
            data,
            compute__matrix__below=0.020,
            overhead__asleep=asleep_s,
            overhead__python=0.030 - asleep_s,
        ),
    }
    compared = replace(_compared(1), longer=(("overhead.python", 30e6),), idle_in_it=idle_in_it)
    job = _job(found, compared).job
    assert job is not None
    assert job.cause == cause
    assert job.lost_s == pytest.approx(0.030)
    # Where it was, be it asleep or not.
    assert job.place == "train.py:7"


def test_pauses_are_told_by_their_mean(data: Path) -> None:
    """The median step has none of a collector that runs in every third."""
    found = {
        0: _rank(data, overhead__python=0.010, compute__matrix__below=0.020),
        1: _rank(data, overhead__python=0.010, compute__matrix__below=0.021),
    }
    compared = replace(_compared(None), pauses_ns=(0.0, 20e6))
    job = _job(found, compared).job
    assert job is not None
    assert (job.slowest, job.cause) == (1, "overhead.garbage_collection")
    assert job.lost_s == pytest.approx(0.020)


def test_a_rank_that_only_its_pauses_name_is_slow_in_them(data: Path) -> None:
    """Its kernels happen to take 25 ms longer, which is no more than chance."""
    found = {
        0: _rank(data, overhead__python=0.010, compute__matrix__below=0.020),
        1: _rank(data, overhead__python=0.010, compute__matrix__below=0.045),
    }
    job = _job(found, replace(_compared(None), pauses_ns=(0.0, 20e6))).job
    assert job is not None
    assert (job.slowest, job.cause) == (1, "overhead.garbage_collection")
    assert job.lost_s == pytest.approx(0.020)


def test_pauses_of_profiled_steps_are_told_by_the_mean_of_timed_ones(data: Path) -> None:
    found = {rank: _rank(data, compute__matrix__below=0.020) for rank in (0, 1)}
    longer = (("overhead.garbage_collection", 45e6),)
    job = _job(found, replace(_compared(1), longer=longer, pauses_ns=(1e6, 13e6))).job
    assert job is not None
    assert (job.cause, job.excess_s) == ("overhead.garbage_collection", pytest.approx(0.012))
    assert job.lost_s == pytest.approx(0.012)
    # Of a rank that pauses no longer in timed steps, the profiled ones are all there is.
    job = _job(found, replace(_compared(1), longer=longer, pauses_ns=(0.0, 0.0))).job
    assert job is not None
    assert job.lost_s == pytest.approx(0.045)


def test_kernels_are_named_with_their_phase_and_module(data: Path) -> None:
    found = {
        0: _rank(data, overhead__python=0.010, compute__matrix__below=0.020),
        1: _rank(data, overhead__python=0.010, compute__matrix__below=0.050),
    }
    job = _job(found, _compared(1)).job
    assert job is not None
    assert (job.cause, job.phase, job.place) == ("kernels", "backward", "net.2")
    assert "it spends 30.0 ms per step more than they do on kernels of backward" in job.sentence


def test_nobody_is_named_where_nobody_stands_out(data: Path) -> None:
    found = {
        rank: _rank(data, overhead__python=0.010, compute__matrix__below=0.020) for rank in (0, 1)
    }
    diagnosis = _job(found, _compared(None))
    assert diagnosis.job is not None
    assert (diagnosis.job.slowest, diagnosis.job.sentence) == (None, "")
    assert "wait for rank" not in diagnosis.verdict
    assert diagnosis.source["rank"] == 1  # busy longest
    assert diagnosis.notices[0].endswith("is about rank 1, which is busy longest.")


def test_pauses_of_the_collector_are_seen_in_the_mean(data: Path) -> None:
    found = {
        0: _rank(data, compute__matrix__below=0.020),
        1: _rank(data, compute__matrix__below=0.020, overhead__garbage_collection=0.008),
    }
    job = _job(found, _compared(None)).job
    assert job is not None
    assert (job.slowest, job.cause) == (1, "overhead.garbage_collection")


def test_a_rank_that_started_late_is_named_beside_the_steps(data: Path) -> None:
    found = {rank: _rank(data, compute__matrix__below=0.020) for rank in (0, 1)}
    job = _job(found, _compared(None), joined_s={0: 100.0, 1: 104.0}).job
    assert job is not None
    assert (job.late_start, job.late_start_s) == (1, 4.0)
    together = _job(found, _compared(None), joined_s={0: 100.0, 1: 100.4}).job
    assert together is not None
    assert together.late_start is None


def test_a_clock_that_is_ahead_is_no_late_start(data: Path) -> None:
    def job(clock: Clock, second_s: float) -> Diagnosis:
        found = {rank: _rank(data, compute__matrix__below=0.020) for rank in (0, 1)}
        compared = replace(_compared(None), clocks=(Clock(0, 0), clock))
        return _job(found, compared, hosts=2, joined_s={0: 100.0, 1: second_s})

    ahead = Clock(0, 3_000_000_000)
    together = job(ahead, 103.0)
    assert together.job is not None
    assert (together.job.late_start, together.job.clocks_apart) == (None, [])
    late = job(ahead, 107.0).job
    assert late is not None
    assert (late.late_start, late.late_start_s) == (1, pytest.approx(4.0))
    # The other one is the late one, although its clock shows less.
    first = job(ahead, 99.0).job
    assert first is not None
    assert (first.late_start, first.late_start_s) == (0, pytest.approx(4.0))
    unknown = job(Clock(1, 0), 107.0)
    assert unknown.job is not None
    assert (unknown.job.late_start, unknown.job.clocks_apart) == (None, [1])
    assert (
        "Rank 1 is on another host, and no collective that both measured tells how far the clocks "
        "are apart from that of the first rank: which of them comes later, to a collective or at "
        "the start, is not known."
    ) in unknown.notices
    assert "clocks not compared with that of the first rank: 1" in " ".join(
        report_text(unknown).split()
    )


def test_ranks_on_one_clock_are_compared_where_others_cannot_be(data: Path) -> None:
    found = {rank: _rank(data, compute__matrix__below=0.020) for rank in range(4)}
    compared = replace(
        _compared(None),
        ranks=(0, 1, 2, 3),
        waited_share=(0.5, 0.0, None, None),
        waits_for_ns=np.zeros((4, 4)),
        busy_ns=(40e6,) * 4,
        ahead_ns=(0.0,) * 4,
        clocks=(Clock(0, 0), Clock(0, 0), Clock(1, 0), Clock(1, 0)),
    )
    joined_s = {0: 100.0, 1: 100.1, 2: 5_000.0, 3: 5_002.0}
    diagnosis = _job(found, compared, world_size=4, hosts=2, joined_s=joined_s)
    job = diagnosis.job
    assert job is not None
    assert (job.late_start, job.late_start_s, job.clocks_apart) == (3, 2.0, [2, 3])
    assert (
        "Rank 3 created its process group 2.00 s after those whose clocks can be compared with "
        "its: that time is outside the steps."
    ) in diagnosis.notices
    rows = diagnosis.ranks or []
    assert [row.wait_s is None for row in rows] == [False, False, True, True]
    assert rows[3].why is None


def _record(
    rank: int,
    diagnosis: Diagnosis | None,
    problem: str = "",
    *,
    alone: str = "",
    ended: str = "",
) -> bytes:
    steps = [(i * 100, (i + 1) * 100) for i in range(4)]
    calls = [
        Call(low + 40, low + 90, 0, "backward", "net.2", 50.0, 50.0, [(low + 40, low + 90)])
        for low, _ in steps
    ]
    record = RankRecord(
        rank, "host", steps, [50.0] * 4, [("all_reduce", 8, "float32", 2, "world")], calls,
        encode(diagnosis).decode() if diagnosis else "", problem, alone=alone,
        ended=ended,
    )  # fmt: skip
    return msgspec.json.encode(record)


def test_ranks_without_a_diagnosis_are_named_with_the_reason(data: Path) -> None:
    own = _rank(data, compute__matrix__below=0.020)
    said = {0: _record(0, own), 2: _record(2, None, "the script ended during warm-up.")}
    merged = merge(said, {1: "rank 1 did not reach a step within 60 s"}, 3)
    assert merged is not None
    assert merged.job is not None
    assert merged.job.missing == {
        "1": "rank 1 did not reach a step within 60 s",
        "2": "rank 2 has no diagnosis (the script ended during warm-up)",
    }
    assert (
        "Not in the report: ranks 1, 2 of 3: rank 1 did not reach a step within 60 s; rank 2 "
        "has no diagnosis (the script ended during warm-up)."
    ) in merged.notices
    assert merge({}, {0: "gone"}, 1) is None
    told = merge({0: _record(0, own), 1: b'{"rank": "one"}'}, {}, 2)
    assert told is not None and told.job is not None
    assert told.job.missing == {"1": "what came as the diagnosis of rank 1 is none"}


def test_of_ranks_that_took_other_steps_nobody_is_named(data: Path) -> None:
    own = _rank(data, compute__matrix__below=0.020)
    paused = _rank(data, compute__matrix__below=0.020, overhead__garbage_collection=0.008)
    together = merge({0: _record(0, own), 1: _record(1, paused)}, {}, 2)
    assert together is not None
    assert together.job is not None
    assert (together.job.slowest, together.job.same_steps) == (1, True)
    why = "rank 1 did not reach the same step within 60 s"
    merged = merge({0: _record(0, own, alone=why), 1: _record(1, paused)}, {}, 2)
    assert merged is not None
    assert merged.job is not None
    assert (merged.job.slowest, merged.job.sentence, merged.job.same_steps) == (None, "", False)
    assert [(row.wait_s, row.why) for row in merged.ranks or []] == [(None, None)] * 2
    assert [row.wait_s for row in merged.exposed] == [None]
    assert (
        f"Rank 0 was measured on its own ({why}): how long ranks wait for each other, and for "
        "which of them, is not known."
    ) in merged.notices
    assert "which measured different steps" in " ".join(report_text(merged).split())
    both = merge({i: _record(i, own, alone=why) for i in range(2)}, {}, 2)
    assert both is not None
    assert any(
        notice.startswith("Ranks 0, 1 were measured on their own (rank 1 did not reach")
        for notice in both.notices
    )


class _Rank:
    """What a rank of a job has and does, without the job."""

    def __init__(self, alone: str = "") -> None:
        self.job = SimpleNamespace(rank=1, world_size=2, alone=alone, unknown_hosts="", lost="")
        self.perfetto = None
        self.joined = Moment(monotonic_s=12.0, wall_s=1_700_000_012.0)
        self.told: list[RankRecord] = []
        self.exit: ScriptExit | None = None

    def tell(self, record: RankRecord) -> None:
        self.told.append(record)


@pytest.mark.parametrize(("on_device", "joined_s"), [(False, 12.0), (True, 1_700_000_012.0)])
def test_a_rank_tells_when_it_joined_by_the_clock_of_its_steps(
    data: Path, monkeypatch: pytest.MonkeyPatch, on_device: bool, joined_s: float
) -> None:
    monkeypatch.setattr(job_records, "record_of", lambda *_, **__: RankRecord(1, "host"))
    measured: Any = SimpleNamespace(device_timeline=object() if on_device else None)
    for why in ("", "rank 0 has ended"):
        rank: Any = _Rank(why)
        own = _rank(data, compute__matrix__below=0.020)
        told = job_records.diagnosis_of_job(rank, own, None, measured)
        assert [(each.joined_s, each.alone) for each in rank.told] == [(joined_s, why)]
        notice = "Rank 1 was measured on its own: rank 0 has ended."
        assert (notice in told.notices) == bool(why)


def test_a_trace_that_cannot_be_written_loses_nobody_the_diagnosis(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RankRecord(0, "host", steps=[(0, 100)])
    monkeypatch.setattr(job_records, "record_of", lambda *_, **__: record)
    rank: Any = _Rank()
    rank.job, rank.perfetto = None, tmp_path / "gone" / "trace.json"
    measured: Any = SimpleNamespace(device_timeline=None)
    own = _rank(data, compute__matrix__below=0.020)
    told = job_records.diagnosis_of_job(rank, own, None, measured)
    assert told.notices[0].startswith("No trace of the job was written: ")
    assert not told.notices[0].endswith("..")


def test_kernels_of_a_rank_are_compared_without_its_communication(data: Path) -> None:
    """On a device the rows of modules hold collectives, which take the others as long."""
    found = {i: _rank(data, compute__matrix__below=0.060) for i in range(2)}
    for each, compute_s, network_s in ((found[0], 0.050, 0.012), (found[1], 0.060, 0.002)):
        for row in (*each.phases, *each.modules):
            row.compute_s, row.memory_s = compute_s, network_s
    told = {0: {"backward|net.2": 12e6}, 1: {"backward|net.2": 2e6}}
    job = _job(found, _compared(1), communication=told).job
    assert job is not None
    assert (job.cause, job.phase, job.place) == ("kernels", "backward", "net.2")
    assert job.excess_s == pytest.approx(0.010)


@pytest.mark.parametrize(
    ("exit_", "how"),
    [
        (None, ""),
        (ScriptExit(0), ""),
        (
            ScriptExit(3, raised=True, error=RuntimeError("boom")),
            "its script ended with RuntimeError: boom",
        ),
    ],
)
def test_a_rank_whose_script_failed_tells_so_with_what_was_measured(
    data: Path, monkeypatch: pytest.MonkeyPatch, exit_: ScriptExit | None, how: str
) -> None:
    monkeypatch.setattr(job_records, "record_of", lambda *_, **__: RankRecord(1, "host"))
    rank: Any = _Rank()
    rank.exit = exit_
    measured: Any = SimpleNamespace(device_timeline=None)
    job_records.diagnosis_of_job(rank, _rank(data, compute__matrix__below=0.02), None, measured)
    assert [each.ended for each in rank.told] == [how]


def test_ranks_that_failed_are_named_with_the_reason(data: Path) -> None:
    own = _rank(data, compute__matrix__below=0.020)
    stopped = "its script was ended by SIGTERM"
    raised = "its script ended with RuntimeError: boom"
    how = {0: stopped, 1: raised, 2: stopped}
    merged = merge({rank: _record(rank, own, ended=how[rank]) for rank in range(3)}, {}, 3)
    assert merged is not None
    assert merged.job is not None
    assert merged.job.missing == {}
    assert merged.job.ended == {str(rank): why for rank, why in how.items()}
    assert f"Ended before all was measured: ranks 0, 2 ({stopped}); rank 1 ({raised})." in (
        merged.notices
    )


def _ended(problem: str | None, code: int = 0, **how: Any) -> ScriptEnd:
    return ScriptEnd(ScriptExit(code, **how), problem)


def _two(folder: Path) -> list[RankOfJob]:
    known = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return [RankOfJob(Job({"RANK": rank} | known, folder=folder)) for rank in "01"]


def _told_by(rank: RankOfJob, data: Path) -> None:
    assert rank.job is not None
    rank.job.publish(_record(1, _rank(data, compute__matrix__below=0.02)))


def test_the_first_rank_tells_of_the_others_if_it_has_no_diagnosis(
    data: Path, tmp_path: Path
) -> None:
    first, second = _two(tmp_path)
    _told_by(second, data)
    shown: list[tuple[Diagnosis, bool]] = []
    problem = "the script ended during warm-up: too few steps to diagnose. About 40 are enough."
    ended = _ended(problem)
    first.script_is_over(ended.exit)
    found = diagnosis_of_others(first, ended, lambda *given: shown.append(given))
    assert found is not None
    assert shown == [(found, True)]
    assert found.job is not None
    assert found.job.missing == {"0": f"rank 0 has no diagnosis ({problem[:-1]})"}
    assert found.source["rank"] == 1
    # One report is enough.
    assert not second.reports
    # Whoever still runs does not wait for this rank.
    assert second.job is not None
    second.job.agree("timing", {"step_s": 0.1})
    assert second.job.alone == "rank 0 has ended (its script has finished)"


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (
            _ended("too few steps", 3, raised=True, error=RuntimeError("boom")),
            "its script ended with RuntimeError: boom",
        ),
        (_ended(None, 130, interrupted=True), "its script was interrupted"),
        (_ended(None, 7), "its script ended with exit code 7"),
    ],
)
def test_a_first_rank_that_failed_waits_for_nobody(
    data: Path, tmp_path: Path, ended: ScriptEnd, why: str
) -> None:
    first, second = _two(tmp_path)
    began = time.monotonic()
    assert diagnosis_of_others(first, ended, lambda *_: None) is None
    assert time.monotonic() - began < 20
    # The next rank shows its own, once the first is gone.
    assert not second.reports
    assert first.job is not None
    first.job.leave(why)
    assert second.reports
    _told_by(second, data)
    said, _ = first.job.results()
    merged = merge(said, {}, 2)
    assert merged is not None
    assert merged.job is not None
    assert merged.job.missing == {"0": f"rank 0 has no diagnosis ({why})"}


def test_a_rank_beside_the_first_tells_why_it_has_none(tmp_path: Path) -> None:
    first, second = _two(tmp_path)
    shown: list[Diagnosis] = []
    ended = _ended("no step could be profiled")
    assert diagnosis_of_others(second, ended, lambda found, _: shown.append(found)) is None
    assert first.job is not None
    said, _ = first.job.results(0.0)
    assert msgspec.json.decode(said[1])["problem"] == "no step could be profiled"
    # Nobody has one.
    assert diagnosis_of_others(first, ended, lambda found, _: shown.append(found)) is None
    assert shown == []


def test_a_merge_that_fails_leaves_the_exit_code_to_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("gobrrr.jobs.records.merge", fail)
    first, second = _two(tmp_path)
    second.tell(RankRecord(1, "", problem="none"))
    assert diagnosis_of_others(first, _ended("none"), lambda *_: None) is None
    assert "ZeroDivisionError: a defect" in capsys.readouterr().err


def test_ranks_that_run_other_models_are_told_so(data: Path) -> None:
    def notices(*names: str) -> list[str]:
        ranks = [_rank(data, compute__matrix__below=0.02) for _ in range(2)]
        for rank, name in zip(ranks, names):
            rank.ops = gobrrr.load(data / "training.json").ops
            for row in rank.ops:
                row.name = name or row.name
        return [notice for notice in _job_of(ranks).notices if "same ops" in notice]

    assert notices("", "") == []
    (told,) = notices("", "aten::conv2d")
    assert "rank 1 runs another model, or another stage of it, than rank 0 (100 %" in told


def _job_of(ranks: list[Diagnosis]) -> Diagnosis:
    return job_diagnosis(
        dict(enumerate(ranks)), _compared(None), world_size=2, hosts=1, missing={}, joined_s={}
    )
