"""What is said of a device on which no prediction was compared with a time."""

from __future__ import annotations

from gobrrr.prediction.kernels.target import target_device


def test_a_device_that_is_only_a_data_sheet_says_so_first() -> None:
    for key in ("H100-SXM", "MI300X", "RTX-4090", "T4"):
        assert not any("only from its data" in notice for notice in target_device(key).notices)
    first = target_device("B200").notices[0]
    assert first.startswith("B200 is known only from its data sheet: ")
    assert "the model was made for CUDA kernels" in target_device("M4").notices[0]
