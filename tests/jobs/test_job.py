"""Ranks of a job: how they find each other, what they agree on, and that nobody waits for ever."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.jobs.boards import StoreBoard, folder_of
from gobrrr.jobs.job import Job, job_of
from gobrrr.live import rank_of_job
from gobrrr.live.launcher import rank_of
from gobrrr.live.rank_of_job import RankOfJob
from gobrrr.timeline.errors import InputError

LIMIT_S = 0.3


def _ranks(folder: Path, count: int = 2, **options: Any) -> list[Job]:
    return [
        Job(
            {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)},
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


class Store:
    """A process group's store; ``gone``: what its client raises once nobody keeps it."""

    def __init__(self) -> None:
        self.messages: dict[str, bytes] = {}
        self.gone: Exception | None = None

    def _check(self) -> None:
        if self.gone is not None:
            raise self.gone

    def set(self, key: str, value: bytes) -> None:
        self._check()
        self.messages[key] = value

    def check(self, keys: list[str]) -> bool:
        self._check()
        return all(key in self.messages for key in keys)

    def get(self, key: str) -> bytes:
        self._check()
        return self.messages[key]


def _of_two_hosts(folder: Path, find_store: Callable[[], Any]) -> list[Job]:
    return [
        Job(
            {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            folder=folder / str(rank),
            find_store=find_store,
        )
        for rank in range(2)
    ]


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
    monkeypatch.setattr("gobrrr.jobs.ranks_of_host._lives", lambda pid: False)
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
    environment = {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}
    other = Job(environment, folder=tmp_path, program="train.py")
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
    # This thread's own waits are those of all tests before it.
    monkeypatch.setattr(rank_of_job, "_queued_s", lambda: 400.0)
    first, _ = _ranks(tmp_path)
    rank = RankOfJob(first)
    with rank.in_script():
        assert distributed.init_process_group() == "joined"
        noted = rank.joined
        distributed.init_process_group()
    assert noted is not None
    assert rank.joined is noted
    assert noted.monotonic_s == pytest.approx(time.perf_counter() - 400.0, abs=30.0)
    assert noted.wall_s == pytest.approx(time.time() - 400.0, abs=30.0)


def test_hosts_meet_in_the_store_of_the_program(tmp_path: Path) -> None:
    store = Store()
    jobs = _of_two_hosts(tmp_path, lambda: store)
    assert not jobs[0].one_host
    jobs[1].publish(b"found")
    agreed = _together(*[lambda job=job: job.agree("timing", {"ops": job.rank}) for job in jobs])
    assert agreed == [{"ops": 1}, {"ops": 1}]
    assert jobs[0].results(LIMIT_S) == (
        {1: b"found"},
        {0: "rank 0 has no result of its own"},
    )
    assert all(key.startswith("gobrrr/") for key in store.messages)
    assert StoreBoard(store).read("nothing") is None


GONE = (
    "the job's store is gone, probably because the process of rank 0 has ended (the store's client "
    "says: failed to recv, got 0 bytes)"
)


@pytest.mark.parametrize("step", ["before they agree", "while they agree", "after they agreed"])
def test_a_store_that_has_gone_is_said_in_one_sentence(tmp_path: Path, step: str) -> None:
    store = Store()
    first, second = _of_two_hosts(tmp_path, lambda: store)
    error = RuntimeError("failed to recv, got 0 bytes.\nException raised from recvBytes at ...")

    def lose() -> None:
        time.sleep(0.2)
        store.gone = error

    if step == "before they agree":
        store.gone = error
    if step == "after they agreed":
        own = {"step_s": 0.1}
        _together(lambda: first.agree("warm-up", own), lambda: second.agree("warm-up", own))
        store.gone = error
    else:
        agreed = _together(lambda: second.agree("warm-up", {"step_s": 0.1}), lose)
        assert agreed[0] == {"step_s": 0.1}
        assert second.alone == GONE
    # Nothing raises, and nothing waits for the limit.
    second.publish(b"found")
    assert second.lost == GONE
    assert second.results() == ({}, {0: GONE, 1: GONE})
    assert second.why_gone(0) == ""
    # Its own diagnosis is the only one that its host will see.
    assert second.reports
    second.leave("its script has finished")


def test_who_shows_a_diagnosis_where_the_first_rank_is_gone(tmp_path: Path) -> None:
    first, second, third = _ranks(tmp_path, 3)
    assert (first.reports, second.reports, third.reports) == (True, False, False)
    # Its script is over, but it may still make one of all.
    first.end("its script has finished")
    assert not second.reports
    first.leave("its script has finished")
    assert (second.reports, third.reports) == (True, False)
    second.reported()
    assert not second.reports


def test_a_first_rank_that_dies_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second, third = _ranks(tmp_path, 3)
    monkeypatch.setattr("gobrrr.jobs.ranks_of_host._lives", lambda pid: False)
    assert second.reports
    assert third.reports
    assert third.why_gone(0) == ""
    second.reported()
    assert not third.reports


def test_a_folder_that_cannot_be_written_is_no_defect(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    first, second = _ranks(folder)
    first.leave("its script has finished")
    second.leave("its script has finished")
    folder.write_text("no folder any more")
    assert second.agree("warm-up", {"step_s": 0.1}) == {"step_s": 0.1}
    assert second.alone.startswith(f"{folder}, where ranks of a host leave messages for each other")


UNKNOWN = (
    "no process group connects the ranks, and the launcher does not say that they share a host "
    "(LOCAL_WORLD_SIZE)"
)


def test_ranks_of_an_unknown_number_of_hosts_meet_in_the_store(tmp_path: Path) -> None:
    store = Store()
    made: list[Store] = []
    first, second = [
        Job(
            {"RANK": str(rank), "WORLD_SIZE": "2"},
            folder=tmp_path,
            find_store=lambda: made[0] if made else None,
        )
        for rank in range(2)
    ]
    assert not first.one_host
    assert "LOCAL_WORLD_SIZE" in first.unknown_hosts
    began = time.monotonic()
    # Whoever comes first measures the machine, and nobody waits for ranks that may be elsewhere.
    assert (first.here.first, second.here.first) == (True, False)
    for job in (first, second):
        job.here.wait_for_all("started", 60.0)
    assert first.cut_off == UNKNOWN
    made.append(store)
    both = (first, second)
    agreed = _together(*[lambda job=job: job.agree("timing", {"ops": job.rank}) for job in both])
    assert agreed == [{"ops": 1}, {"ops": 1}]
    assert first.cut_off == ""
    assert time.monotonic() - began < 20
    first.leave("its script has finished")
    assert tmp_path.exists()
    second.leave("its script has finished")
    assert not tmp_path.exists()


def test_without_a_process_group_ranks_of_unknown_hosts_are_alone_at_once(tmp_path: Path) -> None:
    job = Job({"RANK": "0", "WORLD_SIZE": "2"}, folder=tmp_path, find_store=lambda: None)
    began = time.monotonic()
    assert job.agree("warm-up", {"step_s": 0.1}) == {"step_s": 0.1}
    assert job.alone == UNKNOWN
    assert job.results() == ({}, {0: UNKNOWN, 1: UNKNOWN})
    assert time.monotonic() - began < 20


def test_results_are_not_waited_for_where_the_script_failed(tmp_path: Path) -> None:
    first, second = _ranks(tmp_path)
    second.join()
    first.publish(b"why not")
    assert first.results(0.0) == (
        {0: b"why not"},
        {1: "rank 1 had not finished its diagnosis yet"},
    )
    assert first.results(LIMIT_S)[1] == {1: "rank 1 had not finished its diagnosis within 0 s"}


def test_a_rank_whose_script_is_over_may_still_tell_what_it_found(tmp_path: Path) -> None:
    first, second = _ranks(tmp_path)
    second.join()
    how = "its script ended with RuntimeError: boom"
    second.end(how)
    # Nobody waits for its steps, ...
    first.agree("timing", {"step_s": 0.1})
    assert first.alone == f"rank 1 has ended ({how})"

    def tell() -> None:
        time.sleep(0.3)
        second.publish(b"found")

    # ... and the first for what it has measured before.
    said, _ = _together(first.results, tell)[0]
    assert said == {1: b"found"}
    second.leave(how)
    assert first.results()[0] == {1: b"found"}


def test_a_first_rank_that_failed_waits_only_for_those_that_did_too(tmp_path: Path) -> None:
    first, second, third = _ranks(tmp_path, 3)
    second.join()
    third.join()
    third.end("its script was ended by SIGTERM")

    def tell() -> None:
        time.sleep(0.3)
        third.publish(b"found")

    said, missing = _together(lambda: first.results(of_ended=lambda: True), tell)[0]
    assert said == {2: b"found"}
    assert missing[1] == "rank 1 had not finished its diagnosis yet"


def test_a_step_of_slurm_is_one_folder_whatever_starts_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    environment = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
    parents = iter([1, 2, 3, 4])
    monkeypatch.setattr("os.getppid", lambda: next(parents))
    assert folder_of(environment, "77.0.") == folder_of(environment, "77.0.")
    assert folder_of(environment) != folder_of(environment)


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links here")
@pytest.mark.parametrize("trap", ["link", "open to others", "file"])
def test_a_folder_that_others_may_have_made_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    environment = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
    folder, elsewhere = folder_of(environment, "77.0."), tmp_path / "elsewhere"
    folder.rmdir()
    if trap == "link":
        elsewhere.mkdir(mode=0o700)
        folder.symlink_to(elsewhere)
    elif trap == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(InputError, match="remove it, or set TMPDIR"):
        folder_of(environment, "77.0.")


@pytest.mark.parametrize("left", [b"{}", b"\xff\xfe", b'{"what": 1, "figures": []}', b"[" * 10**5])
def test_a_message_of_somebody_else_is_dropped(tmp_path: Path, left: bytes) -> None:
    first, second = _ranks(tmp_path)
    _together(first.join, second.join)
    second.post("round1/1", left)
    assert first.agree("timing", {"ops": 1.0}) == {"ops": 1.0}
    assert "none of gobrrr's" in first.alone
    second.post("here/1", left)
    assert first.why_gone(1) == ""


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
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK=x in the environment is not a number"),
        ({"RANK": "0", "WORLD_SIZE": "y"}, "WORLD_SIZE=y in the environment is not a number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 in the environment is not below WORLD_SIZE=2"),
    ],
)
def test_an_environment_that_contradicts_itself(environment: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        job_of(environment, "train.py")
