"""Intervals of predicted times, from the residuals of measured ops."""

from __future__ import annotations

import pytest

from gobrrr.models import residuals
from gobrrr.models.residuals import band_of_class, band_of_step

MEASURED = {
    "A": {"products in float32": (0.9, 1.1, 50), "softmax": (0.8, 1.6, 50)},
    "B": {"products in float32": (0.7, 1.0, 50)},
}

RELATED = {"products in float32": (0.65, 1.2, 2), "softmax": (0.75, 1.7, 1)}


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residuals, "MEASURED", MEASURED)
    monkeypatch.setattr(residuals, "BORROWED", {})
    monkeypatch.setattr(residuals, "RELATED", RELATED)


def test_a_measured_device_has_its_own_band() -> None:
    band = band_of_class("A", residuals.PRODUCT_32)
    assert band is not None
    assert (band.low, band.high) == (0.9, 1.1)
    assert "no measurement" not in band.source


def test_an_unmeasured_device_has_the_band_of_devices_left_out_and_says_so() -> None:
    band = band_of_class("C", residuals.PRODUCT_32)
    assert band is not None
    assert (band.low, band.high) == (0.65, 1.2)
    assert band.source.startswith("no measurement of products in float32 on C; from A, B")


def test_no_interval_without_ground() -> None:
    assert band_of_class("A", residuals.ATTENTION) is None
    assert band_of_step("A", [(residuals.SOFTMAX, 1.0), (residuals.ATTENTION, 1.0)]) is None


def test_a_step_of_one_class_has_that_band() -> None:
    band = band_of_step("A", [(residuals.SOFTMAX, 1.0), (residuals.SOFTMAX, 2.0)])
    assert band is not None
    assert (band.low, band.high) == pytest.approx((0.8, 1.6))


def test_errors_of_classes_cancel_in_part() -> None:
    band = band_of_step("A", [(residuals.SOFTMAX, 1.0), (residuals.PRODUCT_32, 1.0)])
    assert band is not None
    sum_of_ends = (0.8 + 0.9) / 2, (1.6 + 1.1) / 2
    assert sum_of_ends[0] < band.low < band.high < sum_of_ends[1]


def test_a_device_with_borrowed_constants_has_a_band_of_devices_that_borrowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = {"A100-SXM-80GB": {"softmax": (0.9, 1.1, 50)}, "T4": {"softmax": (0.8, 1.2, 50)}}
    monkeypatch.setattr(residuals, "MEASURED", measured)
    monkeypatch.setattr(residuals, "BORROWED", {"softmax": (0.6, 1.7, 2)})
    # The A30 has the A100's constants; the B200 has Hopper's, of which nobody measured a softmax.
    for device, low, high in (("A30", 0.75, 1.7), ("B200", 0.6, 1.7), ("T4", 0.8, 1.2)):
        band = band_of_class(device, residuals.SOFTMAX)
        assert band is not None
        assert (band.low, band.high) == (low, high), device
    band = band_of_class("B200", residuals.SOFTMAX)
    assert band is not None
    assert "on B200 or on its architecture; from A100-SXM-80GB, T4, each with" in band.source
