"""Descriptors that the program may close, and whose numbers it may have again."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest

from gobrrr.live.farewell import heard_before_it_leaves
from gobrrr.measure.own_descriptor import OwnDescriptor
from gobrrr.measure.thread_effort import EffortOfSteps, effort_of


def test_what_the_program_opened_under_the_same_number_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ours").write_text("x")
    own = OwnDescriptor(os.open(tmp_path / "ours", os.O_RDONLY))
    assert own.is_own()
    os.close(own.number)
    assert not own.is_own()
    other = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    assert other == own.number
    assert not own.is_own()
    own.close()
    os.fstat(other)
    os.close(other)


def test_it_is_closed_once(tmp_path: Path) -> None:
    (tmp_path / "ours").write_text("x")
    own = OwnDescriptor(os.open(tmp_path / "ours", os.O_RDONLY))
    own.close()
    with pytest.raises(OSError):
        os.fstat(own.number)
    own.close()


def descriptors() -> set[int]:
    gc.collect()  # which closes those of other tests
    found = [int(each.name) for each in Path("/proc/self/fd").iterdir()]
    return {number for number in found if OwnDescriptor(number).is_own()}


def opened_again(numbers: set[int], path: Path) -> list[int]:
    """Files of the program's with these numbers, which it closed."""
    for number in numbers:
        os.close(number)
    files = [os.open(path / str(n), os.O_RDWR | os.O_CREAT) for n in range(len(numbers))]
    assert set(files) == numbers
    return files


def test_a_program_that_closes_what_it_finds_keeps_its_own_files(tmp_path: Path) -> None:
    before = descriptors()
    with heard_before_it_leaves(lambda exit_: None):
        files = opened_again(descriptors() - before, tmp_path)
        assert len(files) == 2
    for file in files:
        assert os.fstat(file).st_size == 0
        os.close(file)


def test_what_a_closed_file_would_tell_is_unknown(tmp_path: Path) -> None:
    before = descriptors()
    effort, steps = effort_of(threading.get_ident()), EffortOfSteps()
    steps.step_begins(first=True)
    closed = descriptors() - before
    if effort is None or not closed:
        pytest.skip("the system does not tell of threads")
    files = opened_again(closed, tmp_path)
    assert effort.read() is None
    assert effort.is_runnable() is None
    # What the program's file says is not taken for it, wherever it waited.
    threading.Event().wait(0.01)
    assert [step.slept_ns for step in steps.of_step(10_000_000)] == [None]
    for file in files:
        os.close(file)
