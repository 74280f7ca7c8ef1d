"""Match the profiled pass with the recorded one: both hold the same ops in the same order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gobrrr.timeline.data import Int64

# The fewest insertions and deletions are searched for in full up to so many ...
MOST_EDITS = 32
# ... or more, of short steps: up to so many comparisons, one for each op and edit at most.
MOST_STEPS = 1_000_000
# Ops in a row (powers of two) that say where two steps go on alike.
WIDTHS = (32, 8, 2)

# Start in the names seen, start in those recorded, length.
Run = tuple[int, int, int]

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


def match(seen: Sequence[str], recorded: Sequence[str]) -> Int64:
    """For each name seen: the position of the recorded op that it is, -1 for none.

    The layers of a network repeat the same ops: the longest run that both sides have may be one
    layer off, so what counts is the fewest insertions and deletions. Where these are many, as in
    long steps of which one has more turns of a loop, they are the fewest to the next place where
    both go on alike: the time is linear in the ops, whatever differs.
    """
    number: dict[str, int] = {}
    one, other = (
        np.array([number.setdefault(recorded_as(name), len(number)) for name in names], np.int64)
        for names in (seen, recorded)
    )
    found = np.full(len(one), -1, np.int64)
    for a, b, size in _common_runs(one, other, MOST_STEPS // max(1, len(one) + len(other)), WIDTHS):
        found[a : a + size] = np.arange(b, b + size)
    return found


def _common_runs(seen: Int64, recorded: Int64, edits: int, widths: Sequence[int]) -> list[Run]:
    """Runs (start in ``seen``, start in ``recorded``, length) of a common subsequence.

    ``edits``: so many are looked for exactly; beyond, at words of these ``widths``.
    """
    head = _alike(seen, recorded)
    tail = _alike(seen[head:][::-1], recorded[head:][::-1])
    n, m = len(seen) - tail, len(recorded) - tail
    runs = [(0, 0, head)]
    if head < n and head < m:
        one, other = seen[head:n], recorded[head:m]
        middle = _fewest_edits(one.tolist(), other.tolist(), max(MOST_EDITS, edits))
        if middle is None:
            middle = _by_words(one, other, widths)
        runs += [(head + a, head + b, size) for a, b, size in middle]
    return [run for run in (*runs, (n, m, tail)) if run[2]]


def _alike(one: Int64, other: Int64) -> int:
    """How long both begin alike."""
    length, looked = min(len(one), len(other)), 16
    begin = 0
    # In growing parts: a short beginning is not paid for with the length of the rest.
    while begin < length:
        end = min(begin + looked, length)
        differ = one[begin:end] != other[begin:end]
        if differ.any():
            return begin + int(differ.argmax())
        begin, looked = end, 2 * looked
    return length


def _by_words(seen: Int64, recorded: Int64, widths: Sequence[int]) -> list[Run]:
    """Runs that begin where both have the same word next; what lies between has shorter ones."""
    if not widths:
        return []
    width, shorter = widths[0], widths[1:]
    one, other = _words(seen, recorded, width)
    runs: list[Run] = []
    a = b = 0
    while True:
        next_a, next_b = _next_word(one[a:], other[b:]) or (len(seen) - a, len(recorded) - b)
        between = _common_runs(seen[a : a + next_a], recorded[b : b + next_b], 0, shorter)
        runs += [(a + x, b + y, size) for x, y, size in between]
        a, b = a + next_a, b + next_b
        if (size := _alike(seen[a:], recorded[b:])) == 0:
            return runs
        runs.append((a, b, size))
        a, b = a + size, b + size


def _words(seen: Int64, recorded: Int64, width: int) -> tuple[Int64, Int64]:
    """A number for the word of ``width`` (a power of two) that begins at each place."""
    sides = (seen, recorded)
    length = 1
    while length < width:
        pairs = [side[:-length] * (2**31) + side[length:] for side in sides]
        numbers = np.unique(np.concatenate(pairs), return_inverse=True)[1].astype(np.int64)
        sides = (numbers[: len(pairs[0])], numbers[len(pairs[0]) :])
        length *= 2
    return sides


def _next_word(seen: Int64, recorded: Int64) -> tuple[int, int] | None:
    """The places of the next word that both have, the fewest places away; ``None``: there is none.

    In growing windows: what a search costs is in proportion to what it passes.
    """
    window = 64
    while len(seen) and len(recorded):
        one, first_one = np.unique(seen[:window], return_index=True)
        other, first_other = np.unique(recorded[:window], return_index=True)
        _, x, y = np.intersect1d(one, other, assume_unique=True, return_indices=True)
        if len(x):
            places = first_one[x] + first_other[y]
            nearest = int(places.argmin())
            return int(first_one[x[nearest]]), int(first_other[y[nearest]])
        if window >= max(len(seen), len(recorded)):
            return None
        window *= 2
    return None


def _fewest_edits(seen: list[int], recorded: list[int], most: int) -> list[Run] | None:
    """Myers, "An O(ND) difference algorithm and its variations" (1986), the greedy form.

    ``None`` if more than ``most`` are needed.
    """
    n, m = len(seen), len(recorded)
    furthest = {1: 0}
    history = []
    for edits in range(min(n + m, most) + 1):
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


def _walk_back(history: list[dict[int, int]], n: int, m: int) -> list[Run]:
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
