"""Another Python thread that holds the interpreter's lock while steps want it."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.fixes.facts import Facts
from gobrrr.timeline.quantities import percent, time_text

# A thread that computes for less of the time is in nobody's way.
_BUSY = 0.1
# Where the steps' own thread is asleep for less of the step, nothing shows that it waits.
_WAITS = 0.03


def _find(facts: Facts) -> Found | None:
    program = facts.program
    threads = () if program is None else program.threads
    busy = [thread for thread in threads if thread.busy >= _BUSY]
    # What a thread waits for the lock it sleeps, in the midst of whatever line or op.
    asleep_s = facts.leaf_s("overhead.asleep")
    host_s = facts.leaf_s("overhead.python", "overhead.dispatch", "overhead.asleep")
    if not busy or asleep_s < _WAITS * facts.step_s:
        return None
    taken = min(1.0, sum(thread.busy for thread in busy))
    high_s = min(taken * facts.step_s, host_s)
    return saves(
        f"the thread {busy[0].name} runs Python for {percent(busy[0].busy)} of the time, and holds "
        f"the interpreter's lock meanwhile; the thread of the steps sleeps {time_text(asleep_s)} "
        "of each step",
        tuple(dict.fromkeys(thread.line for thread in busy))[:3],
        0.0, min(asleep_s, high_s), high_s,
    )  # fmt: skip


INTERPRETER_LOCK = Cause(
    name="interpreter_lock",
    title="another thread holds the interpreter's lock (GIL)",
    words=("GIL", "global interpreter lock", "background thread slows training", "prefetch thread"),
    find=_find,
    remedy="move that thread's work into a process (multiprocessing, DataLoader workers)",
)
