"""What cannot be true of a step is said to be an error of gobrrr's, and nothing is built on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gobrrr.attribution.attributed import AttributedOp
from gobrrr.attribution.leaves import COMPUTE_VECTOR, MEMORY, KernelShares, empty_leaves
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.devices.cpu.measure import _disturbed
from gobrrr.diagnosis.impossible import (
    CEILINGS_OF_BUSY_MACHINE,
    against_work,
    contradictions,
)
from gobrrr.diagnosis.schema import NO_VERDICT
from gobrrr.roofline.roof import roof_of
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work


def shares(*kernels: tuple[float, float]) -> KernelShares:
    """Kernels of (duration, roof) in ns."""
    duration = np.array([kernel[0] for kernel in kernels])
    zero = np.zeros(len(kernels))
    return KernelShares(
        kernel=np.arange(len(kernels)), duration_ns=duration, owned_ns=duration, fixed_ns=zero,
        page_faults_ns=zero, roof_ns=zero, below_ns=duration,
        full_roof_ns=np.array([kernel[1] for kernel in kernels]),
        regime=np.zeros(len(kernels), np.uint8),
    )  # fmt: skip


def test_work_of_a_training_step_in_the_time_of_an_evaluation() -> None:
    (sentence,) = contradictions(7.43, shares((1000.0, 900.0)), 1e-6)
    assert sentence.startswith("The MFU would be 743 %, which is impossible")


@pytest.mark.parametrize("mfu", [None, 0.0, 0.97, 1.04])
def test_a_clock_above_the_data_sheet_is_no_contradiction(mfu: float | None) -> None:
    assert contradictions(mfu, shares((1000.0, 990.0), (10.0, float("nan"))), 1e-6) == []


def test_a_roof_beaten_threefold_counts_where_it_is_a_part_of_the_step() -> None:
    # 400 ns of roofs in 100 ns: of a step of 1 us 40 %, of one of 10 us 4 %.
    beaten = shares((100.0, 400.0), (900.0, 800.0))
    assert len(contradictions(0.5, beaten, 1e-6)) == 1
    assert contradictions(0.5, beaten, 1e-5) == []


RATE = 1e9  # FLOP/s: one FLOP a nanosecond.
GIVEN = Ceilings(
    "test device",
    {f"{unit}.float32": Ceiling(f"{unit}.float32", RATE, "FLOP/s", "given", "test")
     for unit in ("matrix", "vector")},
    (MemoryLevel("dram", None, ((0.0, RATE),)),),
)  # fmt: skip


def op(
    matrix: float, vector: float, moved: int, share: int = 0, weight: float = 1.0
) -> AttributedOp:
    work = Work(matrix, vector, moved, 0, moved, "float32", "contraction")
    call = StepOp(OpCall("aten::some"))
    return AttributedOp(call, work, roof_of(work, GIVEN), share, 0.0, weight, weight)


def leaves(**parts: float) -> dict[str, float]:
    """Leaves in seconds, given in ns with ``_`` for the dots."""
    return {**empty_leaves(), **{name.replace("_", "."): ns * 1e-9 for name, ns in parts.items()}}


def of_regime(found: KernelShares, regime: int) -> KernelShares:
    return replace(found, regime=np.full(len(found), regime, np.uint8))


def test_products_without_time_for_them_are_an_error_of_ours() -> None:
    # 600 FLOP need 600 ns of a step of 1 us, of which 100 ns are compute.
    ran = shares((100.0, 600.0))
    (sentence,) = against_work(
        [op(300, 0, 8, weight=2)], ran, leaves(compute_matrix_roof=100, overhead_python=900), GIVEN
    )
    assert sentence.startswith("Matrix products need at least 600 ns of each step at the ceilings")
    assert NO_VERDICT in sentence
    # 250 ns are more than a third of 600: ceilings are off by that much.
    near = leaves(compute_matrix_roof=250, overhead_python=750)
    assert against_work([op(600, 0, 8)], ran, near, GIVEN) == []
    # Of a step of 10 us they are 6 %.
    long = leaves(compute_matrix_roof=100, overhead_python=9900)
    assert against_work([op(600, 0, 8)], ran, long, GIVEN) == []
    # Nobody knows what they need.
    unknown = replace(op(600, 0, 8), work=None, roof=None)
    wanted = leaves(compute_matrix_roof=100, overhead_python=900)
    assert against_work([unknown], ran, wanted, GIVEN) == []
    assert against_work([op(600, 0, 8)], ran, wanted, None) == []


def test_products_that_wait_for_bytes_have_no_time_in_compute() -> None:
    # A token's product: 200 FLOP on 800 bytes, all of it memory.
    ran = of_regime(shares((900.0, 800.0)), MEMORY)
    held = leaves(memory_device_roof=800, overhead_python=200)
    assert against_work([op(200, 0, 800)], ran, held, GIVEN) == []


def test_time_of_arithmetic_has_some() -> None:
    held = leaves(compute_matrix_below=600, overhead_python=400)
    ran = shares((600.0, float("nan")))
    (sentence,) = against_work([op(0, 0, 8)], ran, held, GIVEN)
    assert sentence.startswith("600 ns of each step counts as compute in ops that have nothing to")
    assert against_work([op(600, 0, 8)], ran, held, GIVEN) == []
    assert against_work([replace(op(0, 0, 8), work=None)], ran, held, GIVEN) == []
    # The arithmetic of the other unit is no product's.
    assert len(against_work([op(0, 500, 8)], ran, held, GIVEN)) == 1
    vector = of_regime(ran, COMPUTE_VECTOR)
    assert against_work([op(0, 500, 8)], vector, held, GIVEN) == []
    # A generator of random numbers computes what no FLOPs count.
    random = op(0, 0, 8)
    assert random.roof is not None
    limited = replace(random, roof=replace(random.roof, limit="random numbers"))
    assert against_work([limited], vector, held, GIVEN) == []
    # 60 ns of a microsecond say nothing of the step.
    assert against_work([op(0, 0, 8)], shares((60.0, 1.0)), held, GIVEN) == []


def test_ceilings_of_a_busy_machine_are_the_likely_cause() -> None:
    # As they are said to be where they are measured: passes that differ twofold.
    busy = replace(GIVEN, notices=tuple(_disturbed({"memory.dram.read": [1e9, 2e9]})))
    assert CEILINGS_OF_BUSY_MACHINE in busy.notices[0]
    ran = shares((100.0, 600.0))
    products = leaves(compute_matrix_roof=100, overhead_python=900)
    for ceilings, blamed in ((busy, "gobrrr ceilings --refresh"), (GIVEN, "error in gobrrr")):
        found = [
            *contradictions(7.43, ran, 1e-6, ceilings),
            *against_work([op(600, 0, 8)], ran, products, ceilings),
        ]
        assert len(found) == 3
        for sentence in found:
            assert blamed in sentence and NO_VERDICT in sentence
    # No ceiling explains arithmetic where there is none to do.
    idle = leaves(compute_matrix_below=600, overhead_python=400)
    (sentence,) = against_work([op(0, 0, 8)], shares((600.0, float("nan"))), idle, busy)
    assert "error in gobrrr" in sentence


def test_one_kernel_is_no_plural() -> None:
    (one,) = contradictions(None, shares((100.0, 400.0)), 1e-6)
    assert one.startswith("1 kernel takes 100 ns where its work needs at least 400 ns")
    (two,) = contradictions(None, shares((100.0, 400.0), (100.0, 400.0)), 1e-6)
    assert two.startswith("2 kernels take 200 ns where their work needs at least 800 ns")
