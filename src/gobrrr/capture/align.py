"""Match the profiled pass with the recorded one: both hold the same ops in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

# Steps that differ by more insertions and deletions than this are no longer compared in full.
MOST_EDITS = 1000
# Beyond this, what differs in the middle is left unmatched rather than searched in n^2.
MOST_DIFFERENT = 4000

# PyTorch works in place where nothing else can tell, but never while a dispatch mode watches:
# autograd sums gradients (``can_accumulate_inplace`` in torch/csrc/autograd/input_buffer.cpp), and
# derivatives are written in place unless ``isTensorSubclassLike`` (FunctionsManual.cpp).
RECORDED_AS = {
    "aten::add_": "aten::add",
    "aten::sub_": "aten::sub",
    "aten::mul_": "aten::mul",
    "aten::div_": "aten::div",
    "aten::masked_fill_": "aten::masked_fill",
    "aten::index_add_": "aten::index_add",
    "aten::index_copy_": "aten::index_copy",
    "aten::_index_put_impl_": "aten::index_put",
    "aten::put_": "aten::put",
    "aten::scatter_": "aten::scatter",
    "aten::scatter_add_": "aten::scatter_add",
}


def recorded_as(name: str) -> str:
    """The name that a recorder sees an operator under, which a profiler may see work in place."""
    return RECORDED_AS.get(name, name)


def match(seen: Sequence[str], recorded: Sequence[str]) -> NDArray[np.int64]:
    """For each name seen: the position of the recorded op that it is, -1 for none."""
    seen = [recorded_as(name) for name in seen]
    recorded = [recorded_as(name) for name in recorded]
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
    for a, b, size in _common_runs(middle_seen, middle_recorded):
        found[head + a : head + a + size] = np.arange(head + b, head + b + size)
    return found


def _common_runs(seen: list[str], recorded: list[str]) -> list[tuple[int, int, int]]:
    """Runs (start in ``seen``, start in ``recorded``, length) of a longest common subsequence.

    The layers of a network repeat the same ops: the longest run that both sides have may be one
    layer off, so what counts is the fewest insertions and deletions.
    """
    runs = _fewest_edits(seen, recorded)
    if runs is not None:
        return runs
    if max(len(seen), len(recorded)) > MOST_DIFFERENT:
        return []
    blocks = SequenceMatcher(None, seen, recorded, autojunk=False).get_matching_blocks()
    return [(block.a, block.b, block.size) for block in blocks]


def _fewest_edits(seen: list[str], recorded: list[str]) -> list[tuple[int, int, int]] | None:
    """Myers, "An O(ND) difference algorithm and its variations" (1986), the greedy form.

    ``None`` if more than ``MOST_EDITS`` are needed.
    """
    n, m = len(seen), len(recorded)
    furthest = {1: 0}
    history = []
    for edits in range(min(n + m, MOST_EDITS) + 1):
        history.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            x = _entered(furthest, diagonal, edits)
            y = x - diagonal
            while x < n and y < m and seen[x] == recorded[y]:
                x += 1
                y += 1
            furthest[diagonal] = x
            if x >= n and y >= m:
                return _walk_back(history, n, m)
    return None


def _entered(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """Where a path with this many edits enters the diagonal: down from above or from the left."""
    below, above = furthest.get(diagonal - 1, -1), furthest.get(diagonal + 1, -1)
    if diagonal == -edits or (diagonal != edits and below < above):
        return above
    return below + 1


def _walk_back(history: list[dict[int, int]], n: int, m: int) -> list[tuple[int, int, int]]:
    runs = []
    x, y = n, m
    for edits in range(len(history) - 1, -1, -1):
        diagonal = x - y
        start = _entered(history[edits], diagonal, edits)
        if x > start:
            runs.append((start, start - diagonal, x - start))
        came_down = start == history[edits].get(diagonal + 1, -1) and (
            diagonal == -edits
            or (diagonal != edits and history[edits].get(diagonal - 1, -1) < start)
        )
        x, y = (start, start - diagonal - 1) if came_down else (start - 1, start - diagonal)
    return runs[::-1]
