"""Match the profiled pass with the recorded one: both hold the same ops in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from gobrrr.capture.profile import RawEvents
from gobrrr.timeline.data import Int64
from gobrrr.timeline.nesting import inherited_minimum, parents

# Beyond this, what differs in the middle is left unmatched rather than searched in n^2.
MOST_DIFFERENT = 4000

# Autograd sums two gradients in place where nothing else holds the first, but never while a
# dispatch mode watches (``can_accumulate_inplace`` in torch/csrc/autograd/input_buffer.cpp).
RECORDED_AS = {"aten::add_": "aten::add"}


def candidate_rows(step: RawEvents, recorded_names: set[str]) -> Int64:
    """Rows of the events that a dispatch recorder would have seen, in order.

    These are the outermost events with a recorded name in the step's thread: an ``aten::copy_``
    inside an ``aten::_to_copy`` is part of it, a composite such as ``aten::linear`` is not seen.
    """
    wanted_names = np.array(
        [name in recorded_names or RECORDED_AS.get(name) in recorded_names for name in step.names],
        dtype=bool,
    )
    if not len(step):
        return np.empty(0, np.int64)
    wanted = wanted_names[step.name] & (step.thread == 0) & ~step.annotation
    parent = parents(step.start_ns, step.end_ns, step.thread)
    # The least row index among the wanted ones that enclose a row, itself included: parents come
    # first, so a row is outermost exactly if that is the row itself.
    rows = np.arange(len(step), dtype=np.int64)
    outermost = inherited_minimum(parent, np.where(wanted, rows, len(step)))
    return np.flatnonzero(wanted & (outermost == rows))


def match(seen: Sequence[str], recorded: Sequence[str]) -> NDArray[np.int64]:
    """For each name seen: the position of the recorded op that it is, -1 for none."""
    seen = [RECORDED_AS.get(name, name) for name in seen]
    recorded = [RECORDED_AS.get(name, name) for name in recorded]
    found = np.full(len(seen), -1, np.int64)
    common = min(len(seen), len(recorded))
    head = 0
    while head < common and seen[head] == recorded[head]:
        head += 1
    tail = 0
    while tail < common - head and seen[-1 - tail] == recorded[-1 - tail]:
        tail += 1
    found[:head] = np.arange(head)
    if tail:
        found[len(seen) - tail :] = np.arange(len(recorded) - tail, len(recorded))
    middle_seen = seen[head : len(seen) - tail]
    middle_recorded = recorded[head : len(recorded) - tail]
    if max(len(middle_seen), len(middle_recorded)) <= MOST_DIFFERENT:
        matcher = SequenceMatcher(None, middle_seen, middle_recorded, autojunk=False)
        for a, b, size in matcher.get_matching_blocks():
            found[head + a : head + a + size] = np.arange(head + b, head + b + size)
    return found
