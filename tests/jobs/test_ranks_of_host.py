"""What the ranks of a host leave in its folder for temporary files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from filelock import FileLock

from gobrrr.jobs.boards import FolderBoard
from gobrrr.jobs.hosts import Place
from gobrrr.jobs.ranks_of_host import Presence, RanksOfHost

OLD = time.time() - 1e6


def left_by(folder: Path, pid: int, **said: str) -> Path:
    """A folder of a job with one rank, as if the rank had been killed before it could remove it."""
    own = Presence.of_this_process(0, 1, "train.py")
    message = msgspec.json.encode(msgspec.structs.replace(own, pid=pid, **said))
    FolderBoard(folder).post("local/0", message)
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (OLD, OLD))
    return folder


def test_what_jobs_left_whose_ranks_are_all_dead_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = left_by(tmp_path / "gobrrr-job-0-dead", ended.pid)
    alive = left_by(tmp_path / "gobrrr-job-0-alive", os.getpid())
    of_another = left_by(tmp_path / "gobrrr-job-1-dead", ended.pid)
    # Of a container that has numbers of its own for its processes.
    elsewhere = left_by(tmp_path / "gobrrr-job-0-elsewhere", ended.pid, numbers="pid:[1]")
    todays = left_by(tmp_path / "gobrrr-job-0-today", ended.pid)
    os.utime(todays / "local")
    just_made = tmp_path / "gobrrr-job-0-new"
    just_made.mkdir()
    FolderBoard(tmp_path / "gobrrr-job-0-changed").post("local/0", b"{}")
    own = tmp_path / "gobrrr-job-0-own"
    RanksOfHost(
        FolderBoard(own),
        Presence.of_this_process(0, 1, "train.py"),
        Place(size=1, rank=0, start=""),
    )
    assert not dead.exists()
    assert all(each.exists() for each in (alive, of_another, elsewhere, todays, just_made, own))


def start(folder: Path, rank: int) -> RanksOfHost:
    own = Presence.of_this_process(rank, 2, "train.py")
    return RanksOfHost(FolderBoard(folder), own, Place(size=None, rank=None, start=""))


def test_messages_of_a_killed_job_are_not_those_of_the_next_from_the_same_shell(
    tmp_path: Path,
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder = left_by(tmp_path / "gobrrr-job-0-own", ended.pid)
    board = FolderBoard(folder)
    assert board.claim("claimed")
    board.post("result/0", b"of the killed one")
    one = start(folder, 0)
    assert one.first
    assert board.read("result/0") is None
    assert one.dead() == set()
    # Nobody removes what a rank of this job has left.
    one.say("result/0", b"mine")
    other = start(folder, 1)
    assert not other.first
    assert board.read("result/0") == b"mine"
    assert set(other.there()) == {0, 1}


def test_a_rank_that_died_at_once_is_dead_to_those_that_come_later(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder = left_by(tmp_path / "gobrrr-job-0-own", ended.pid)
    assert start(folder, 1).dead() == {"0"}


def test_a_rank_that_keeps_the_lock_stops_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "gobrrr-job-0-own"
    start(folder, 0)
    with FileLock(folder / ".lock"):
        other = start(folder, 1)
    assert set(other.there()) == {0, 1}


LEAVES = """
import os, signal, sys
from gobrrr.measure.ending import ends_first
with ends_first():
    os.kill(os.getpid(), signal.SIGTERM)
    print("removed", flush=True)
print("went on")
"""


def test_what_a_rank_does_last_comes_before_its_end_by_a_signal() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-15, "removed\n")
