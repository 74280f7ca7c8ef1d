from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.devices.ceilings import Ceilings, MemoryLevel
from gobrrr.roofline.residency import missed_bytes_of_step, residency_of_step, with_missed
from gobrrr.roofline.roof import roof_of
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from prediction.kernels.toy_device import aten, spec


def add(source: int, result: int, elements: int = 100) -> OpCall:
    """Reads 400 bytes of one storage, writes 400 of another."""
    out = spec(elements, storage=result)
    return aten("relu", spec(elements, storage=source), outputs=(out,))


def cold_bytes(calls: list[OpCall], capacity_bytes: int) -> list[float]:
    return residency_of_step(calls, None, capacity_bytes)[1]


def test_what_the_op_before_wrote_is_read_from_the_cache() -> None:
    # Everything fits: in a step that repeats nothing comes from memory.
    assert cold_bytes([add(1, 2), add(2, 3)], 10_000) == [0.0, 0.0]


def test_without_a_cache_every_byte_is_cold() -> None:
    # Each op reads 400 from memory; what it writes goes there.
    assert cold_bytes([add(1, 2), add(2, 3)], 0) == [800.0, 800.0]


def test_what_was_used_longest_ago_has_to_go() -> None:
    # Room for two tensors. Op 0 reads storage 1 (gone since the step before: 400), which pushes
    # out 1's elder, and writes 2; op 1 finds 2 there and writes 3, for which 1 goes unwritten.
    calls = [add(1, 2), add(2, 3)]
    first, second = cold_bytes(calls, 800)
    # 400 read; for them and for the result, 2 and 3 of the step before are written back: 800.
    assert first == 1200.0
    assert second == 0.0


def test_an_update_in_place_reads_and_dirties_one_tensor() -> None:
    x = spec(100, storage=1)
    assert cold_bytes([aten("relu_", x)], 10_000) == [0.0]
    # It flows through a cache that is too small: read once, written once.
    assert cold_bytes([aten("relu_", x)], 100) == [800.0]


def test_an_update_of_a_list_in_place_reads_and_dirties_each_tensor() -> None:
    params, grads, m, v = (
        tuple(spec(100, storage=10 * kind + i) for i in range(3)) for kind in range(4)
    )
    scaled = aten("_foreach_mul_", params, 2.0)
    fused = aten("_fused_adamw_", params, grads, m, v, (), (), 1e-3, 0.9, 0.999, 0.0, 1e-8)
    # 1200 bytes of 3 tensors read and written; 4 lists read and 3 of them written.
    assert cold_bytes([scaled], 100) == [2 * 1200.0]
    assert cold_bytes([fused], 100) == [7 * 1200.0]
    level = (MemoryLevel("l2", 100, ((0.0, 1e9),)), MemoryLevel("dram", None, ((0.0, 1e9),)))
    small = Ceilings("a device", {}, level)
    assert missed_bytes_of_step([scaled], small) == [((1200.0, 1200.0),)]
    assert missed_bytes_of_step([fused], small) == [((4800.0, 3600.0),)]


def test_a_tensor_without_a_storage_is_cold() -> None:
    assert cold_bytes([aten("relu", spec(100), outputs=(spec(100),))], 10_000) == [800.0]


def test_views_of_one_storage_are_the_same_memory() -> None:
    whole = spec(300, storage=1)
    part = spec(100, storage=1)
    calls = [aten("sum", whole, outputs=(spec(1, storage=2),)),
             aten("relu", part, outputs=(spec(100, storage=3),))]  # fmt: skip
    assert cold_bytes(calls, 10_000)[1] == 0.0


# 3000 bytes at 100 GB/s, 30,000 bytes at 10 GB/s, and memory at 1 GB/s.
THREE = Ceilings(
    "a device",
    {},
    (
        MemoryLevel("l2", 3_000, ((0.0, 100e9),)),
        MemoryLevel("l3", 30_000, ((0.0, 10e9),)),
        MemoryLevel("dram", None, ((0.0, 1e9),)),
    ),
)


def decode(layers: int) -> list[OpCall]:
    """Each layer reads its own 400 bytes of weights and the 400 bytes that the last one left."""
    return [
        aten(
            "add", spec(100, storage=1000 + i), spec(100, storage=i),
            outputs=(spec(100, storage=1001 + i),),
        )
        for i in range(layers)
    ]  # fmt: skip


def test_weights_of_more_than_a_level_are_not_in_it_however_small_each_is() -> None:
    # Two layers' weights and activations, 2000 bytes, fit into 3000; 20 layers' into 30,000.
    assert missed_bytes_of_step(decode(2), THREE)[1] == ((0.0, 0.0), (0.0, 0.0))
    missed = missed_bytes_of_step(decode(20), THREE)
    assert missed[10] == ((400.0, 0.0), (0.0, 0.0))
    assert missed_bytes_of_step(decode(40), THREE)[10] == ((400.0, 0.0), (400.0, 0.0))


def test_the_level_where_the_data_lie_decides_the_roof() -> None:
    levels = {}
    for layers in (2, 20, 40):
        ops = with_missed([StepOp(call) for call in decode(layers)], THREE)
        work = work_of(ops[1].call)
        assert work is not None
        # Without its arithmetic, of which this device has no ceiling.
        roof = roof_of(replace(work, vector_flops=0.0), THREE, ops[1].call.missed)
        assert roof is not None
        levels[layers] = (roof.level, roof.memory_s)
    # 1200 bytes at 100 GB/s; 400 bytes of weights at 10 GB/s and at 1 GB/s.
    assert levels[2] == ("l2", pytest.approx(12e-9))
    assert levels[20] == ("l3", pytest.approx(40e-9))
    assert levels[40] == ("dram", pytest.approx(400e-9))


def test_an_update_of_what_was_not_there_goes_both_ways() -> None:
    calls = [aten("relu_", spec(400, storage=i)) for i in range(3)]
    # 1600 bytes each, 4800 together: none stays in the first level, all in the second.
    assert missed_bytes_of_step(calls, THREE) == [((1600.0, 1600.0), (0.0, 0.0))] * 3


def test_where_a_tensor_without_a_storage_is_nobody_knows() -> None:
    calls = [aten("relu", spec(5000), outputs=(spec(5000),))]
    assert missed_bytes_of_step(calls, THREE) == [((0.0, 0.0), (0.0, 0.0))]
    op = StepOp(calls[0])
    assert with_missed([op], THREE)[0] is op
    assert with_missed([op], None) == [op]


def test_what_is_missed_and_what_is_cold_of_one_step() -> None:
    calls = decode(20)
    missed, cold = residency_of_step(calls, THREE, 1000)
    assert cold == cold_bytes(calls, 1000)
    every = missed_bytes_of_step(calls, THREE)
    assert missed == [found if any(map(any, found)) else () for found in every]
    assert () not in missed or every[missed.index(())] == ((0.0, 0.0), (0.0, 0.0))
    assert missed[10] == ((400.0, 0.0), (0.0, 0.0))
