"""Losses in eager PyTorch: written whole, then reduced."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.kernel_model import KernelEstimate, estimate_op
from gobrrr.prediction.kernels.walks.walk import Machine
from gobrrr.prediction.kernels.walks.walks import walks_of
from gobrrr.timeline.ops import Arg, OpCall
from gobrrr.work import work_of
from prediction.kernels.toy_device import IDEAL, aten, spec, toy_device

NONE, MEAN, SUM = 0, 1, 2
MIB = 2**20
# 64 MB a tensor, of which the cache keeps 4 between two kernels.
X = spec(16_000_000)
SIZE, KEPT = 64e6, 4e6
ONE = spec()


def _estimate(call: OpCall) -> KernelEstimate:
    work = work_of(call)
    assert work is not None
    found = estimate_op(
        call, work, toy_device(), coefficients=IDEAL, cold_bytes=float(work.bytes_moved or 0)
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "extra"),
    [("mse_loss", ()), ("smooth_l1_loss", (1.0,)), ("huber_loss", (1.0,))],
)
@pytest.mark.parametrize("reduction", [MEAN, SUM])
def test_a_reduced_loss_is_written_and_read_again(
    name: str, extra: tuple[Arg, ...], reduction: int
) -> None:
    found = _estimate(aten(name, X, X, reduction, *extra, outputs=(ONE,)))
    # Two tensors read, one written, one read, at 1 TB/s.
    assert found.kernels == 2
    assert found.traffic_s == pytest.approx((4 * SIZE - 2 * KEPT) / 1e12, rel=1e-6)
    # The least work is what it was: two tensors read.
    assert found.roof.memory_s == pytest.approx(2 * SIZE / 1e12, rel=1e-6)


def test_without_a_reduction_it_is_one_stream() -> None:
    found = _estimate(aten("mse_loss", X, X, NONE, outputs=(X,)))
    assert found.kernels == 1
    assert found.traffic_s == pytest.approx(3 * SIZE / 1e12, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "kernels", "tensors", "between"),
    [
        (aten("binary_cross_entropy", X, X, None, MEAN, outputs=(ONE,)), 2, 3 + 1, 2),
        # Multiplied by its weight in place: three more.
        (aten("binary_cross_entropy", X, X, X, MEAN, outputs=(ONE,)), 3, 3 + 3 + 1, 4),
        # log_sigmoid, 1 - target, mul_, sub_, mean.
        (
            aten("binary_cross_entropy_with_logits", X, X, None, None, MEAN, outputs=(ONE,)),
            5, 2 + 2 + 3 + 3 + 1, 9,
        ),
        (aten("l1_loss", X, X, MEAN, outputs=(ONE,)), 3, 3 + 2 + 1, 4),
        # Gradients: one kernel; of the cross-entropy's mean one more in place.
        (aten("mse_loss_backward", ONE, X, X, MEAN, outputs=(X,)), 1, 3, 0),
        (aten("smooth_l1_loss_backward", ONE, X, X, MEAN, 1.0, outputs=(X,)), 1, 3, 0),
        (aten("binary_cross_entropy_backward", ONE, X, X, None, SUM, outputs=(X,)), 1, 3, 0),
        (aten("binary_cross_entropy_backward", ONE, X, X, None, MEAN, outputs=(X,)), 2, 3 + 2, 2),
    ],
    ids=lambda value: value.name if isinstance(value, OpCall) else str(value),
)  # fmt: skip
def test_every_kernel_reads_and_writes_whole_tensors(
    call: OpCall, kernels: int, tensors: int, between: int
) -> None:
    """``between``: how many of the ``tensors`` are what one kernel leaves to another."""
    found = _estimate(call)
    assert found.kernels == kernels
    # 3 %: what the cache keeps takes a little of its own bandwidth.
    expected = (tensors * SIZE - between * KEPT) / 1e12
    assert found.traffic_s == pytest.approx(expected, rel=0.03)


def test_what_the_cache_holds_between_kernels_does_not_come_from_memory() -> None:
    # 2 MB of a cache of 8: 4 MB come from memory, what is written and read again stays there.
    x = spec(500_000)
    found = _estimate(aten("mse_loss", x, x, MEAN, outputs=(ONE,)))
    assert found.traffic_s == pytest.approx(4e6 / 1e12 + 2e6 / 4e12, rel=1e-3)


def test_target_log_probabilities_keep_their_recipe() -> None:
    x, target = spec(32_768, 4096), spec(32_768, dtype="int64")
    call = aten("nll_loss_forward", x, target, None, MEAN, -100, outputs=(ONE, ONE))
    work = work_of(call)
    assert work is not None
    (walk,) = walks_of(call, work, Machine(0.5, "cuda", 132, 43 * MIB))
    assert (walk.programs, walk.trips) == (1.0, 128)
