"""Derivatives that are written into zeros: in place on a device, out of place in a capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import gobrrr
from gobrrr.prediction.step.in_place import zeros_written_in_place
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import OpGraph, StepOp, StorageLife
from gobrrr.timeline.ops import OpCall, TensorSpec

BANDWIDTH = 3.35e12
GRADIENT, PLACES, ZEROS, RESULT = range(4)
SIZES = {GRADIENT: 40, PLACES: 80, ZEROS: 4000, RESULT: 4000}


def spec(storage: int, *shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype, None, storage, "cuda:0", 0)


def graph(*more: StepOp, phase: Phase = Phase.BACKWARD) -> OpGraph:
    """The gradient of a ``gather`` of 10 of 10 x 100."""
    grad, places = spec(GRADIENT, 10, 1), spec(PLACES, 10, 1, dtype="int64")
    zeros, result = spec(ZEROS, 10, 100), spec(RESULT, 10, 100)
    ops = (
        StepOp(OpCall("aten::new_zeros", (grad, (10, 100)), (zeros,)), phase=phase),
        StepOp(OpCall("aten::scatter_add", (zeros, 1, places, grad), (result,)), phase=phase),
        *more,
    )
    lives = {
        GRADIENT: StorageLife(40, -1, None), PLACES: StorageLife(80, -1, None),
        ZEROS: StorageLife(4000, 0, 1), RESULT: StorageLife(4000, 1, None),
    }  # fmt: skip
    # Before it the gradient and the places; the result beside the zeros that it was made of.
    peak = 40 + 80 + 4000 + 4000
    return OpGraph(ops, frozenset({RESULT}), frozenset(), frozenset(), SIZES, peak, lives=lives)


def test_a_gradient_is_added_into_the_zeros_themselves() -> None:
    found = zeros_written_in_place(graph())
    assert [op.call.name for op in found.ops] == ["aten::new_zeros", "aten::scatter_add_"]
    zeros, put = (op.call for op in found.ops)
    storages = [(call.outputs or ())[0].storage for call in (zeros, put)]
    assert storages == [RESULT, RESULT]
    assert put.tensors[0].storage == RESULT
    # Of the two of 4000 bytes there is one, from the first op on.
    assert found.peak_memory_bytes == 40 + 80 + 4000
    assert found.lives[RESULT] == StorageLife(4000, 0, None)
    assert ZEROS not in found.lives and ZEROS not in found.sizes_bytes


def test_what_the_program_wrote_out_of_place_stays() -> None:
    read = StepOp(OpCall("aten::neg", (spec(ZEROS, 10, 100),), ()), phase=Phase.BACKWARD)
    held = replace(graph(), kept=frozenset({ZEROS, RESULT}))
    for given in (graph(read), graph(phase=Phase.FORWARD), held):
        assert zeros_written_in_place(given) is given


@pytest.mark.torch
def test_gradients_of_what_was_picked_cost_zeros_and_what_was_picked() -> None:
    import torch

    x = torch.empty(4096, 32_000, device="meta", requires_grad=True)
    row = torch.zeros(4096, 1, dtype=torch.int64, device="meta")
    some = torch.zeros(64, dtype=torch.int64, device="meta")
    # 524 MB of zeros.
    zeros_s = 4 * x.numel() / BANDWIDTH

    def gradient(pick: Callable[[], torch.Tensor], **options: bool) -> dict[str, float]:
        def step() -> object:
            out = pick()
            return torch.autograd.grad(out, x, torch.empty_like(out))

        found = gobrrr.predict(step, device="H100-SXM", **options)
        assert options or found.counters["peak_memory_bytes"] < 2.2 * 4 * x.numel()
        return {op.name.removeprefix("aten::"): op.time_s for op in found.ops}

    picks: dict[str, Callable[[], torch.Tensor]] = {
        "scatter_add_": lambda: x.gather(1, row),
        "scatter_": lambda: x.max(1)[0],
        "index_add_": lambda: x.index_select(0, some),
        "_index_put_impl_": lambda: x[some],
        "put_": lambda: x.take(row),
    }
    for name, pick in picks.items():
        found = gradient(pick)
        zeros = next(time for op, time in found.items() if "zeros" in op and time > 1e-5)
        assert zeros_s < zeros < 1.2 * zeros_s, name
        assert found[name] < 0.3 * zeros_s, name
    # A compiler watches like the capture: its graph has no operator in place.
    assert "scatter_add_" not in gradient(picks["scatter_add_"], compile=True)


def test_places_are_sorted_and_not_what_is_put_there() -> None:
    """``x[i]`` of rows of 512 for 32,768 of 4096 places: 13 bits are two passes of a radix sort."""
    from gobrrr.prediction.kernels.walks.walk import Machine
    from gobrrr.prediction.kernels.walks.walks import walks_of
    from gobrrr.work import work_of

    x, places = spec(0, 4096, 512), spec(1, 32_768, dtype="int64")
    values = spec(2, 32_768, 512)
    call = OpCall("aten::index_put_", (x, (places,), values, True), (x,))
    work = work_of(call)
    assert work is not None and work.bytes_read is not None
    *sorts, last = walks_of(call, work, Machine(0.5, "cuda", 132, 43 * 2**20))
    assert len(sorts) == 2
    # Each reads and writes a key and a position of 8 bytes.
    assert [walk.reads * work.bytes_read for walk in sorts] == pytest.approx([32_768 * 32] * 2)
    assert last.reads == 1
