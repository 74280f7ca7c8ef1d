"""Intervals of predicted steps: where they come from, and what is said where it is elsewhere."""

from __future__ import annotations

from math import log

import pytest

from gobrrr.prediction.kernels import residuals
from gobrrr.prediction.kernels.residuals import ErrorBand
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.step.bands import (
    COMPILED,
    PROCESSOR,
    RECORDED,
    band_of,
    interval_notices,
)
from gobrrr.prediction.step.host import HostShare
from gobrrr.prediction.step.step import interval_of


def _log_width(band: ErrorBand) -> float:
    return log(band.high / band.low)


def test_compiled_steps_are_wider_on_devices_where_none_was_measured_and_say_so() -> None:
    measured = band_of(target_device("RTX-4090"), True, ())
    assert measured is COMPILED
    assert interval_notices(measured) == ()
    # Of the architecture of the RTX 4090, and of another.
    akin, other = (band_of(target_device(key), True, ()) for key in ("RTX-4080", "H100-SXM"))
    assert akin is not None and other is not None
    assert _log_width(COMPILED) <= _log_width(akin) < 0.6 * _log_width(other)
    for band in (akin, other):
        (notice,) = interval_notices(band)
        assert notice.startswith(
            "Interval: no compiled step was measured on this device: errors on the RTX 4090"
        )
    assert ", widened " in other.source


def test_a_compiled_step_is_widened_as_eager_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {"T4": {"softmax": (0.5, 2.0, 50)}, "P4": {"softmax": (0.5, 2.0, 50)}}
    monkeypatch.setattr(residuals, "MEASURED", measured)
    monkeypatch.setattr(residuals, "RELATED", {"softmax": (0.6, 1.5, 2)})
    monkeypatch.setattr(residuals, "BORROWED", {"softmax": (0.25, 4.0, 2)})
    # ln 16 over ln 4.
    assert residuals.widening("H100-SXM", "RTX-4090") == pytest.approx(2.0)
    # Never narrower.
    assert residuals.widening("RTX-4080", "RTX-4090") == 1.0
    band = band_of(target_device("H100-SXM"), True, ())
    assert band is not None
    assert (band.low, band.high) == pytest.approx((COMPILED.low**2, COMPILED.high**2))


def test_eager_steps_of_amd_and_of_processors_say_what_few_steps_they_rest_on() -> None:
    for key in ("MI300X", "MI250X"):
        assert band_of(target_device(key), False, ()) is RECORDED
    (notice,) = interval_notices(RECORDED)
    assert "6 recorded steps on H100-SXM and MI300X" in notice
    (notice,) = interval_notices(PROCESSOR)
    assert "36 steps of six networks that the model was not fitted on" in notice
    assert interval_notices(None) == ()


def _host(total_s: float, exposed_s: float) -> HostShare:
    low_s, high_s = 0.9 * total_s, 3 * total_s
    return HostShare(total_s, exposed_s, low_s, high_s, exposed_s > 0, ())


def test_the_interval_of_a_step_is_that_of_whoever_takes_longer() -> None:
    band = ErrorBand(0.8, 1.2, "")
    alone = interval_of(2.0, band)
    assert (alone.low, alone.median, alone.high) == pytest.approx((1.6, 2.0, 2.4))
    # The host is done long before.
    hidden = interval_of(2.0, band, _host(0.1, 0.0))
    assert (hidden.low, hidden.high) == pytest.approx((1.6, 2.4))
    # A slower host would decide, which cannot make the step shorter.
    near = interval_of(2.0, band, _host(1.0, 0.0))
    assert (near.low, near.high) == pytest.approx((1.6, 3.0))
    # It decides: what the device does, 0.5 s, bounds neither end.
    bound = interval_of(2.0, band, _host(2.0, 1.5))
    assert (bound.low, bound.high) == pytest.approx((1.8, 6.0))
    # Results are read: half of the step one works, half of it the other.
    in_turns = interval_of(2.0, band, _host(1.0, 1.0))
    assert (in_turns.low, in_turns.high) == pytest.approx((0.8 + 0.9, 1.2 + 3.0))


def test_a_step_without_a_band_has_its_hosts_interval() -> None:
    found = interval_of(2.0, None, _host(2.0, 1.5))
    assert (found.low, found.high) == pytest.approx((1.8, 6.0))
    # Of a device that decides nothing is known: a slow host alone makes no interval.
    found = interval_of(2.0, None, _host(1.0, 0.0))
    assert (found.low, found.high) == (2.0, 2.0)
