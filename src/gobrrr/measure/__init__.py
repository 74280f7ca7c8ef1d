"""Run, synchronise, warm up, repeat, interleave; samples with their spread."""

from __future__ import annotations

from gobrrr.measure.clock import Clock, FakeClock, SystemClock
from gobrrr.measure.load import Load, LoadWatch
from gobrrr.measure.summary import Interval, Summary, ratio_interval, summarise
from gobrrr.measure.timing import Series, time_in_turns, time_interleaved, warm_up

__all__ = [
    "Clock",
    "FakeClock",
    "Interval",
    "Load",
    "LoadWatch",
    "Series",
    "Summary",
    "SystemClock",
    "ratio_interval",
    "summarise",
    "time_in_turns",
    "time_interleaved",
    "warm_up",
]
