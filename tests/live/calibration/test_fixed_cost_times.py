"""The durations of replayed ops, without what recording them has cost."""

from __future__ import annotations

import numpy as np

from gobrrr.live.calibration.fixed_cost import top_level_times
from gobrrr.live.profiles.profile import ProfilerCost, RawEvents


def test_an_op_has_its_time_without_the_recording_of_it_and_of_what_it_calls() -> None:
    # (start, end, thread, annotation)
    spans = (
        (0, 1000, 0, False),
        (100, 600, 0, False),  # called by the first,
        (200, 300, 0, False),  # and by that
        (700, 900, 0, True),  # a range, which is no op
        (750, 800, 1, False),  # another thread's
        (1000, 1400, 0, False),
        (1400, 1410, 0, False),
    )
    start, end, thread, annotation = (np.array(column) for column in zip(*spans))
    step = RawEvents(
        names=("op",), start_ns=start, end_ns=end, name=np.zeros(len(spans), np.int32),
        thread=thread.astype(np.int32), annotation=annotation, length_ns=2000,
    )  # fmt: skip
    times = top_level_times(step, ProfilerCost(inside_ns=20.0, outside_ns=50.0))
    # 1000 - 20 of itself - 2 * (20 + 50) of two within it; 400 - 20; and 10 - 20 is none at all.
    assert times.tolist() == [840.0, 380.0, 0.0]
