"""Arithmetic on data sheets and formulas: nothing is timed."""

from __future__ import annotations

import pytest

from gobrrr.lab.experiment import judge
from gobrrr.lab.generations import EXPERIMENT, _Balance, block_operators, doublings, intensity_of
from gobrrr.lab.setting import Setting


def test_doublings_of_compute_per_doubling_of_bandwidth() -> None:
    # Compute grows 16 times (four doublings) while bandwidth grows 4 times (two).
    first, last = _Balance("a", 1.0, 1.0, 1.0), _Balance("b", 16.0, 2.0, 4.0)
    assert doublings(first, last, "matrix") == pytest.approx(2.0)
    assert doublings(first, last, "vector") == pytest.approx(0.5)


def test_intensity_of_a_projection() -> None:
    found = intensity_of(block_operators()["attention's projection"])
    # 256 x 1152 times 1152 x 1152 and a bias: FLOPs over float16 bytes of all four matrices.
    flops = 2 * 256 * 1152 * 1152 + 256 * 1152
    moved = 2 * (256 * 1152 + 1152 * 1152 + 1152 + 256 * 1152)
    assert found == pytest.approx(flops / moved, rel=0.01)


def test_every_operator_has_a_formula() -> None:
    for name, calls in block_operators().items():
        assert intensity_of(calls) is not None, name


def test_fused_attention_does_more_per_byte_than_single_operators() -> None:
    operators = block_operators()
    fused = intensity_of(operators["attention, flash"])
    single = intensity_of(operators["attention, unfused"])
    assert fused is not None and single is not None
    assert fused > 3 * single


def test_all_claims_are_answered_from_the_sheets() -> None:
    found = EXPERIMENT.run(Setting())
    verdicts = {
        claim.key: judge(claim, found.answers[claim.key]).verdict for claim in EXPERIMENT.claims
    }
    assert verdicts == dict.fromkeys(("nvidia", "amd", "vector", "crossing"), "holds")
    devices = {row["name"]: row["ridge"] for row in found.rows if row["kind"] == "device"}
    # 125 TFLOP/s over 900 GB/s.
    assert devices["V100-SXM2"] == pytest.approx(125e12 / 900e9)
