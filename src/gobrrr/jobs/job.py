"""The processes of one job: which rank this one is, and what ranks tell each other.

A launcher (torchrun, accelerate) says by its environment which rank a process is. Ranks of one host
meet in a folder; ranks of several hosts, and those of which nobody says whether they share one, in
the store that the program's own process group made. Nobody waits without a limit, and who has
waited in vain goes on alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gobrrr.jobs.boards import (
    Board,
    BoardLostError,
    FolderBoard,
    StoreBoard,
    folder_of,
    message_of,
    store_of_program,
)
from gobrrr.jobs.hosts import place_of
from gobrrr.jobs.ranks_of_host import Presence, RanksOfHost, poll
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import whole_seconds

if TYPE_CHECKING:
    from gobrrr.jobs.absent_rank_watch import AbsentRankWatch

# How long a rank waits for the others where all of them come in the same step, ...
MEETING_LIMIT_S = 60.0
# ... and for what they have found, which they find out at their own pace.
RESULT_LIMIT_S = 180.0
_STEPS_APART = 5

# What keeps a rank from doing something, as a clause; "" if nothing does.
_Why = Callable[[Board, int], str]


class _Figures(msgspec.Struct, frozen=True):
    """What a rank says of itself where all come by."""

    what: str
    figures: dict[str, float]


class Job:
    """One rank among several.

    Attributes:
        rank, world_size: of the job.
        here: the ranks of this host.
        alone: why this rank no longer waits for the others; ``""`` while it does.
        lost: why this rank can reach no other any more; ``""`` while that is not known.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        program: str = "",
        find_store: Callable[[], Any] | None = None,
        folder: Path | None = None,
        meeting_limit_s: float = MEETING_LIMIT_S,
    ) -> None:
        self.rank = int(environment["RANK"])
        self.world_size = int(environment["WORLD_SIZE"])
        self.alone = self.lost = ""
        self._limit_s = meeting_limit_s
        place = place_of(environment)
        # Whether all ranks are known to be on this host.
        self.one_host = place.size is not None and place.size >= self.world_size
        if self.one_host and place.rank is None:
            place = replace(place, rank=self.rank)
        folder_board = FolderBoard(folder or folder_of(environment, place.start))
        self._own = Presence.of_this_process(self.rank, self.world_size, program)
        self.here = RanksOfHost(folder_board, self._own, place)
        self._find_store = find_store or store_of_program
        self._everywhere: Board | None = folder_board if self.one_host else None
        self._rounds = 0
        self._over = False

    @property
    def unknown_hosts(self) -> str:
        """What follows from not knowing which ranks share a host; ``""``: that is known."""
        if self.here.size is not None:
            return ""
        return (
            "How many ranks share a host is unknown, because the launcher does not set "
            "LOCAL_WORLD_SIZE: they met through the program's process group, and ceilings that "
            "were measured in this run may have been measured while other ranks were starting."
        )

    @property
    def cut_off(self) -> str:
        """Why this rank cannot reach the others now; ``""`` if it can."""
        if self._board() is not None or self.lost:
            return self.lost
        why = "no process group connects the ranks"
        if self.here.size is None:
            return f"{why}, and the launcher does not say that they share a host (LOCAL_WORLD_SIZE)"
        return f"{why} of several hosts"

    def join(self) -> None:
        """Say that this rank is there, as soon as there is a place to say it."""
        if self.read(f"here/{self.rank}") is None:
            self.post(f"here/{self.rank}", msgspec.json.encode(self._own))

    def _board(self) -> Board | None:
        if self.lost:
            return None
        if self._everywhere is None:
            store = self._find_store()
            if store is not None:
                self._everywhere = StoreBoard(store)
        return self._everywhere

    @contextlib.contextmanager
    def _noting_loss(self) -> Iterator[None]:
        """What is inside ends early where the board is lost: from then on there is none."""
        try:
            yield
        except BoardLostError as error:
            self.lost = self.lost or str(error)

    # What ranks agree on

    def agree(self, what: str, own: Mapping[str, float]) -> dict[str, float]:
        """The largest of each figure among all ranks; this one's own, once it is alone.

        All ranks come here in the same order, each at the end of the same step.
        """
        if self.alone:
            return dict(own)
        self.join()
        self._rounds += 1
        key = f"round{self._rounds}"
        message = msgspec.json.encode(_Figures(what, dict(own)))
        # Steps may be longer than the limit, and ranks a step apart.
        limit_s = max(self._limit_s, _STEPS_APART * own.get("step_s", 0.0))
        self.post(f"{key}/{self.rank}", message)
        said, why = self._ask_all(key, self._gone, limit_s)
        if why:
            self.go_alone(next(iter(why.values())))
        figures = dict(own)
        for rank, text in said.items():
            other = message_of(text, _Figures)
            if other is None:
                self.go_alone(f"a message of rank {rank} is none of gobrrr's")
                return dict(own)
            if other.what != what:
                self.go_alone(
                    f"rank {rank} is at {other.what} while rank {self.rank} is at {what}: "
                    "they do not run the same steps"
                )
                return dict(own)
            for name, value in other.figures.items():
                figures[name] = max(value, figures.get(name, value))
        return dict(own) if self.alone else figures

    def go_alone(self, why: str) -> None:
        """Wait for nobody from here on, and let nobody wait."""
        if not self.alone:
            self.alone = why
            self.post(f"alone/{self.rank}", why.encode())

    def _ask_all(
        self, key: str, gone: _Why, limit_s: float
    ) -> tuple[dict[int, bytes], dict[int, str]]:
        """What each rank said, and why the others have not.

        ``gone``: why nothing is to be expected of a rank any more.
        """
        board = self._board()
        if board is not None:
            with self._noting_loss():
                return self._gather(board, key, gone, limit_s)
        return {}, dict.fromkeys(range(self.world_size), self.cut_off)

    def _gather(
        self, board: Board, key: str, gone: _Why, limit_s: float
    ) -> tuple[dict[int, bytes], dict[int, str]]:
        said: dict[int, bytes] = {}
        why: dict[int, str] = {}
        waiting = list(range(self.world_size))

        def all_told() -> bool:
            for rank in list(waiting):
                reason, message = "", board.read(f"{key}/{rank}")
                if message is None:
                    reason = gone(board, rank)
                    if not reason:
                        continue
                    # It may have said it just before.
                    message = board.read(f"{key}/{rank}")
                if message is None:
                    why[rank] = reason
                else:
                    said[rank] = message
                waiting.remove(rank)
            return not waiting

        try:
            if not poll(all_told, limit_s):
                why |= {rank: _late(board, key, rank, limit_s) for rank in waiting}
        except BoardLostError as error:
            # What the others said before counts.
            self.lost = self.lost or str(error)
            why |= dict.fromkeys(waiting, self.lost)
        return said, why

    def _gone(self, board: Board, rank: int) -> str:
        """Why a rank agrees on nothing more."""
        message = board.read(f"alone/{rank}")
        if message is not None:
            return f"rank {rank} continues without the others ({message.decode(errors='replace')})"
        ended, found = _end_of(board, rank), _presence(board, rank)
        if ended or found is None:
            return ended
        if found.world_size != self.world_size:
            return (
                f"rank {rank} reports {found.world_size} ranks, rank {self.rank} reports "
                f"{self.world_size}"
            )
        if found.program != self._own.program:
            return f"rank {rank} runs {found.program}, rank {self.rank} {self._own.program}"
        return ""

    # Beside the steps, from any thread

    def post(self, key: str, message: bytes) -> None:
        """Leave a message for whoever asks for it; lost where there is no place to leave it."""
        board = self._board()
        if board is not None:
            with self._noting_loss():
                board.post(key, message)

    def read(self, key: str) -> bytes | None:
        """What was left; ``None`` if nothing was."""
        board = self._board()
        if board is not None:
            with self._noting_loss():
                return board.read(key)
        return None

    def why_gone(self, rank: int) -> str:
        """How a rank has ended; empty if it has not, as far as this one can see."""
        how = self.read(f"ended/{rank}")
        if how is not None:
            return f"ended: {how.decode(errors='replace')}"
        there = message_of(self.read(f"here/{rank}"), Presence)
        return "ended" if there is not None and there.is_dead else ""

    def waits_in(self, call: str) -> None:
        """Which call this rank has been waiting for others in; empty: it does not any more."""
        self.post(f"waits/{self.rank}", call.encode())

    # What was found

    def publish(self, result: bytes) -> None:
        """Leave what this rank has found for the first rank."""
        self.join()
        self.post(f"result/{self.rank}", result)

    def results(
        self,
        limit_s: float = RESULT_LIMIT_S,
        *,
        of_ended: Callable[[], bool] = lambda: False,
    ) -> tuple[dict[int, bytes], dict[int, str]]:
        """What the ranks have found, and why some have not told.

        ``of_ended``: whether no rank is waited for whose script still runs.
        """

        def without_result(board: Board, rank: int) -> str:
            if rank == self.rank:
                # What it had to tell it would have told before it asked the others.
                return f"rank {rank} has no result of its own"
            how = _end_of(board, rank)
            if not how:
                if self._over and self._only_waits_are_left(board):
                    call = (board.read(f"waits/{rank}") or b"").decode(errors="replace")
                    return (
                        f"rank {rank} waits in {call}, perhaps for this one, whose script is over"
                    )
                return _late(board, _RESULT, rank, 0.0) if of_ended() else ""
            # Its script is over; it may still be at its diagnosis.
            return how if _has_gone(board, rank) else ""

        # A rank that goes on alone still tells.
        return self._ask_all(_RESULT, without_result, limit_s)

    def _only_waits_are_left(self, board: Board) -> bool:
        """Whether each rank whose script is not over has been waiting in a call for a while."""
        return all(
            board.read(f"waits/{rank}") or _end_of(board, rank) for rank in range(self.world_size)
        )

    def reported(self) -> None:
        """One diagnosis of the ranks has been made: no other need be shown."""
        self.post("reported", b"")

    @property
    def reports(self) -> bool:
        """Whether this rank shows what was found.

        Rank 0 does; another one where nothing was reported and all ranks before it have gone, as
        far as it can see.
        """
        if self.rank == 0:
            return True
        return self.read("reported") is None and all(map(self._has_left, range(self.rank)))

    def _has_left(self, rank: int) -> bool:
        if rank in self.here.there():
            return self.here.has_left(rank)
        # Cut off from other hosts, those of this one have to show what they have.
        return bool(self.lost) or self.read(f"left/{rank}") is not None

    # The end

    def absent_rank_watch(self) -> AbsentRankWatch:
        """What tells of a rank that never comes, of this process; not yet started."""
        from gobrrr.jobs.absent_rank_watch import AbsentRankWatch

        return AbsentRankWatch(self)

    def end(self, how: str) -> None:
        """The program of this rank is over: nobody need wait for it."""
        if not self._over:
            self._over = True
            self.post(f"ended/{self.rank}", how.encode())

    def leave(self, how: str) -> None:
        """The last that a rank does, after its program has ended."""
        self.end(how)
        self.post(f"left/{self.rank}", b"")
        self.here.leave()


_RESULT = "result"


def _end_of(board: Board, rank: int) -> str:
    """How the program of a rank, or its process, has ended; empty if it has not."""
    how = board.read(f"ended/{rank}")
    if how is not None:
        return f"rank {rank} has ended ({how.decode(errors='replace')})"
    found = _presence(board, rank)
    return f"the process of rank {rank} has ended" if found is not None and found.is_dead else ""


def _has_gone(board: Board, rank: int) -> bool:
    """Whether nothing more is to be expected of a rank."""
    found = _presence(board, rank)
    return board.read(f"left/{rank}") is not None or (found is not None and found.is_dead)


def _presence(board: Board, rank: int) -> Presence | None:
    return message_of(board.read(f"here/{rank}"), Presence)


def _late(board: Board, key: str, rank: int, limit_s: float) -> str:
    """What a rank has not done in time."""
    if key == _RESULT:
        waited = f"within {whole_seconds(limit_s)}" if limit_s else "yet"
        return f"rank {rank} had not finished its diagnosis {waited}"
    same = "a step" if board.read(f"here/{rank}") is None else "the same step"
    return f"rank {rank} did not reach {same} within {whole_seconds(limit_s)}"


def job_of(environment: Mapping[str, str], program: str) -> Job | None:
    """The job that the launcher's environment tells of; ``None`` for a process on its own.

    Raises:
        InputError: the environment contradicts itself.
    """
    rank, size = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if not rank or not size:
        return None
    for name, value in (("RANK", rank), ("WORLD_SIZE", size)):
        if not value.isdecimal():
            raise InputError(f"{name}={value} in the environment is not a number")
    if int(size) < 2:
        return None
    if int(rank) >= int(size):
        raise InputError(
            f"RANK={rank} in the environment is not below WORLD_SIZE={size}: the ranks of a job "
            "count from 0"
        )
    return Job(environment, program=program)
