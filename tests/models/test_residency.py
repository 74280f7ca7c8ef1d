from __future__ import annotations

from gobrrr.models.residency import cold_bytes_of_step
from gobrrr.timeline.ops import OpCall
from models.toy_device import aten, spec


def add(source: int, result: int, elements: int = 100) -> OpCall:
    """Reads 400 bytes of one storage, writes 400 of another."""
    out = spec(elements, storage=result)
    return aten("relu", spec(elements, storage=source), outputs=(out,))


def test_what_the_op_before_wrote_is_read_from_the_cache() -> None:
    # Everything fits: in a step that repeats nothing comes from memory.
    assert cold_bytes_of_step([add(1, 2), add(2, 3)], 10_000) == [0.0, 0.0]


def test_without_a_cache_every_byte_is_cold() -> None:
    # Each op reads 400 from memory; what it writes goes there.
    assert cold_bytes_of_step([add(1, 2), add(2, 3)], 0) == [800.0, 800.0]


def test_what_was_used_longest_ago_has_to_go() -> None:
    # Room for two tensors. Op 0 reads storage 1 (gone since the step before: 400), which pushes
    # out 1's elder, and writes 2; op 1 finds 2 there and writes 3, for which 1 goes unwritten.
    calls = [add(1, 2), add(2, 3)]
    first, second = cold_bytes_of_step(calls, 800)
    # 400 read; for them and for the result, 2 and 3 of the step before are written back: 800.
    assert first == 1200.0
    assert second == 0.0


def test_an_update_in_place_reads_and_dirties_one_tensor() -> None:
    x = spec(100, storage=1)
    assert cold_bytes_of_step([aten("relu_", x)], 10_000) == [0.0]
    # It flows through a cache that is too small: read once, written once.
    assert cold_bytes_of_step([aten("relu_", x)], 100) == [800.0]


def test_a_tensor_without_a_storage_is_cold() -> None:
    assert cold_bytes_of_step([aten("relu", spec(100), outputs=(spec(100),))], 10_000) == [800.0]


def test_views_of_one_storage_are_the_same_memory() -> None:
    whole = spec(300, storage=1)
    part = spec(100, storage=1)
    calls = [aten("sum", whole, outputs=(spec(1, storage=2),)),
             aten("relu", part, outputs=(spec(100, storage=3),))]  # fmt: skip
    assert cold_bytes_of_step(calls, 10_000)[1] == 0.0
