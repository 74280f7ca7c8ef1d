"""Which numbers of ranks are refused before any is started."""

from __future__ import annotations

import pytest

from gobrrr.jobs.rank_limit import refuse_too_many_ranks
from gobrrr.timeline.errors import InputError


@pytest.mark.parametrize(
    ("ranks", "processors", "memory_bytes"),
    [
        # A job of a full node, tried out on a laptop.
        (8, 2, 8e9),
        (8, 1, None),
        (64, 2, 24e9),
        # One rank can always be tried.
        (1, 1, 50e6),
    ],
)
def test_more_ranks_than_processors_are_no_mistake(
    ranks: int, processors: int, memory_bytes: float | None
) -> None:
    refuse_too_many_ranks(ranks, processors=processors, memory_bytes=memory_bytes)


@pytest.mark.parametrize(
    ("processors", "memory_bytes", "limit"),
    [
        (2, 24e9, r"at most 128 \(64 for each of its 2 processors\)"),
        (2, None, r"at most 128 \(64 for each of its 2 processors\)"),
        (1, 24e9, r"at most 64 \(with its one processor\)"),
        (2, 4e9, r"at most 40 \(100 MB for each in its 4\.00 GB of memory\)"),
    ],
)
def test_the_limit_says_what_sets_it(
    processors: int, memory_bytes: float | None, limit: str
) -> None:
    with pytest.raises(InputError, match=rf"^100,000 processes are more than .*: {limit}; give"):
        refuse_too_many_ranks(100_000, processors=processors, memory_bytes=memory_bytes)
