"""What a process group is called in a report."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

# What torch calls the default group, groups of a mesh's dimensions, and those nobody described.
DEFAULT_GROUP, _OF_MESH, _UNDESCRIBED = "default_pg", "mesh_", ("", "undefined")
# More ranks that follow no rule are not listed.
_MOST_LISTED = 8


def group_title(name: str, ranks: Sequence[int], described: str) -> str:
    """What a process group is called in a report.

    ``world`` for the default group, ``dp (ranks 0-3)`` for one of a mesh's dimension, ``group 3
    (ranks 0, 2)`` for others. The ranks tell groups of one dimension apart.

    Args:
        name: torch's own of it.
        ranks: its members, ascending, one at least.
        described: as torch describes it (``default_pg``, ``mesh_dp``); empty if it does not.
    """
    if described == DEFAULT_GROUP:
        return "world"
    title = f"group {name}" if described in _UNDESCRIBED else described.removeprefix(_OF_MESH)
    steps = {later - earlier for earlier, later in itertools.pairwise(ranks)}
    if steps == {1}:
        return f"{title} (ranks {ranks[0]}-{ranks[-1]})"
    if len(ranks) <= _MOST_LISTED:
        return f"{title} (rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))})"
    if len(steps) == 1:
        return f"{title} (every {steps.pop()} ranks, {ranks[0]}-{ranks[-1]})"
    # Not told apart by its ranks, but by its name.
    apart = "" if described in _UNDESCRIBED else f"group {name}, "
    return f"{title} ({apart}{len(ranks)} ranks)"
