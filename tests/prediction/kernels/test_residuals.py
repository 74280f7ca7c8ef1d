"""Intervals of predicted times, from the residuals of measured ops."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels import residuals
from gobrrr.prediction.kernels.residuals import band_of_class, band_of_step, class_of
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec

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
    assert "no times" not in band.source


def test_an_unmeasured_device_has_the_band_of_devices_left_out_and_says_so() -> None:
    band = band_of_class("C", residuals.PRODUCT_32)
    assert band is not None
    assert (band.low, band.high) == (0.65, 1.2)
    assert band.source.startswith(
        "no times of products in float32 were measured on C: errors on A, B"
    )


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
    assert (
        "on B200 or its architecture: errors on A100-SXM-80GB, T4, each predicted with the"
        in band.source
    )


def _class_of(name: str, *args: Arg, out: TensorSpec | None = None, dtype: str = "float32") -> str:
    x = next(arg for arg in args if isinstance(arg, TensorSpec))
    return class_of(OpCall(f"aten::{name}", args, (out or x,)), dtype)


X = TensorSpec((1024, 1024), "float32", (1024, 1))
CROSSED = TensorSpec((1024, 1024), "float32", (1, 1024))


def test_element_wise_ops_are_those_that_go_over_their_tensors_once() -> None:
    for name, *args in (
        ("add", X, X), ("relu", X), ("gelu", X, "none"), ("add_", X, X), ("mul", X, 2.0),
        ("gelu_backward", X, X), ("clone", X),
    ):  # fmt: skip
        assert _class_of(name, *args) == residuals.STREAM, name


def test_a_result_of_the_inputs_shape_makes_no_op_element_wise() -> None:
    sizes = TensorSpec((64, 32), "float32")
    for name, *args in (
        ("cumsum", X, 1), ("sort", X), ("flip", X, (1,)), ("native_dropout", X, 0.5, True),
        ("scatter_add_", X, 0, X, X), ("bernoulli_", X), ("_cudnn_rnn", X, (sizes, sizes)),
        ("native_batch_norm", X), ("clone", CROSSED), ("convolution", X, X),
    ):  # fmt: skip
        assert _class_of(name, *args, out=X, dtype="bfloat16") == residuals.OTHER, name


def test_a_factorisation_is_told_within_a_factor_of_two() -> None:
    assert _class_of("linalg_cholesky_ex", X) == residuals.FACTORISATION
    assert _class_of("_linalg_eigh", X) == residuals.FACTORISATION
    for device in ("H100-SXM", "T4"):
        band = band_of_class(device, residuals.FACTORISATION)
        assert band is not None
        assert (band.low, band.high) == (0.5, 2.0)


def test_a_step_names_every_class_of_a_tenth_that_its_device_has_no_measurement_of() -> None:
    # B has products of its own; its softmax is of relatives.
    parts = [(residuals.PRODUCT_32, 8.0), (residuals.SOFTMAX, 2.0)]
    band = band_of_step("B", parts)
    assert band is not None
    assert not band.own
    assert band.source.startswith("products in float32 on B, ")
    assert band.source.endswith("; not measured on B: softmax (20 % of the time)")
    little = band_of_step("B", [(residuals.PRODUCT_32, 95.0), (residuals.SOFTMAX, 5.0)])
    assert little is not None
    assert little.own and "not measured" not in little.source
    # The largest class says it by itself, once.
    most = band_of_step("B", [(residuals.PRODUCT_32, 2.0), (residuals.SOFTMAX, 8.0)])
    assert most is not None
    assert not most.own
    assert most.source.startswith("no times of softmax were measured on B")
    assert "not measured" not in most.source
