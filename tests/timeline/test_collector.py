"""Python's garbage collector is left as it was found."""

from __future__ import annotations

import gc

import pytest

from gobrrr.timeline.collector import uncollected


@pytest.mark.parametrize("collecting", [True, False])
def test_the_collector_is_left_as_it_was(collecting: bool) -> None:
    was = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        with pytest.raises(RuntimeError), uncollected():
            assert not gc.isenabled()
            raise RuntimeError
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if was else gc.disable)()
