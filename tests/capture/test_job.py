"""Ranks of a job: how they find each other, what they agree on, and that nobody waits for ever."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.capture.job import Job, StoreBoard, job_of, rank_of
from gobrrr.capture.rank_of_job import RankOfJob
from gobrrr.timeline.errors import InputError

LIMIT_S = 0.3


def _ranks(folder: Path, count: int = 2, **options: Any) -> list[Job]:
    return [
        Job(
            {"RANK": str(rank), "WORLD_SIZE": str(count)},
            folder=folder,
            meeting_limit_s=options.pop(f"limit{rank}", 20.0),
            program=options.get(f"program{rank}", "train.py"),
        )
        for rank in range(count)
    ]


def _together(*calls: Callable[[], Any]) -> list[Any]:
    """What each returns, all of them at once in threads."""
    results: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_ranks_agree_on_the_largest_of_each_figure(tmp_path: Path) -> None:
    first, second = _ranks(tmp_path)
    for figures in ({"step_s": 0.2, "more": 0.0}, {"step_s": 0.1, "more": 1.0}):
        agreed = _together(
            lambda figures=figures: first.agree("warm-up", figures),
            lambda: second.agree("warm-up", {"step_s": 0.15, "more": 0.0}),
        )
        assert agreed[0] == agreed[1]
        assert agreed[0]["step_s"] == max(figures["step_s"], 0.15)
        assert agreed[0]["more"] == figures["more"]
    assert (first.alone, second.alone) == ("", "")


def test_a_rank_that_does_not_come_is_waited_for_once(tmp_path: Path) -> None:
    first, second = _ranks(tmp_path, limit0=LIMIT_S)
    assert first.agree("warm-up", {"step_s": 0.02}) == {"step_s": 0.02}
    assert first.alone == "rank 1 did not reach a step within 0 s"
    assert first.agree("timing", {"step_s": 0.03}) == {"step_s": 0.03}
    # Who comes later hears of it at once, and does not wait in the next round.
    second.agree("warm-up", {"step_s": 0.1})
    second.agree("timing", {"step_s": 0.1})
    assert second.alone.startswith("rank 0 continues without the others (rank 1 did not reach")


def test_a_rank_whose_script_is_over_is_not_waited_for(tmp_path: Path) -> None:
    first, second = _ranks(tmp_path)
    second.join()
    second.leave("its script has finished")
    first.agree("warm-up", {"step_s": 0.2})
    assert first.alone == "rank 1 has ended (its script has finished)"
    assert first.results()[1] == {
        0: "rank 0 has no result of its own",
        1: "rank 1 has ended (its script has finished)",
    }


def test_a_process_that_is_gone_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = _ranks(tmp_path)
    second.join()
    monkeypatch.setattr("gobrrr.capture.job._lives", lambda pid: False)
    first.agree("warm-up", {"step_s": 0.2})
    assert first.alone == "the process of rank 1 has ended"
    assert first.results()[1][1] == "the process of rank 1 has ended"


def test_ranks_of_two_programs_say_so(tmp_path: Path) -> None:
    first, second = _ranks(tmp_path, program1="other.py")
    second.join()
    first.agree("warm-up", {"step_s": 0.2})
    assert first.alone == "rank 1 runs other.py, rank 0 train.py"


def test_ranks_that_count_each_other_differently_say_so(tmp_path: Path) -> None:
    first, _ = _ranks(tmp_path)
    other = Job({"RANK": "1", "WORLD_SIZE": "3"}, folder=tmp_path, program="train.py")
    other.join()
    first.agree("warm-up", {"step_s": 0.2})
    assert first.alone == "rank 1 reports 3 ranks, rank 0 reports 2"


def test_ranks_whose_steps_are_not_the_same_say_so(tmp_path: Path) -> None:
    first, second = _ranks(tmp_path)
    _together(
        lambda: first.agree("warm-up", {"step_s": 0.2}),
        lambda: second.agree("timing", {"step_s": 0.2}),
    )
    assert first.alone == (
        "rank 1 is at timing while rank 0 is at warm-up: they do not run the same steps"
    )


def test_when_a_rank_joins_is_noted_by_two_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = SimpleNamespace(init_process_group=lambda: "joined")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
    first, _ = _ranks(tmp_path)
    rank = RankOfJob(first)
    with rank.in_script():
        assert distributed.init_process_group() == "joined"
        noted = rank.joined
        distributed.init_process_group()
    assert noted is not None
    assert rank.joined is noted
    assert noted.monotonic_s == pytest.approx(time.perf_counter(), abs=30.0)
    assert noted.wall_s == pytest.approx(time.time(), abs=30.0)


def test_hosts_meet_in_the_store_of_the_program(tmp_path: Path) -> None:
    messages: dict[str, bytes] = {}

    class Store:
        def set(self, key: str, value: bytes) -> None:
            messages[key] = value

        def check(self, keys: list[str]) -> bool:
            return all(key in messages for key in keys)

        def get(self, key: str) -> bytes:
            return messages[key]

    jobs = [
        Job(
            {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            folder=tmp_path / str(rank),
            find_store=Store,
        )
        for rank in range(2)
    ]
    assert not jobs[0].one_host
    jobs[1].publish(b"found")
    agreed = _together(*[lambda job=job: job.agree("timing", {"ops": job.rank}) for job in jobs])
    assert agreed == [{"ops": 1}, {"ops": 1}]
    assert jobs[0].results(LIMIT_S) == (
        {1: b"found"},
        {0: "rank 0 has no result of its own"},
    )
    assert all(key.startswith("gobrrr/") for key in messages)
    assert StoreBoard(Store()).read("nothing") is None


def test_the_last_rank_removes_what_they_left(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    first, second = _ranks(folder)
    first.publish(b"1")
    first.leave("its script has finished")
    assert folder.exists()
    second.leave("its script has finished")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, 0),
        ({"RANK": "1"}, 0),
        ({"RANK": "0", "WORLD_SIZE": "1"}, 0),
        ({"RANK": "3", "WORLD_SIZE": "4"}, 3),
    ],
)
def test_which_rank_a_process_is(environment: dict[str, str], rank: int) -> None:
    assert rank_of(environment) == rank
    if environment.get("WORLD_SIZE") != "4":
        assert job_of(environment, "train.py") is None


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK=x and WORLD_SIZE=2 in the environment are no"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 in the environment is not below WORLD_SIZE=2"),
    ],
)
def test_an_environment_that_contradicts_itself(environment: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        job_of(environment, "train.py")
