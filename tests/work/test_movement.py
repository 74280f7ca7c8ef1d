from __future__ import annotations

import pytest

from gobrrr.timeline.ops import Arg, OpCall
from gobrrr.work import work_of

from .calls import moved, tensor, work


@pytest.mark.parametrize("name", ["view", "t", "transpose", "as_strided", "select", "detach"])
def test_a_view_is_no_work(name: str) -> None:
    found = work(name, tensor(4, 8))
    assert (found.flops, found.bytes_moved, found.fresh_bytes) == (0, 0, 0)


def test_an_allocation_is_no_work() -> None:
    assert work("empty", (4, 8)).bytes_moved == 0
    assert work("empty_like", tensor(4, 8), outputs=(tensor(4, 8),)).bytes_moved == 0


def test_a_copy_reads_the_source_and_writes_the_target() -> None:
    found = work("copy_", tensor(4, 8), tensor(4, 8, dtype="bfloat16"), False)
    assert moved(found) == (64, 128, 192)
    assert (found.flops, found.fresh_bytes, found.op_class) == (0, 0, "movement")
    assert moved(work("clone", tensor(4, 8), None)) == (128, 128, 256)
    # A broadcast source: one row
    assert work("copy_", tensor(4, 8), tensor(8), False).bytes_read == 32


def test_a_cast_from_a_recorder_and_from_a_trace() -> None:
    recorded = work("_to_copy", tensor(4, 8), "bfloat16", None, None, None, False, None)
    traced = work("_to_copy", tensor(4, 8), 15, None, None, None, False, None)
    assert moved(recorded) == moved(traced) == (128, 64, 192)


def test_contiguous_copies_only_what_is_not() -> None:
    assert work("contiguous", tensor(4, 8), None).bytes_moved == 0
    turned = tensor(8, 4, strides=(1, 8))
    assert moved(work("contiguous", turned, None)) == (128, 128, 256)
    out = tensor(8, 4, storage=2)
    assert (
        work("reshape", tensor(8, 4, strides=(1, 8), storage=1), (32,), outputs=(out,)).bytes_moved
        == 256
    )
    same = tensor(32, storage=1)
    assert work("reshape", tensor(4, 8, storage=1), (32,), outputs=(same,)).bytes_moved == 0


def test_cat_reads_all_and_writes_all() -> None:
    parts = (tensor(4, 8), tensor(2, 8), tensor(0))
    assert moved(work("cat", parts, 0)) == (192, 192, 384)
    assert moved(work("stack", (tensor(4), tensor(4)), 0)) == (32, 32, 64)


def test_what_is_created_is_only_written() -> None:
    assert moved(work("zeros_like", tensor(4, 8))) == (0, 128, 128)
    assert work("zeros_like", tensor(4, 8)).fresh_bytes == 128
    assert moved(work("fill_", tensor(4, 8), 1.0)) == (0, 128, 128)
    assert work("zero_", tensor(4, 8)).fresh_bytes == 0
    assert work("zeros", (4, 8), "float64").bytes_written == 256
    # Sizes follow from numbers: arange(3, 10, 2) has 4 elements of 8 bytes, eye(3) 9 of 4 bytes.
    rest = (None, None, "cpu", None)
    assert work("arange", 10, *rest).bytes_written == 80
    assert work("arange", 3, 10, 2, *rest).bytes_written == 32
    assert work("arange", 0.0, 1.0, 0.25, *rest).bytes_written == 16
    assert work("eye", 3, *rest).bytes_written == 36
    assert work("linspace", 0, 1, 7, "float64", None, "cpu", None).bytes_written == 56
    # The value of full_like is not its dtype, which comes after.
    assert work("full_like", tensor(4), 1, None).bytes_written == 16
    assert work("new_full", tensor(4), (2,), 1, "float64").bytes_written == 16
    assert work("new_zeros", tensor(4), (2,), "bool").bytes_written == 2
    assert (
        work(
            "arange", 10, None, None, None, None, outputs=(tensor(10, dtype="int64"),)
        ).bytes_written
        == 80
    )


def test_the_size_of_a_range_is_unknown_without_its_result() -> None:
    assert work_of(OpCall("aten::arange", (None, None, None, None, None))) is None


def test_repeat_and_pad_derive_their_shapes() -> None:
    assert moved(work("repeat", tensor(3), (2, 4))) == (12, 96, 108)
    # (2, 3) padded by one column left, two right, one row below: (3, 6)
    assert moved(work("constant_pad_nd", tensor(2, 3), (1, 2, 0, 1), 0)) == (24, 72, 96)


def test_reading_a_scalar_moves_one_element() -> None:
    assert moved(work("_local_scalar_dense", tensor())) == (4, 0, 4)


# Indexing


def test_embedding_reads_only_the_rows_looked_up() -> None:
    ids = tensor(2, 3, dtype="int64")
    found = work("embedding", tensor(1000, 8), ids, -1, False, False)
    # 6 rows of 8 floats and 6 indices read, 48 floats written
    assert moved(found) == (6 * 32 + 48, 192, 432)
    assert found.flops == 0
    # A small table is read at most whole.
    assert work("embedding", tensor(2, 8), ids).bytes_read == 2 * 32 + 48


def test_embeddings_gradient_writes_the_whole_table() -> None:
    grad, ids = tensor(2, 3, 8), tensor(2, 3, dtype="int64")
    found = work("embedding_dense_backward", grad, ids, 1000, -1, False)
    assert moved(found) == (192 + 48, 32000, 32240)
    assert found.vector_flops == 48


def test_embedding_bags_add_up_rows() -> None:
    ids, offsets = tensor(12, dtype="int64"), tensor(3, dtype="int64")
    found = work("_embedding_bag", tensor(100, 8), ids, offsets, False, 0, False, None, False, -1)
    assert (found.vector_flops, found.bytes_written) == (96, 3 * 32)
    assert found.bytes_read == 12 * 32 + 96 + 24


def test_gather_index_select_and_index() -> None:
    assert moved(work("gather", tensor(4, 100), 1, tensor(4, 2, dtype="int64"))) == (
        32 + 64,
        32,
        128,
    )
    found = work("index_select", tensor(100, 8), 0, tensor(5, dtype="int64"))
    assert moved(found) == (160 + 40, 160, 360)
    assert moved(work("index", tensor(100, 8), (tensor(5, dtype="int64"),))) == (200, 160, 360)
    # x[:, i] of 100 x 5 elements looks like this in a recording, and like x[0-d tensor, i] in a
    # trace.
    columns = (None, tensor(5, dtype="int64"))
    assert moved(work("index", tensor(100, 8), columns)) == (2000 + 40, 2000, 4040)
    in_trace = (tensor(dtype=""), tensor(5, dtype=""))
    assert work_of(OpCall("aten::index", (tensor(100, 8), in_trace))) is None
    # x[:, i] = 1.0 writes all 500 of them: 2000 bytes, and reads the indices and the value.
    put = work("index_put_", tensor(100, 8), columns, tensor())
    assert moved(put) == (40 + 4, 2000, 2044)
    # x[i, :, j] of 4 x 8 x 6 with 5 indices each: 5 * 8 elements.
    i = tensor(5, dtype="int64")
    assert work("index", tensor(4, 8, 6), (i, None, i)).bytes_written == 160
    mask = tensor(100, dtype="bool")
    assert work_of(OpCall("aten::index", (tensor(100, 8), (mask,)))) is None


def test_scatter_add_reads_and_writes_the_elements_named() -> None:
    index = tensor(5, 8, dtype="int64", strides=(1, 0))
    found = work("scatter_add_", tensor(100, 8), 0, index, tensor(5, 8))
    # 40 elements read, added to and written; src 160 bytes; an expanded index 5 * 8 bytes
    assert moved(found) == (160 + 40 + 160, 160, 360)
    assert found.vector_flops == 40
    copied = work("scatter_add", tensor(100, 8), 0, index, tensor(5, 8))
    assert moved(copied)[:2] == (3200 + 160 + 40, 3200)


def test_index_put_touches_the_elements_named() -> None:
    index = (tensor(5, dtype="int64"),)
    found = work("index_put_", tensor(100, 8), index, tensor(5, 8), False)
    assert moved(found) == (160 + 40, 160, 360)
    added = work("index_put_", tensor(100, 8), index, tensor(5, 8), True)
    assert (moved(added), added.vector_flops) == ((360, 160, 360), 40)


# Ordering


def test_sort_writes_values_and_indices() -> None:
    found = work("sort", tensor(100), -1, False)
    assert moved(found) == (400, 1200, 1600)
    assert found.flops == 0
    best = work("topk", tensor(4, 100), 3, -1, True, True)
    assert (best.bytes_written, best.vector_flops) == (12 * 12, 400)


def test_what_fsdp2_copies_is_counted_by_its_shapes() -> None:
    def fsdp(name: str, *args: Arg) -> tuple[int | None, int | None, int | None]:
        found = work_of(OpCall(f"fsdp::{name}", args))
        assert found is not None, name
        return moved(found)

    # Of two ranks: shards of 6 and 4 elements into this rank's half of the buffer.
    shards, buffer = (tensor(3, 2), tensor(4)), tensor(20)
    assert fsdp("all_gather_copy_in", shards, buffer, (6, 4), 10, 1) == (40, 40, 80)
    # Gathered, into the parameters.
    out = (tensor(2, 6), tensor(2, 4))
    assert fsdp("split_with_sizes_copy", tensor(2, 10), (6, 4), 1, out) == (80, 80, 160)
    # Gradients, padded to whole chunks, in another type.
    gradients = (tensor(3, 2, dtype="bfloat16"), tensor(4, dtype="bfloat16"))
    assert fsdp("chunk_cat", gradients, 0, 2, tensor(2, 6)) == (20, 48, 68)
    assert moved(work("_chunk_cat", gradients, 0, 2)) == (20, 24, 44)
    assert fsdp("copy_", tensor(4), tensor(4, dtype="bfloat16")) == (8, 16, 24)


def test_windows_put_back_are_read_where_they_lie_in_the_image() -> None:
    args = ((4, 4), (3, 3), (1, 1), (1, 1), (1, 1))
    found = work("col2im", tensor(2, 3 * 9, 16), *args)
    # In each direction the 4 places of a window of 3 have 2, 3, 3 and 2 elements in 4: 10 of 12.
    # 2 * 3 * 10 * 10 = 600 elements read and added up, 2 * 3 * 16 written.
    assert moved(found) == (2400, 384, 2784)
    assert found.flops == 600
    whole = work("col2im", tensor(2, 3 * 4, 4), (4, 4), (2, 2), (1, 1), (0, 0), (2, 2))
    assert moved(whole) == (2 * 3 * 16 * 4, 2 * 3 * 16 * 4, 2 * 2 * 3 * 16 * 4)
