"""The lengths of timed steps are the device's, however often a block is opened."""

from __future__ import annotations

import pytest

from gobrrr.devices.card import CardState
from gobrrr.live.measurements import Measurements
from gobrrr.live.timed_block import TimedBlock
from gobrrr.timeline.errors import UserCodeError


class FakeDevice:
    def __init__(self, lengths: list[int] | None) -> None:
        self.lengths = lengths

    def card_state(self) -> None: ...

    def start_block(self) -> None: ...

    def mark(self) -> None: ...

    def driver_calls(self) -> None: ...

    def end_block(self) -> list[int]:
        if self.lengths is None:
            raise UserCodeError("the GPU failed")
        return self.lengths


def timed(result: Measurements, device: FakeDevice, block: int, steps: int) -> TimedBlock:
    opened = TimedBlock(device, block)
    for step in range(steps):
        # As a session keeps them: the host's length, and which window of the log it is.
        result.plain_ns[block].append(1)
        result.plain_windows[block].append(100 + step)
        opened.mark()
    return opened


def test_a_second_block_of_the_same_list_keeps_the_first() -> None:
    result = Measurements()
    timed(result, FakeDevice([10, 20]), 1, 2).end(result)
    timed(result, FakeDevice([30, 40, 50]), 1, 3).end(result)
    assert result.plain_ns == [[], [10, 20, 30, 40, 50]]
    assert result.plain_windows == [[], [100, 101, 100, 101, 102]]


def test_the_card_is_asked_before_and_after_each_block() -> None:
    class FakeCard(FakeDevice):
        def __init__(self) -> None:
            super().__init__([10, 20])
            self.calls: list[str] = []

        def card_state(self) -> CardState:
            self.calls.append("card")
            return CardState(at_ns=len(self.calls))

        def start_block(self) -> None:
            self.calls.append("start")

        def end_block(self) -> list[int]:
            self.calls.append("end")
            return super().end_block()

    result, device = Measurements(), FakeCard()
    timed(result, device, 0, 2).end(result)
    timed(result, device, 1, 2).cut_short(result)
    # Not within a block: it would be a part of its first step.
    assert device.calls == ["card", "start", "end", "card"] * 2
    assert [(span.before.at_ns, span.after.at_ns, span.steps) for span in result.card] == [
        (1, 4, 2), (5, 8, 2)
    ]  # fmt: skip


@pytest.mark.parametrize("lengths", [[10, 20], None])
def test_only_what_was_lost_with_the_device_has_no_times(lengths: list[int] | None) -> None:
    result = Measurements()
    timed(result, FakeDevice([1, 2, 3]), 1, 3).end(result)
    timed(result, FakeDevice(lengths), 1, 2).cut_short(result)
    assert result.plain_ns[1] == [1, 2, 3, *(lengths or [])]
    assert len(result.plain_windows[1]) == len(result.plain_ns[1])
    assert bool(result.notices) == (lengths is None)
