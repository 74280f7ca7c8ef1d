"""Fusion opportunities of measured steps: what the findings say, and what the traces allow."""

from __future__ import annotations

import pytest

from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.diagnosis.facts import OpFact
from gobrrr.diagnosis.fusion.findings import fusion_findings
from gobrrr.timeline.data import PHASE_NAMES, Phase
from gobrrr.timeline.ops import OpCall, TensorSpec

N = 1 << 20
CEILINGS = Ceilings(
    "device",
    {"vector.float32": Ceiling("vector.float32", 1e12, "FLOP/s", "given", "")},
    (MemoryLevel("dram", None, ((0.0, 1e11),)),),
)


def measured(
    name: str,
    inputs: list[int | None],
    output: int | None,
    *,
    kernel_s: float = 100e-6,
    source: str = "net.py:3",
    phase: Phase = Phase.FORWARD,
) -> OpFact:
    specs = tuple(TensorSpec((N,), "float32", (1,), s, "", 0) for s in inputs)
    outputs = None if output is None else (TensorSpec((N,), "float32", (1,), output, "", 0),)
    call = OpCall(f"aten::{name}", specs, outputs)
    return OpFact(call, kernel_s=kernel_s, fixed_s=1e-6, source=source, phase=PHASE_NAMES[phase])


def test_two_cosines_save_half_of_their_time_and_one_fixed_cost() -> None:
    ops = [measured("cos", [1], 2), measured("cos", [2], 3)]
    (found,) = fusion_findings(ops, CEILINGS, 1e-3)
    assert found.fix == "fusion"
    assert found.sources == ["net.py:3"]
    prediction = found.prediction
    assert prediction is not None
    # 16 MiB become 8 MiB: half of the 200 us measured, and 1 us of dispatch.
    assert prediction.expected_s == pytest.approx(101e-6)
    # At the ceilings: 8 MiB at 100 GB/s. At most: as fast as the fastest of them is now.
    assert prediction.low_s == pytest.approx(2 * N * 4 / 1e11)
    assert prediction.high_s == pytest.approx(101e-6)
    assert prediction.speedup == pytest.approx(1e-3 / (1e-3 - 101e-6))
    assert "16.8 MB; one kernel would move 8.39 MB" in found.because
    # 8 bytes per element at 100 GB/s: 80 FLOPs at 1 TFLOP/s.
    assert "memory-bound up to 80 FLOPs per element and has 16" in found.because


def test_one_kernel_is_no_faster_than_the_best_of_its_operators() -> None:
    # 8 MiB at 100 GB/s are 83.9 us: the first runs at 84 % of its roof, the second at 8.4 %.
    ops = [measured("cos", [1], 2), measured("cos", [2], 3, kernel_s=1e-3)]
    (found,) = fusion_findings(ops, CEILINGS, 1e-2)
    assert found.prediction is not None
    assert found.prediction.expected_s == pytest.approx(1.1e-3 / 2 + 1e-6)
    assert found.prediction.high_s == pytest.approx(1.1e-3 - 100e-6 + 1e-6)


@pytest.mark.parametrize("name", ["bernoulli_", "normal_", "uniform_"])
def test_random_numbers_are_not_saved_as_bytes_on_a_processor(name: str) -> None:
    drawn = measured(name, [1], 1, kernel_s=38e-3)
    ops = [drawn, measured("div_", [1], 1, kernel_s=800e-6), measured("mul", [0, 1], 2,
           kernel_s=900e-6)]  # fmt: skip
    (found,) = fusion_findings(ops, CEILINGS, 40e-3, on_cpu=True)
    assert found.prediction is not None
    # Of 1.7 ms for five tensors moved: two are left, and what was drawn is read.
    assert found.prediction.expected_s == pytest.approx(1.7e-3 * (1 - 3 / 5) + 2e-6)
    # At the very best what is drawn is not moved either: a tensor at 100 GB/s.
    assert found.prediction.high_s < 1.7e-3 + N * 4 / 1e11 + 3e-6
    # A device computes them faster than it moves them.
    (on_device,) = fusion_findings(ops, CEILINGS, 40e-3)
    assert on_device.prediction is not None
    assert on_device.prediction.expected_s > 20e-3


def test_functions_of_unknown_rate_are_saved_no_more_than_their_bytes_on_a_processor() -> None:
    ops = [measured("erfinv", [1], 2, kernel_s=5e-3), measured("mul", [2, 3], 4)]
    (found,) = fusion_findings(ops, CEILINGS, 6e-3, on_cpu=True)
    assert found.prediction is not None
    # Five tensors of 4 MiB become three; of the function no more than its two.
    two_s = 2 * N * 4 / 1e11
    assert found.prediction.expected_s == pytest.approx((two_s + 100e-6) * 2 / 5 + 1e-6)


def test_what_follows_a_product_is_saved_and_no_part_of_the_product() -> None:
    sizes = [TensorSpec((1024, 1024), "float32", (1024, 1), s, "", 0) for s in (1, 2, 3, 4)]
    product = OpCall("aten::mm", (sizes[0], sizes[1]), (sizes[2],))
    relu = OpCall("aten::relu", (sizes[2],), (sizes[3],))
    rows = {
        "vector.float32": CEILINGS.rows["vector.float32"],
        "matrix.float32": Ceiling("matrix.float32", 1e11, "FLOP/s", "given", ""),
    }
    ceilings = Ceilings("device", rows, CEILINGS.levels)
    ops = [
        OpFact(product, kernel_s=50e-3, phase="forward"),
        OpFact(relu, kernel_s=1e-3, phase="forward"),
    ]
    (found,) = fusion_findings(ops, ceilings, 60e-3)
    assert found.prediction is not None
    assert found.prediction.expected_s == pytest.approx(1e-3, rel=0.02)
    assert found.prediction.high_s < 1.2e-3


def test_nothing_is_found_without_ceilings_in_optimizers_or_below_a_hundredth() -> None:
    ops = [measured("cos", [1], 2), measured("cos", [2], 3)]
    assert fusion_findings(ops, None, 1e-3) == []
    assert fusion_findings(ops, CEILINGS, 1.0) == []
    updates = [
        measured("mul", [1], 2, phase=Phase.OPTIMIZER),
        measured("sqrt", [2], 3, phase=Phase.OPTIMIZER),
    ]
    assert fusion_findings(updates, CEILINGS, 1e-3) == []


def test_small_groups_are_one_finding_together() -> None:
    ops = []
    for i in range(20):
        first = 10 * i
        line = f"net.py:{i}"
        ops += [
            measured("cos", [first], first + 1, kernel_s=5e-6, source=line),
            measured("sin", [first + 1], first + 2, kernel_s=5e-6, source=line),
        ]
    (found,) = fusion_findings(ops, CEILINGS, 1e-3)
    assert found.title == "Fuse: 20 smaller groups"
    assert found.prediction is not None
    # Each: half of 10 us and 1 us.
    assert found.prediction.expected_s == pytest.approx(20 * 6e-6)


def test_a_trace_without_storages_is_linked_by_order_and_its_low_end_saves_nothing() -> None:
    ops = [measured("cos", [None], None), measured("sin", [None], None)]
    assert fusion_findings(ops, CEILINGS, 1e-3) == []
    (found,) = fusion_findings(ops, CEILINGS, 1e-3, linked=False)
    assert found.prediction is not None
    assert found.prediction.low_s == 0.0
    assert found.prediction.expected_s == pytest.approx(101e-6)


def test_places_of_one_line_are_one_finding() -> None:
    ops = []
    for i in range(3):
        ops += [
            measured("cos", [10 * i], 10 * i + 1),
            measured("sin", [10 * i + 1], 10 * i + 2),
        ]
    (found,) = fusion_findings(ops, CEILINGS, 1e-2)
    assert found.prediction is not None
    assert found.prediction.expected_s == pytest.approx(3 * 101e-6)
    assert "in each of 3 places" in found.because


@pytest.mark.parametrize("shapes", [((), ()), ((4, 4),), ((4,), (4, 4)), ()])
def test_products_whose_sizes_were_not_recorded_whole_break_nothing(
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    """PyTorch writes no sizes of nested tensors, and a recording may be damaged."""
    for name in ("mm", "bmm", "addmm", "baddbmm"):
        specs = tuple(TensorSpec(shape, "float32") for shape in shapes)
        product = OpFact(OpCall(f"aten::{name}", specs), kernel_s=1e-4, phase="forward")
        assert fusion_findings([product, measured("cos", [1], 2)], CEILINGS, 1e-3) == []


def test_long_steps_are_looked_through_in_parts_and_find_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Pairs with something else between, so that each part holds whole ones.
    ops = [
        measured(name, [1 + 4 * i + k], 2 + 4 * i + k)
        for i in range(12)
        for k, name in enumerate(("cos", "sin"))
    ]
    whole = fusion_findings(ops, CEILINGS, 1e-2)
    assert whole
    monkeypatch.setattr("gobrrr.diagnosis.fusion.findings.OPS_TOGETHER", 6)
    assert fusion_findings(ops, CEILINGS, 1e-2) == whole
