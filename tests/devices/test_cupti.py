"""When PyTorch's profiler is told to let go of a GPU."""

from __future__ import annotations

import gc
import os

import pytest

torch = pytest.importorskip("torch")
from gobrrr.devices.cuda import cupti  # noqa: E402
from gobrrr.devices.cuda.cupti import TEARDOWN, Profiler, detach_after_profile  # noqa: E402
from gobrrr.measure import torch_profiler  # noqa: E402

pytestmark = pytest.mark.torch


class MadeUpGraph:
    """Stands for a CUDA graph."""


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that what a test leaves behind is taken back.
    monkeypatch.setenv(TEARDOWN, "")
    monkeypatch.delenv(TEARDOWN)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", MadeUpGraph)
    # Those of earlier tests.
    gc.collect()
    monkeypatch.setattr(torch_profiler, "others_ran", False)
    for known in ("_is_ours", "_stays_attached"):
        monkeypatch.setattr(cupti, known, False)


@pytest.mark.parametrize(
    ("version", "detaches"),
    [("13.0", True), ("12.6", True), ("12.4", False), ("11.8", False), (None, False)],
)
def test_from_the_version_on_in_which_graphs_survive_it(
    version: str | None, detaches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", version)
    assert detach_after_profile() is detaches
    assert os.environ.get(TEARDOWN) == ("1" if detaches else None)


def test_not_where_a_graph_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    graph = MadeUpGraph()
    graph.kept = graph  # type: ignore[attr-defined]
    assert not detach_after_profile()
    assert TEARDOWN not in os.environ


@pytest.mark.parametrize("given", ["0", "1"])
def test_a_setting_is_kept(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv(TEARDOWN, given)
    assert detach_after_profile() is (given == "1")
    assert os.environ[TEARDOWN] == given


@pytest.mark.parametrize("whose", ["the program's", "gobrrr's"])
def test_not_once_a_profile_has_run_without_it(whose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.live.watch.program_profilers import ProgramProfilers

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    undo = ProgramProfilers().watch(lambda: None)
    given = {"activities": [torch.profiler.ProfilerActivity.CPU]}
    try:
        with torch_profiler.profiler_of_torch(**given):
            assert not torch_profiler.others_ran
        if whose == "the program's":
            with torch.profiler.profile(**given):
                pass
        else:
            graph = MadeUpGraph()
            assert not detach_after_profile()
            del graph
    finally:
        undo()
    assert not detach_after_profile() and TEARDOWN not in os.environ


def test_it_is_taken_back_for_good_where_nothing_was_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    profiler = Profiler("cuda", "CUDA")
    monkeypatch.setenv(TEARDOWN, "1")
    assert not profiler.may_see_more() and os.environ[TEARDOWN] == "1"
    monkeypatch.delenv(TEARDOWN)
    assert detach_after_profile() and profiler.may_see_more()
    assert TEARDOWN not in os.environ
    assert not detach_after_profile() and not profiler.may_see_more()
