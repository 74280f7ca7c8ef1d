"""Programs that other tools call wrong, on recorded timelines (benchmarks/regimes records them)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.recorded_runs import diagnose_run

DATA = Path(__file__).parents[1] / "data" / "regimes"
EXPECTED = {
    "linear_batch_1": "memory",
    "matmuls_and_tiny_adds": "compute",
    "matmuls_between_python": "overhead",
    "layer_norms": "memory",
    "transposes_and_casts": "memory",
    "relu_499": "overhead",
    "relu_500": "overhead",
    "pointwise_chain": "memory",
    "tiny_ops": "overhead",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_known_programs_are_called_right(name: str) -> None:
    found = diagnose_run(DATA / f"{name}.json.gz")
    assert found.regime == EXPECTED[name]
    assert found.verdict.startswith(EXPECTED[name].capitalize())


def test_the_python_loop_between_matmuls_is_python_with_its_line() -> None:
    found = diagnose_run(DATA / "matmuls_between_python.json.gz")
    assert found.leaves["overhead.python"] > 0.9 * found.split.overhead_s
    line = next(row.source for row in found.idle if row.cause == "python")
    assert line is not None
    assert "programs.py" in line
    assert line.endswith("in step")


def test_the_batch_1_linear_is_a_contraction_bound_by_memory() -> None:
    row = diagnose_run(DATA / "linear_batch_1.json.gz").ops[0]
    # 2 * 8192 * 8192 FLOPs over 4 * (8192 * 8192 + 8192 + 2 * 8192) bytes: half a FLOP per byte.
    assert row.op_class == "contraction"
    assert row.regime == "memory"
    assert row.intensity == pytest.approx(0.5, rel=1e-3)
