from __future__ import annotations

from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.roofline.roof import roof_of
from gobrrr.work.estimate import Work


def test_the_vector_part_of_a_bfloat16_product_runs_in_float32() -> None:
    ceilings = Ceilings(
        "a device",
        {
            name: Ceiling(name, value, "FLOP/s", "given", "test")
            for name, value in {"matrix.bfloat16": 1e12, "vector.float32": 1e9}.items()
        },
        (MemoryLevel("dram", None, ((0.0, 1e9), (1.0, 1e9))),),
    )
    # 1e9 products at 1e12 take 1 ms; 5e6 other operations at 1e9 take 5 ms; 3000 bytes 3 us.
    attention = Work(1e9, 5e6, 2000, 1000, 3000, "bfloat16", "contraction")
    roof = roof_of(attention, ceilings)
    assert roof is not None
    assert (roof.matrix_s, roof.vector_s, roof.time_s) == (1e-3, 5e-3, 5e-3)
