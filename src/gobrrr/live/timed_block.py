"""A block of steps that are timed with nothing attached to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gobrrr.devices.backend import DriverCalls
from gobrrr.devices.card import CardSpan, CardState
from gobrrr.live.bare_steps import BareSteps
from gobrrr.live.measurements import Measurements
from gobrrr.measure.load import LoadWatch
from gobrrr.timeline.errors import UserCodeError


class TimedBlock:
    """What the machine did beside a block of steps, and how long each took on its own device.

    ``device`` (a ``StepsOnDevice``; ``None`` on a CPU) has its block from here to the end of this
    one. ``block``: which of the two lists of steps in ``Measurements`` it is.
    """

    def __init__(self, device: Any, block: int) -> None:
        self._device, self._block = device, block
        self._watch = LoadWatch()
        self._open = True
        self._steps = 0
        self._bare: BareSteps | None = None
        self._card: CardState | None = None
        self._calls: DriverCalls | None = None
        if device is not None:
            # Before the block begins: asking the driver takes a millisecond.
            self._card = device.card_state()
            self._calls = device.driver_calls()
            device.start_block()

    def mark(self) -> None:
        """A step has ended, and is the last one in the list."""
        self._steps += 1
        if self._device is not None:
            self._device.mark()

    def go_on_bare(self, bare: BareSteps) -> None:
        """The steps from here to the block's end are bare ones."""
        self._bare = bare
        if self._device is not None:
            bare.mark = self._device.mark

    def end(self, result: Measurements) -> None:
        """The block is over: waits for the device. Raises UserCodeError if that is gone."""
        if not self._open:
            return
        self._open = False
        result.note(self._watch.so_far())
        bare = None if self._bare is None else self._bare.block()
        steps = self._steps
        if self._device is not None:
            # The host runs ahead of a device: its own clock says when steps were issued, not done.
            lengths_ns = self._device.end_block()
            first, steps = self._first(result), len(lengths_ns)
            result.plain_ns[self._block][first:] = lengths_ns[: self._steps]
            if bare is not None:
                # One passes unmeasured before the first of them.
                bare = replace(bare, lengths_ns=lengths_ns[self._steps + 1 :])
            after = self._device.card_state()
            # Of two cards, as the work moves, totals have no difference.
            if self._card is not None and after is not None and self._card.card == after.card:
                result.card = (*result.card, CardSpan(self._card, after, steps))
            calls = self._device.driver_calls()
            if calls is not None and self._calls is not None:
                result.note_driver_calls(self._calls, calls, steps)
        if bare is not None:
            result.bare[self._block] = bare

    def cut_short(self, result: Measurements) -> None:
        """The program has ended inside the block: keeps what its steps took, if that is known."""
        try:
            self.end(result)
        except UserCodeError as error:
            first = self._first(result)
            del result.plain_ns[self._block][first:], result.plain_windows[self._block][first:]
            result.notices.append(f"The last steps have no times: {error}.")

    def _first(self, result: Measurements) -> int:
        # The list may hold the steps of an earlier block: a mean can ask for more.
        return len(result.plain_ns[self._block]) - self._steps
