"""A process as a rank of a job, from before its script runs until after it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gobrrr.live.measurements import Agree
from gobrrr.live.script import FINISHED, ScriptExit
from gobrrr.measure.ending import ends_first
from gobrrr.measure.thread_effort import effort_of
from gobrrr.observe.replacement import put_in_place

if TYPE_CHECKING:
    import msgspec

    from gobrrr.jobs.absent_rank_watch import AbsentRankWatch
    from gobrrr.jobs.job import Job

# How long the first rank of a host may take to measure what the machine can do.
_CEILINGS_LIMIT_S = 300.0
_START_LIMIT_S = 60.0


class Moment(NamedTuple):
    """One moment by two clocks, in seconds: by the monotonic one of its host, and by the wall's.

    Only the first runs on evenly; events of a device are recorded by the second.
    """

    monotonic_s: float
    wall_s: float


class RankOfJob:
    """What a rank does beside what a process on its own does; without a ``job``, nothing.

    ``perfetto``: where the first rank writes a trace of all.
    """

    def __init__(self, job: Job | None, perfetto: Path | None = None) -> None:
        self.job = job
        self.perfetto = perfetto
        # When the script came to where the ranks first meet, without what gobrrr made it wait for,
        # nor its thread's waits for a processor: these are the machine's, and of any rank.
        self.joined: Moment | None = None
        self._waited_s = 0.0
        # Whether anything was left for the first rank.
        self.told = False
        # How the script ended; None: it runs, or has not begun.
        self.exit: ScriptExit | None = None
        self._watch: AbsentRankWatch | None = None

    @contextlib.contextmanager
    def machine_to_itself(self) -> Iterator[None]:
        """One rank of each host does what is inside first; then the others, together.

        Where it fails the others go on, and learn that this rank never comes.
        """
        job = self.job
        if job is None:
            yield
            return
        began, queued_s = time.monotonic(), _queued_s()
        job.here.wait_for_all("started", _START_LIMIT_S)
        if not job.here.first:
            job.here.wait_for_first("ceilings", _CEILINGS_LIMIT_S)
        try:
            yield
        except BaseException:
            self._let_others_go_on()
            job.leave("gobrrr failed before its script began")
            raise
        self._let_others_go_on()
        # What its thread queued in here is part of it already.
        self._waited_s = time.monotonic() - began - (_queued_s() - queued_s)

    def _let_others_go_on(self) -> None:
        if self.job is not None and self.job.here.first:
            self.job.here.say("ceilings")

    @property
    def agree(self) -> Agree | None:
        """What gives the largest of each figure among the ranks; ``None`` without others."""
        return None if self.job is None else self.job.agree

    @contextlib.contextmanager
    def in_script(self) -> Iterator[None]:
        """Notes when the script joins its process group, and tells the others when it is over."""
        if self.job is None:
            yield
            return
        how = "its script was stopped"
        self._watch = self.job.absent_rank_watch()
        self._watch.start()
        try:
            with self._noting_when_it_joins():
                yield
            how = FINISHED
        finally:
            self._watch.stop()
            # A launcher asks the others to end once one has, and the last removes what all wrote.
            with ends_first():
                self.job.leave(how)

    def script_is_over(self, exit_: ScriptExit) -> None:
        """Tells the others so: they need not wait for it, but for what it may still tell."""
        self.exit = exit_
        if self._watch is not None:
            self._watch.stop()
        if self.job is not None:
            self.job.end(exit_.how)

    def leave(self) -> None:
        """The process ends as soon as this returns."""
        if self.job is not None and self.exit is not None:
            self.job.leave(self.exit.how)

    @property
    def reports(self) -> bool:
        """Whether this process shows what was found."""
        return self.job is None or self.job.reports

    @contextlib.contextmanager
    def _noting_when_it_joins(self) -> Iterator[None]:
        import torch

        distributed = torch.distributed
        original = getattr(distributed, "init_process_group", None)
        if original is None:
            yield
            return

        def noted(*args: Any, **kwargs: Any) -> Any:
            if self.joined is None:
                waited_s = self._waited_s + _queued_s()
                self.joined = Moment(time.perf_counter() - waited_s, time.time() - waited_s)
            return original(*args, **kwargs)

        undo = put_in_place(distributed, "init_process_group", noted)
        try:
            yield
        finally:
            undo()

    def tell(self, record: msgspec.Struct) -> None:
        """Leave what was found, for the first rank."""
        if self.job is not None:
            import msgspec

            self.told = True
            self.job.publish(msgspec.json.encode(record))


def _queued_s() -> float:
    """How long this thread has waited for a processor so far; 0 where the system does not tell."""
    effort = effort_of(threading.get_ident())
    done = None if effort is None else effort.read()
    return 0.0 if done is None else done[1] * 1e-9
