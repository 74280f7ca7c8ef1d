"""One rank of a host measures it, and the others wait for that and for nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gobrrr.jobs.job import Job
from gobrrr.jobs.rank_in_environment import rank_of_job
from gobrrr.live.rank_of_job import RankOfJob, _queued_s

# Far below the limits of gobrrr, and far above what a busy machine takes.
AT_ONCE_S = 20.0


def _ranks(folder: Path, count: int = 2, **environment: str) -> list[RankOfJob]:
    known = environment or {"LOCAL_WORLD_SIZE": str(count)}
    return [
        RankOfJob(
            Job({"RANK": str(rank), "WORLD_SIZE": str(count)} | known, folder=folder),
        )
        for rank in range(count)
    ]


def _measure(rank: RankOfJob, order: list[int], work: Callable[[], None]) -> threading.Thread:
    def run() -> None:
        assert rank.job is not None
        try:
            with rank.machine_to_itself():
                order.append(rank.job.rank)
                if rank.job.here.first:
                    work()
                    order.append(rank.job.rank)
        except ZeroDivisionError:
            order.append(-1)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def _all(ranks: list[RankOfJob], work: Callable[[], None]) -> list[int]:
    order: list[int] = []
    # The first comes last.
    threads = [_measure(rank, order, work) for rank in reversed(ranks)]
    for thread in threads:
        thread.join(AT_ONCE_S)
        assert not thread.is_alive()
    return order


def test_the_first_rank_has_the_machine_to_itself(tmp_path: Path) -> None:
    order = _all(_ranks(tmp_path, 3), lambda: time.sleep(0.3))
    assert order[:2] == [0, 0]
    assert sorted(order[2:]) == [1, 2]


def test_where_measuring_fails_the_others_go_on(tmp_path: Path) -> None:
    ranks = _ranks(tmp_path)
    order = _all(ranks, lambda: 1 // 0)
    assert sorted(order) == [-1, 0, 1]
    # And they do not wait for it in their steps either.
    other = ranks[1].job
    assert other is not None
    other.agree("warm-up", {"step_s": 0.1})
    assert other.alone == "rank 0 has ended (gobrrr failed before its script began)"


def test_a_first_rank_that_dies_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = _ranks(tmp_path)
    monkeypatch.setattr("gobrrr.jobs.ranks_of_host._lives", lambda pid: False)
    order: list[int] = []
    thread = _measure(second, order, lambda: None)
    thread.join(AT_ONCE_S)
    assert order == [1]


def test_ranks_of_an_unknown_number_of_hosts_wait_for_who_came_first_here(tmp_path: Path) -> None:
    # LOCAL_RANK alone does not say whether that rank 0 sees this folder.
    ranks = _ranks(tmp_path, 2, LOCAL_RANK="1")
    assert _all(ranks, lambda: time.sleep(0.3)) == [0, 0, 1]


def test_a_process_on_its_own_waits_for_nobody() -> None:
    rank = rank_of_job({}, "train.py")
    with rank.machine_to_itself():
        pass
    assert rank.job is None
    assert rank.reports


def test_waits_for_a_processor_make_no_start_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven seconds in a queue, two of them while gobrrr made it wait: those count once."""
    dist = pytest.importorskip("torch.distributed")
    monkeypatch.setattr(dist, "init_process_group", lambda: None)
    (rank,) = _ranks(tmp_path, 1)
    queued = iter((1.0, 3.0, 7.0))
    monkeypatch.setattr("gobrrr.live.rank_of_job._queued_s", lambda: next(queued))
    clock = iter((100.0, 110.0))
    monkeypatch.setattr("gobrrr.live.rank_of_job.time.monotonic", lambda: next(clock, 110.0))
    with rank.machine_to_itself():
        pass
    monkeypatch.undo()
    monkeypatch.setattr(dist, "init_process_group", lambda: None)
    monkeypatch.setattr("gobrrr.live.rank_of_job._queued_s", lambda: next(queued))
    with rank.in_script():
        began = time.perf_counter()
        dist.init_process_group()
    assert rank.joined is not None
    # 10 s in there, and 5 in a queue outside.
    assert began - rank.joined.monotonic_s == pytest.approx(15.0, abs=1.0)
    assert time.time() - rank.joined.wall_s == pytest.approx(15.0, abs=1.0)


def test_this_thread_has_waited_for_a_processor_for_less_than_it_lives() -> None:
    began = time.monotonic()
    before = _queued_s()
    assert 0 <= _queued_s() - before <= time.monotonic() - began + 0.01
