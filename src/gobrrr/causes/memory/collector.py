"""Garbage collections that look through a large heap again and again: ``gc.freeze``."""

from __future__ import annotations

import math

from gobrrr.causes.cause import Cause, Found, saves_of_wall
from gobrrr.diagnosis.facts import Facts
from gobrrr.timeline.quantities import count, percent, time_text

# Fewer are not told to come again and again.
_FEWEST = 3
# Of a normal distribution, for an interval of 95 %.
_Z = 1.96


def _told(facts: Facts, *, by_hand: bool) -> Found | None:
    program = facts.program
    known = () if program is None else program.collections
    found = [each for each in known if each.by_hand == by_hand]
    times, total_s = sum(each.count for each in found), sum(each.total_s for each in found)
    if times < _FEWEST:
        return None
    steps = max(each.steps for each in found)
    lines = tuple(dict.fromkeys(line for each in found for line in each.lines))
    share = sum(each.share for each in found)
    what = "gc.collect() is called" if by_hand else "Python's garbage collector scans the heap"
    rare = ", in few steps, which a median does not show" if times < 0.5 * steps else ""
    longest_s = max(each.longest_s for each in found)
    return saves_of_wall(
        f"{what} {count(times)} times in {count(steps)} steps, each time for "
        f"{time_text(total_s / times)} (the longest {time_text(longest_s)}): {percent(share)} of "
        f"the wall time{rare}",
        lines[:3], min(0.7, 1 - _Z / math.sqrt(times)) * share, share, share,
    )  # fmt: skip


def _find(facts: Facts) -> Found | None:
    return _told(facts, by_hand=False)


def _called(facts: Facts) -> Found | None:
    return _told(facts, by_hand=True)


COLLECTOR = Cause(
    name="garbage_collector",
    title="garbage collection scans a large heap of objects again and again (gc.freeze)",
    words=("gc.freeze", "gc.disable", "garbage collection pauses", "gc generation 2",
           "straggler steps"),
    find=_find,
    remedy="gc.collect(); gc.freeze() once all that lives long is made (and gc.disable(), or a "
    "gc.collect() every thousand steps, at the same step on all ranks)",
)  # fmt: skip
COLLECTED_BY_HAND = Cause(
    name="gc_collect_each_step",
    title="gc.collect() is called in the loop (garbage collection)",
    words=("gc.collect", "gc.collect slow", "empty_cache gc.collect each step"),
    find=_called,
    remedy="leave gc.collect() out of the loop: it frees no tensor that is in no cycle. Where it "
    "has to be, gc.freeze() once all that lives long is made: it then looks through what is new",
)
