"""Whether a process has joined a process group."""

from __future__ import annotations

import sys
import types

import pytest

from gobrrr.jobs.boards import store_of_program
from gobrrr.live.profiles.collective_calls import group_titles, own_rank, process_groups
from gobrrr.live.profiles.collective_waits import ranges_around_waits
from gobrrr.observe.joined_group import joined_distributed


def test_a_process_without_torch_has_joined_none_and_does_not_load_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    assert joined_distributed() is None
    assert store_of_program() is None
    assert own_rank() is None
    assert process_groups() == {}
    assert group_titles() == {}
    ranges_around_waits()()
    assert "torch" not in sys.modules


def test_a_torch_that_is_still_loading_has_joined_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", types.ModuleType("torch.distributed"))
    assert joined_distributed() is None


@pytest.mark.parametrize("joined", [False, True])
def test_who_has_joined(monkeypatch: pytest.MonkeyPatch, joined: bool) -> None:
    distributed = types.ModuleType("torch.distributed")
    distributed.is_initialized = lambda: joined  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    assert joined_distributed() is (distributed if joined else None)
