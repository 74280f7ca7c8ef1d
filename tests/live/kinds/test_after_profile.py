"""Whether steps are slower once a profiler has been used."""

from __future__ import annotations

import pytest

from gobrrr.live.kinds.after_profile import slower_since_profiled

MS = 1_000_000


def block(length_ms: float, count: int = 15, spread_ms: float = 0.0) -> list[int]:
    """Lengths that go up and down around one."""
    return [round((length_ms + spread_ms * (i % 5 - 2)) * MS) for i in range(count)]


def test_steps_that_are_slower_beyond_their_spread_are_told() -> None:
    before, after = block(3.2, spread_ms=0.02), block(3.84, spread_ms=0.02)
    (notice,) = slower_since_profiled([before, after])
    assert notice.startswith("Steps are 20 % slower since the profiler was used")
    assert "3.20 ms before it and 3.84 ms after it" in notice


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (block(3.2), block(3.25)),
        (block(3.2, spread_ms=0.3), block(3.5, spread_ms=0.3)),
        (block(3.2), block(2.0)),
        (block(3.2, count=4), block(6.4)),
        (block(3.2), []),
    ],
    ids=["as two runs differ", "within the spread", "faster", "too few", "none after"],
)
def test_what_chance_explains_is_not(before: list[int], after: list[int]) -> None:
    assert slower_since_profiled([before, after]) == []
