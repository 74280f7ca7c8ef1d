"""A rank that never comes: who waits for it, in which call, and what it does instead.

Each rank of a job asks its main thread at intervals where it is. One that has been in one call for
``LIMIT_S`` in which it waits for other ranks asks them all, and prints one sentence of the answers.
Nothing else changes: no rank is woken, stopped or made to wait.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import msgspec

from gobrrr.jobs.boards import message_of
from gobrrr.jobs.call_in_progress import CallInProgress, call_in_progress
from gobrrr.jobs.job import Job
from gobrrr.measure.thread_effort import ThreadEffort, effort_of
from gobrrr.observe.sampler import MainThreadAsker
from gobrrr.observe.source_lines import blamed_line
from gobrrr.timeline.quantities import whole_seconds

# From how long a wait on it is told, and how often each rank looks, in seconds.
LIMIT_S = 60.0
LOOK_S = 2.0
# From how long a wait on a rank whose script is over knows of it, and stays no longer for the sake
# of the one that waits: it may be what that one waits for.
WAITS_S = 10.0
# How many looks the others have to answer in.
_LOOKS_TO_ANSWER = 4
# A thread that used less than this share of the time slept.
_ASLEEP_BELOW = 0.1
_MOST_NAMED = 4
_QUESTION = "absent/question"


class Question(msgspec.Struct, frozen=True):
    """Which rank asks where the others are, and for which time."""

    rank: int
    number: int


class Answer(msgspec.Struct, frozen=True):
    """Where a rank is: ``doing`` is one of the words below, ``waits_in`` the call it waits in."""

    doing: str
    line: str | None
    waits_in: str = ""


WAITS, ASLEEP, RUNNING, MEASURES = "waiting", "asleep", "running", "measuring"


class AbsentRankWatch:
    """Runs beside the script of one rank, from ``start`` to ``stop``.

    Args:
        job: the rank, and where it leaves messages for the others.
        say: prints a sentence.
        clock: in seconds.
        frame: of the main thread; called only while that is in one call.
    """

    def __init__(
        self,
        job: Job,
        *,
        say: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        frame: Callable[[], FrameType | None] | None = None,
    ) -> None:
        self._job = job
        self._say = say or _on_stderr
        self._clock = clock
        self._thread = threading.main_thread().ident or 0
        self._frame = frame or (lambda: sys._current_frames().get(self._thread))
        self._effort: ThreadEffort | None = None
        self._ran: tuple[float, int] | None = None
        self._slept = False
        self._line: str | None = None
        self._heard_at = clock()
        self._answered: Question | None = None
        self._asked: Question | None = None
        self._asked_at = 0.0
        self._number = 0
        # Of the call that is in progress: when there is next something to say of it, and who says
        # it for this rank too.
        self._quiet_until = 0.0
        self._left_to: Question | None = None
        self._said: set[str] = set()
        self._waits = False
        self._asker = MainThreadAsker(LOOK_S, self.heard, self._look_safely)

    def start(self) -> None:
        """Begin to look."""
        self._effort = effort_of(self._thread)
        self._asker.start()

    def stop(self) -> None:
        """Look no more. Waits for nothing: the others' store may be gone."""
        self._asker.stop()

    def heard(self, frame: FrameType, asked_ns: int) -> None:
        """The main thread is between two instructions: it is in no call that does not return."""
        self._line, self._heard_at = blamed_line(frame), self._clock()

    def _look_safely(self) -> None:
        # A store that has gone, a folder that was removed: there is nobody to tell.
        with contextlib.suppress(OSError, RuntimeError):
            self.look()

    def look(self) -> None:
        """Answer what another asks; ask, and tell, if this rank has waited for too long."""
        self._note_effort()
        now = self._clock()
        in_call_s = now - self._heard_at
        # A question has waited for a look at least: nothing but this call goes on, and the frames
        # of shorter ones may be half made.
        own = call_in_progress(self._frame()) if in_call_s > 2 * LOOK_S else None
        waits = own is not None and bool(own.waits_in)
        if not waits:
            self._asked, self._left_to, self._quiet_until = None, None, 0.0
        waits_long = waits and in_call_s >= LIMIT_S
        self._tell_that_it_waits(own.waits_in if own is not None and in_call_s >= WAITS_S else "")
        cut_off = self._job.cut_off
        if cut_off:
            # There is no place to ask, and none to be asked: each tells of itself.
            if own is not None and waits_long and now >= self._quiet_until:
                self._quiet_until = float("inf")
                told = (self._job.rank, own, cut_off)
                self._say_once(alone_sentence(*told), alone_sentence(*told, waited_s=in_call_s))
            return
        question = self._question()
        if question is not None and question not in (self._asked, self._answered):
            self._answered = question
            self._job.post(_answer_key(question, self._job.rank), _encoded(self._answer(own)))
            if waits and (self._asked is None or question.rank < self._job.rank):
                # It tells what there is to tell of both.
                self._asked, self._left_to, self._quiet_until = None, question, now + LIMIT_S
        if own is None or not waits_long or now < self._quiet_until:
            return
        if self._left_to is not None and self._job.read(_told_key(self._left_to)) is not None:
            self._quiet_until = float("inf")
            return
        if self._asked is None:
            self._number += 1
            self._asked = Question(self._job.rank, self._number)
        if question != self._asked:
            # Not asked yet, or another rank asked at the same moment.
            self._asked_at = now
            self._job.post(_QUESTION, _encoded(self._asked))
            return
        self._tell(own, in_call_s, self._asked)

    def _tell_that_it_waits(self, call: str) -> None:
        if bool(call) != self._waits:
            self._waits = bool(call)
            self._job.waits_in(call)

    def _tell(self, own: CallInProgress, in_call_s: float, asked: Question) -> None:
        answers, gone = self._answers(asked)
        silent = self._job.world_size - 1 - len(answers) - len(gone)
        if silent and self._clock() - self._asked_at < _LOOKS_TO_ANSWER * LOOK_S:
            return
        if any(answer.doing == MEASURES for answer in answers.values()):
            # It comes back from there within limits of its own.
            self._asked = None
            return
        self._quiet_until = float("inf")
        self._job.post(_told_key(asked), b"")
        told = (self._job.rank, self._job.world_size, own, answers, gone)
        self._say_once(sentence(*told), sentence(*told, waited_s=in_call_s))

    def _say_once(self, meaning: str, text: str) -> None:
        # However often the script comes to wait so.
        if meaning not in self._said:
            self._said.add(meaning)
            self._say(text)

    def _question(self) -> Question | None:
        return message_of(self._job.read(_QUESTION), Question)

    def _answer(self, own: CallInProgress | None) -> Answer:
        if own is None:
            return Answer(RUNNING, self._line)
        if own.of_gobrrr:
            return Answer(MEASURES, own.line)
        if own.waits_in:
            return Answer(WAITS, own.line, own.waits_in)
        return Answer(ASLEEP if self._slept else RUNNING, own.line)

    def _answers(self, question: Question) -> tuple[dict[int, Answer], dict[int, str]]:
        """What the other ranks answered, and why some never will."""
        answers: dict[int, Answer] = {}
        gone: dict[int, str] = {}
        for rank in range(self._job.world_size):
            if rank == self._job.rank:
                continue
            answer = message_of(self._job.read(_answer_key(question, rank)), Answer)
            if answer is not None:
                answers[rank] = answer
            elif why := self._job.why_gone(rank):
                gone[rank] = why
        return answers, gone

    def _note_effort(self) -> None:
        if self._effort is None:
            return
        now, done = self._clock(), self._effort.read()
        if done is None:
            # It is said to run, as where the system never told.
            self._effort, self._slept = None, False
            return
        if self._ran is not None and now > self._ran[0]:
            self._slept = done[0] - self._ran[1] < _ASLEEP_BELOW * (now - self._ran[0]) * 1e9
        self._ran = now, done[0]


def _answer_key(question: Question, rank: int) -> str:
    return f"absent/{question.rank}.{question.number}/{rank}"


def _told_key(question: Question) -> str:
    return f"absent/told/{question.rank}.{question.number}"


def _encoded(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message)


def _on_stderr(text: str) -> None:
    print(f"gobrrr: {text}", file=sys.stderr, flush=True)


# The sentence


def sentence(
    rank: int,
    world_size: int,
    own: CallInProgress,
    answers: Mapping[int, Answer],
    gone: Mapping[int, str],
    *,
    waited_s: float = LIMIT_S,
) -> str:
    """Who waits, in which call, and for whom.

    Args:
        rank: that asked.
        own: the call that it is in.
        world_size: how many ranks the job has.
        answers: of the others.
        gone: why some answer no more.
        waited_s: how long it has been in that call.
    """
    places = {rank: Answer(WAITS, own.line, own.waits_in), **answers}
    waiting: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    missing: dict[str, list[int]] = defaultdict(list)
    for other in range(world_size):
        place = places.get(other)
        if place is None:
            missing[
                gone.get(other) or "no answer: it has ended, hangs in native code or never started"
            ].append(other)
        elif place.doing == WAITS:
            waiting[place.waits_in, place.line].append(other)
        else:
            missing[f"{place.doing}{_at(place.line)}"].append(other)
    limit = whole_seconds(waited_s)
    first = min(waiting, key=lambda call: waiting[call][0])
    where = f"in {first[0]}{_at(first[1])}"
    if missing:
        absent = ", ".join(f"{_named(who)} ({does})" for does, who in missing.items())
        also = "".join(
            f" ({_named(who)} in {call}{_at(line)})"
            for (call, line), who in waiting.items()
            if (call, line) != first
        )
        verb = "has" if len(waiting[first]) == 1 else "have"
        return f"{_named(waiting[first])} {verb} waited for {limit} {where}{also} for {absent}."
    if len(waiting) > 1:
        each = "; ".join(
            f"{_named(who)} in {call}{_at(line)}" for (call, line), who in waiting.items()
        )
        return f"the ranks have waited for each other for {limit}: {each}."
    return (
        f"all {world_size} ranks have waited for {limit} {where}, and none is missing: they wait "
        "for their network, or have called different numbers of collectives before."
    )


def alone_sentence(
    rank: int, own: CallInProgress, cut_off: str, *, waited_s: float = LIMIT_S
) -> str:
    """Who waits, and in which call, where it cannot ask the others.

    Args:
        rank: that waits.
        own: the call that it is in.
        cut_off: why it cannot ask.
        waited_s: how long it has been in that call.
    """
    return (
        f"rank {rank} has waited for {whole_seconds(waited_s)} in {own.waits_in}{_at(own.line)}; "
        f"what the other ranks do is unknown: {cut_off}."
    )


def _at(line: str | None) -> str:
    return f" at {line}" if line else " outside the script's own lines"


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= _MOST_NAMED:
        return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
    return f"{len(ranks)} ranks: {', '.join(map(str, ranks[:_MOST_NAMED]))}, ..."
