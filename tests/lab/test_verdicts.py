"""The verdict comes from the interval and the range, never from the value."""

from __future__ import annotations

import pytest

from gobrrr.lab.experiment import Answer, Claim, Measured, judge


def claim(least: float | None = None, most: float | None = None) -> Claim:
    return Claim("key", "text", "2x", "a ratio", least=least, most=most)


@pytest.mark.parametrize(
    ("least", "most", "low", "high", "verdict"),
    [
        (1.0, 2.0, 1.0, 2.0, "holds"),
        (1.0, None, 1.1, 9.0, "holds"),
        (None, 1.0, 0.1, 0.9, "holds"),
        (1.0, 2.0, 0.5, 0.9, "does not hold here"),
        (1.0, 2.0, 2.1, 2.5, "does not hold here"),
        (1.0, 2.0, 0.9, 1.5, "cannot tell"),
        (1.0, 2.0, 1.5, 2.1, "cannot tell"),
        (1.0, 2.0, 0.5, 2.5, "cannot tell"),
        (1.5, None, 1.4, 1.6, "cannot tell"),
    ],
)
def test_the_whole_interval_decides(
    least: float | None, most: float | None, low: float, high: float, verdict: str
) -> None:
    # The value lies in the range in every case where it can.
    found = judge(claim(least, most), Answer(Measured((low + high) / 2, low, high), "because"))
    assert found.verdict == verdict
    assert (found.low, found.high) == (low, high)


def test_what_was_not_measured_cannot_be_told() -> None:
    found = judge(claim(least=1.0), Answer(None, "no ceiling is known"))
    assert (found.verdict, found.value, found.because) == (
        "cannot tell",
        None,
        "no ceiling is known",
    )
    assert judge(claim(least=1.0), None).because == "it was not measured"
