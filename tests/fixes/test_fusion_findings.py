"""Fusion opportunities of measured steps: what the findings say, and what the traces allow."""

from __future__ import annotations

import pytest

from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.fixes.facts import OpFact
from gobrrr.fixes.fusion_findings import fusion_findings
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
    # At the ceilings: 8 MiB at 100 GB/s. At most: all but the fused roof.
    assert prediction.low_s == pytest.approx(2 * N * 4 / 1e11)
    assert prediction.high_s == pytest.approx(200e-6 - 2 * N * 4 / 1e11 + 1e-6)
    assert prediction.speedup == pytest.approx(1e-3 / (1e-3 - 101e-6))
    assert "16.8 MB; one kernel would move 8.39 MB" in found.because
    # 8 bytes per element at 100 GB/s: 80 FLOPs at 1 TFLOP/s.
    assert "memory-bound up to 80 FLOPs per element and has 16" in found.because


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
    monkeypatch.setattr("gobrrr.fixes.fusion_findings.OPS_TOGETHER", 6)
    assert fusion_findings(ops, CEILINGS, 1e-2) == whole
