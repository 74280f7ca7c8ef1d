"""What a program's watch notes: collections and who asked for them, settings, tensors made."""

from __future__ import annotations

import gc
import sys
from itertools import count

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.live.bare_steps import BareBlock  # noqa: E402
from gobrrr.live.watch.program_watch import ProgramWatch  # noqa: E402
from gobrrr.observe import tensor_making  # noqa: E402
from gobrrr.observe.program_facts import CollectionsFact, MadeFact  # noqa: E402
from gobrrr.timeline.step_kinds import RECORDED, Call, CallKey, StepWindow  # noqa: E402

MS = 1_000_000


def release():
    """As a library's helper does."""
    gc.collect()


def collections_of(watch, *compiles):
    """Of windows of 10 ms, the first one before all."""
    windows = [
        StepWindow(10 * MS * i, 10 * MS * (i + 1), compiles=each)
        for i, each in enumerate((False, *compiles))
    ]
    return watch.facts(windows).collections


@pytest.fixture
def watch():
    """One whose clock is a millisecond further at each look, from the second window on."""
    ticks = count(10 * MS, MS)
    return ProgramWatch(lambda: next(ticks), lambda mark: None)


def collect(watch, generation=1):
    watch._on_gc("start", {"generation": generation})
    watch._on_gc("stop", {"generation": generation})


def test_collections_that_were_asked_for_are_told_apart(watch):
    collect(watch)
    gc.callbacks.append(watch._on_gc)
    try:
        release()
    finally:
        gc.callbacks.remove(watch._on_gc)
    by_itself, by_hand = collections_of(watch, False)
    assert isinstance(by_itself, CollectionsFact)
    assert (by_itself.generation, by_itself.count, by_itself.by_hand) == (1, 1, False)
    assert (by_hand.generation, by_hand.count, by_hand.by_hand) == (2, 1, True)


def test_what_a_compilation_leaves_is_not_collected_again_and_again(watch):
    for _ in range(15):
        collect(watch)
    # Five in each window: two take a millisecond each, with one between them.
    counted = [
        sum(each.count for each in collections_of(watch, *compiles))
        for compiles in ((False, False, False), (True, False, False))
    ]
    assert counted == [15, 5]


def test_collections_in_bare_steps_are_counted_with_those_between_windows(watch):
    for _ in range(10):
        collect(watch)
    # Windows end at 20 ms; a first step that ended at 20 ms is followed by three of 4 ms.
    bare = BareBlock([4 * MS] * 4, [0] * 4, [20 * MS + 4 * MS * i for i in range(4)])
    windows = [StepWindow(0, 10 * MS), StepWindow(10 * MS, 20 * MS)]
    ((told),) = watch.facts(windows, [bare]).collections
    assert (told.count, told.steps) == (10, 1 + 3)
    assert told.share == pytest.approx(10 / 22)


def test_what_the_collector_takes_is_no_time_of_a_line():
    times = iter((5 * MS, 35 * MS))
    made = ProgramWatch(lambda: next(times), lambda mark: None)
    for phase in ("start", "stop"):
        made._on_gc(phase, {"generation": 2})
    for now_ns, stands_for_ns in ((40 * MS, 50 * MS), (60 * MS, 20 * MS)):
        made.note(sys._getframe(), now_ns, stands_for_ns)
    assert [note.stands_for_ns for note in made._notes] == [20 * MS, 20 * MS]


def flags():
    return ProgramWatch(lambda: 0, lambda mark: None).facts([]).flags


def test_settings_are_as_the_program_left_them():
    assert not flags()["flushes_subnormals"]
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor flushes nothing")
    try:
        torch.utils.deterministic.fill_uninitialized_memory = False
        found = flags()
    finally:
        torch.set_flush_denormal(False)
        torch.utils.deterministic.fill_uninitialized_memory = True
    assert found["flushes_subnormals"] and not found["fill_uninitialized_memory"]
    assert flags()["fill_uninitialized_memory"] and not flags()["pinned"]


@pytest.mark.filterwarnings("ignore:To copy construct")
def test_a_tensor_of_another_type_is_a_conversion(monkeypatch):
    # Whatever this process compiled before.
    monkeypatch.setattr(tensor_making, "graphs_compiled", lambda: 0.0)
    made: list[MadeFact] = []
    end = tensor_making.watch_tensor_making(made)
    try:
        torch.tensor(torch.ones(3))
        torch.tensor(torch.ones(3), dtype=torch.float64)
        torch.tensor([1.0])
    finally:
        end()
    assert [(each.given, each.converts) for each in made] == [
        ("tensor", False), ("tensor", True), ("list of numbers", False)
    ]  # fmt: skip


def test_an_evaluation_that_was_seen_beside_a_recorded_step_alone_is_known(watch):
    def called(begin_ms, training, length_ms=1):
        key = CallKey("Net", 0, training, True, ((8, 4),))
        return Call(key, begin_ms * MS, (begin_ms + length_ms) * MS)

    windows = [
        StepWindow(10 * MS * i, 10 * MS * (i + 1), (called(10 * i, True),)) for i in range(9)
    ]
    beside = (called(90, True), called(93, False, 5))
    windows.append(StepWindow(90 * MS, 100 * MS, beside, phase=RECORDED))
    found = {call.training: call for call in watch.facts(windows).calls}
    # 8 windows of 10 ms with nothing attached; 9 with all but the first.
    assert found[True].count == 8 and found[True].share == pytest.approx(8 / 80)
    assert found[False].count == 1 and found[False].share == pytest.approx(5 / 90)
