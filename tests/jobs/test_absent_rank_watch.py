"""Ranks that wait for one that never comes: what is told of whom, once, and by one of them."""

from __future__ import annotations

import os
import sys
import sysconfig
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gobrrr.jobs import absent_rank_watch
from gobrrr.jobs.absent_rank_watch import LIMIT_S, LOOK_S, AbsentRankWatch, Answer, sentence
from gobrrr.jobs.call_in_progress import CallInProgress, call_in_progress
from gobrrr.jobs.job import Job


class Rank:
    """A rank whose main thread is in ``call``, or between two instructions where it is none."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        size: int,
        clock: Callable[[], float],
        hosts: dict[str, str] | None = None,
    ) -> None:
        environment = {
            "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
        } | (hosts or {})  # fmt: skip
        self.store: Any = None
        self.job = Job(
            environment, folder=folder, program="train.py", find_store=lambda: self.store
        )
        self.call: CallInProgress | None = None
        self.said: list[str] = []
        self.watch = AbsentRankWatch(
            self.job,
            say=self.said.append,
            clock=clock,
            frame=lambda: self,  # type: ignore[arg-type, return-value]
        )

    def look(self) -> None:
        self.watch.look()
        if self.call is None:
            self.watch.heard(sys._getframe(), 0)


class Ranks:
    """Ranks that look by turns, on one clock that they move on."""

    def __init__(self, folder: Path, size: int, hosts: dict[str, str] | None = None) -> None:
        self.now = 0.0
        self.all = [Rank(folder, rank, size, lambda: self.now, hosts) for rank in range(size)]

    def __getitem__(self, rank: int) -> Rank:
        return self.all[rank]

    def look_for(self, seconds: float, *, backwards: bool = False) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += LOOK_S
            for rank in reversed(self.all) if backwards else self.all:
                rank.look()

    @property
    def said(self) -> list[str]:
        return [text for rank in self.all for text in rank.said]


@pytest.fixture
def of_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that a rank of these tests is in."""
    monkeypatch.setattr(absent_rank_watch, "call_in_progress", lambda rank: rank.call)


ALL_REDUCE = CallInProgress("train.py:21 in main", "all_reduce")
ASLEEP = CallInProgress("train.py:7 in load")


@pytest.mark.usefixtures("of_rank")
@pytest.mark.parametrize("backwards", [False, True])
def test_the_rank_that_is_missing_is_named_with_its_line(tmp_path: Path, backwards: bool) -> None:
    ranks = Ranks(tmp_path, 3)
    ranks[0].call = ranks[2].call = ALL_REDUCE
    ranks[1].call = ASLEEP
    ranks.look_for(LIMIT_S - 2 * LOOK_S, backwards=backwards)
    assert not ranks.said
    ranks.look_for(3 * LIMIT_S, backwards=backwards)
    (text,) = ranks.said
    assert text.startswith("ranks 0 and 2 have waited for 6")
    assert text.endswith(
        "in all_reduce at train.py:21 in main for rank 1 (running at train.py:7 in load)."
    )


@pytest.mark.usefixtures("of_rank")
def test_a_rank_whose_script_is_over_does_not_stay_for_those_that_may_wait_for_it(
    tmp_path: Path,
) -> None:
    ranks = Ranks(tmp_path, 3)
    for rank in ranks.all:
        rank.job.join()
    ranks[0].job.publish(b"found")
    ranks[0].job.end("its script has finished")
    ranks[1].call, ranks[2].call = ALL_REDUCE, ASLEEP
    ranks.look_for(LIMIT_S / 2)
    # What the second waits for may be the third.
    said, missing = ranks[0].job.results(0.0)
    assert said == {0: b"found"} and all("perhaps" not in why for why in missing.values())
    ranks[2].call = ALL_REDUCE
    ranks.look_for(LIMIT_S / 2)
    said, missing = ranks[0].job.results(600.0)
    assert said == {0: b"found"}
    assert missing == {
        rank: f"rank {rank} waits in all_reduce, perhaps for this one, whose script is over"
        for rank in (1, 2)
    }
    ranks[1].call = None
    ranks.look_for(2 * LOOK_S)
    assert "perhaps" not in ranks[0].job.results(0.0)[1][1]


@pytest.mark.usefixtures("of_rank")
def test_ranks_that_move_are_left_alone(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    for _ in range(5):
        ranks[0].call = ALL_REDUCE
        ranks.look_for(LIMIT_S - LOOK_S)
        ranks[0].call = None
        ranks.look_for(LOOK_S)
    assert not ranks.said


@pytest.mark.usefixtures("of_rank")
def test_ranks_in_different_collectives_wait_for_each_other(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks[0].call = ALL_REDUCE
    ranks[1].call = CallInProgress("train.py:9 in save", "barrier")
    ranks.look_for(3 * LIMIT_S)
    (text,) = ranks.said
    assert text.startswith("the ranks have waited for each other for 6")
    assert "rank 0 in all_reduce at train.py:21 in main; rank 1 in barrier at train.py:9" in text


@pytest.mark.usefixtures("of_rank")
def test_a_rank_that_gobrrr_holds_up_is_not_blamed(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks[0].call = ALL_REDUCE
    ranks[1].call = CallInProgress("train.py:9 in main", of_gobrrr=True)
    ranks.look_for(3 * LIMIT_S)
    assert not ranks.said
    ranks[1].call = ASLEEP
    ranks.look_for(LIMIT_S)
    assert "rank 1 (running at train.py:7 in load)" in ranks.said[0]


@pytest.mark.usefixtures("of_rank")
def test_a_rank_that_says_nothing_is_told_of_too(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    ranks[0].call = ALL_REDUCE
    ranks[2].job.leave("its script has finished")
    silent = ranks.all[1:]
    del ranks.all[1:]
    ranks.look_for(3 * LIMIT_S)
    (text,) = ranks.said
    assert "rank 1 (no answer: " in text
    assert "rank 2 (ended: its script has finished)" in text
    assert silent


INIT = CallInProgress("train.py:4 in main", "init_process_group")
OF_TWO_HOSTS = {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}


@pytest.mark.usefixtures("of_rank")
def test_ranks_that_cannot_ask_each_other_tell_of_themselves_once(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, OF_TWO_HOSTS)
    ranks[1].call = INIT
    ranks.look_for(LIMIT_S - 2 * LOOK_S)
    assert not ranks.said
    ranks.look_for(3 * LIMIT_S)
    assert not ranks[0].said
    (text,) = ranks[1].said
    assert text.startswith("rank 1 has waited for 6")
    assert text.endswith(
        "s in init_process_group at train.py:4 in main; what the other ranks do is unknown: no "
        "process group connects the ranks of several hosts."
    )
    # A call that returns, and the next that does not.
    ranks[1].call = None
    ranks.look_for(2 * LOOK_S)
    ranks[1].call = ALL_REDUCE
    ranks.look_for(2 * LIMIT_S)
    assert len(ranks[1].said) == 2
    assert " in all_reduce at train.py:21 in main; " in ranks[1].said[1]


@pytest.mark.usefixtures("of_rank")
def test_a_wait_is_told_where_the_store_has_gone(tmp_path: Path) -> None:
    class Gone:
        def check(self, keys: list[str]) -> bool:
            raise RuntimeError("Broken pipe")

        set = get = check

    ranks = Ranks(tmp_path, 2, OF_TWO_HOSTS)
    ranks[1].store = Gone()
    ranks[1].call = ALL_REDUCE
    ranks.look_for(2 * LIMIT_S)
    (text,) = ranks.said
    assert "what the other ranks do is unknown: the job's store is gone, probably because" in text


def test_all_in_the_same_call_miss_nobody() -> None:
    told = sentence(0, 2, ALL_REDUCE, {1: Answer("waiting", ALL_REDUCE.line, "all_reduce")}, {})
    assert "none is missing" in told


def test_of_many_ranks_some_are_named() -> None:
    told = sentence(0, 9, ALL_REDUCE, {i: Answer("asleep", "a.py:1 in f") for i in range(1, 9)}, {})
    assert told.endswith("for 8 ranks: 1, 2, 3, 4, ... (asleep at a.py:1 in f).")


@contextmanager
def _in_call(target: Callable[[threading.Event], Any]) -> Iterator[FrameType]:
    """The frame of a thread that is in ``target`` and does not come back before the end."""
    over = threading.Event()
    thread = threading.Thread(target=target, args=(over,))
    thread.start()
    time.sleep(0.2)
    assert thread.ident is not None
    try:
        yield sys._current_frames()[thread.ident]
    finally:
        over.set()
        thread.join()


@pytest.mark.usefixtures("of_rank")
def test_a_rank_whose_counters_are_gone_still_looks(tmp_path: Path) -> None:
    class Effort:
        done: tuple[int, int] | None = (0, 0)

        def read(self) -> tuple[int, int] | None:
            return self.done

    ranks = Ranks(tmp_path, 1)
    watch, effort = ranks[0].watch, Effort()
    watch._effort = effort  # type: ignore[assignment]
    ranks[0].call = ASLEEP
    ranks.look_for(3 * LOOK_S)
    assert watch._slept
    effort.done = None
    ranks.look_for(3 * LOOK_S)
    assert not watch._slept and watch._effort is None


def test_sleep_is_no_wait_for_other_ranks() -> None:
    def load(over: threading.Event) -> None:
        while not over.is_set():
            time.sleep(0.5)

    with _in_call(load) as frame:
        found = call_in_progress(frame)
    assert (found.waits_in, found.of_gobrrr) == ("", False)
    assert found.line is not None
    assert found.line.endswith(" in load")


LIBRARY = Path(sysconfig.get_paths()["purelib"]) / "torch" / "distributed"


def _of_torch(source: str, name: str) -> Any:
    """A function of a file in ``torch.distributed``, installed or not."""
    functions: dict[str, Any] = {"time": time}
    exec(compile(textwrap.dedent(source), str(LIBRARY / "rendezvous.py"), "exec"), functions)
    return functions[name]


@pytest.mark.parametrize(
    ("outermost", "told"),
    [("init_process_group", "init_process_group"), ("_sync_params", "_create_store")],
)
def test_a_wait_is_called_as_users_call_it(
    monkeypatch: pytest.MonkeyPatch, outermost: str, told: str
) -> None:
    monkeypatch.setattr(
        "gobrrr.jobs.call_in_progress._distributed_homes", lambda: (f"{LIBRARY}{os.sep}",)
    )
    source = f"""
        def _create_store(over):
            while not over.is_set():
                time.sleep(0.5)

        def {outermost}(over):
            _create_store(over)
    """
    wait = _of_torch(source, outermost)

    def train(over: threading.Event) -> None:
        wait(over)

    with _in_call(train) as frame:
        found = call_in_progress(frame)
    assert found.waits_in == told
    assert found.line is not None
    assert found.line.endswith(" in train")


def test_a_wait_is_told_by_how_it_is_written() -> None:
    class Work:
        def __init__(self, over: threading.Event) -> None:
            # A method in C, as torch's is: no frame names it.
            lock = threading.Lock()
            lock.acquire()
            self.lock, self.over = lock, over
            self.wait = lock.acquire

    works = []

    def train(over: threading.Event) -> None:
        work = Work(over)
        works.append(work)
        work.wait()

    with _in_call(train) as frame:
        found = call_in_progress(frame)
        works[0].lock.release()
    assert found.waits_in == "work.wait()"
