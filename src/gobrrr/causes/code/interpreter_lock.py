"""Another Python thread that holds the interpreter's lock while steps want it."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves_of_wall
from gobrrr.diagnosis.facts import Facts
from gobrrr.timeline.quantities import percent

# A thread that computes for less of the time is in nobody's way.
_BUSY = 0.1
# Where the steps' own thread sleeps for less of the time, nothing shows that it waits.
_WAITS = 0.03


def _find(facts: Facts) -> Found | None:
    program = facts.program
    threads = () if program is None else program.threads
    busy = [thread for thread in threads if thread.busy >= _BUSY]
    # A thread that waits for the lock sleeps, in the midst of whatever line or op.
    slept = 0.0 if program is None or program.slept is None else program.slept
    # Where it sleeps at a line of its own (a queue, a timer, other ranks), that says why.
    known_s = facts.leaf_s("overhead.asleep", "overhead.data_loading", "memory.network",
                           "memory.network_wait")  # fmt: skip
    slept -= known_s / facts.step_s
    if not busy or slept < _WAITS:
        return None
    high = min(slept, sum(thread.busy for thread in busy))
    if facts.on_gpu:
        # The thread also sleeps while it waits for kernels, which no lock keeps back.
        idle_s = facts.leaf_s("overhead.python", "overhead.dispatch")
        high = min(high, idle_s / facts.step_s * facts.steps_share)
        if high < _WAITS:
            return None
    return saves_of_wall(
        f"the thread {busy[0].name} computes for {percent(busy[0].busy)} of the time and holds the "
        f"interpreter's lock while it runs Python; the thread of the steps sleeps for "
        f"{percent(slept)} of the time",
        tuple(dict.fromkeys(thread.line for thread in busy))[:3],
        0.0, 0.7 * high, high,
    )  # fmt: skip


INTERPRETER_LOCK = Cause(
    name="interpreter_lock",
    title="another thread holds the interpreter's lock (GIL)",
    words=("GIL", "global interpreter lock", "background thread slows training", "prefetch thread"),
    find=_find,
    remedy="move that thread's work into a process (multiprocessing, DataLoader workers)",
)
