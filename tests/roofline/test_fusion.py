"""Fusion groups of small graphs whose bytes can be added up by hand."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.roofline.dataflow import Dataflow, link
from gobrrr.roofline.fusion import flops_until_compute_bound, fuse
from gobrrr.roofline.opportunities import (
    ATTENTION,
    CHAIN,
    EPILOGUE,
    FROM_REDUCTION,
    ONTO_REDUCTION,
    SCALE_SHIFT_GATE,
    find_opportunities,
    patterns,
)
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec

N = 1024
BANDWIDTH = 1e9
VECTOR = 1e10


def tensor(storage: int, *shape: int, dtype: str = "float32") -> TensorSpec:
    strides = []
    step = 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return TensorSpec(shape, dtype, tuple(strides), storage, "cuda:0", 0)


def op(name: str, args: Sequence[Arg], *out: TensorSpec, line: str = "") -> StepOp:
    return StepOp(OpCall(f"aten::{name}", tuple(args), out), "", line, Phase.FORWARD)


def ceilings() -> Ceilings:
    rows = {
        "vector.float32": Ceiling("vector.float32", VECTOR, "FLOP/s", "given", ""),
        "matrix.float32": Ceiling("matrix.float32", VECTOR, "FLOP/s", "given", ""),
    }
    return Ceilings("device", rows, (MemoryLevel("dram", None, ((0.0, BANDWIDTH),)),))


def cos_cos() -> Dataflow:
    x, y, z = tensor(1, N), tensor(2, N), tensor(3, N)
    return link([op("cos", [x], y, line="a.py:1"), op("cos", [y], z, line="a.py:1")], {3})


def members(flow: Dataflow, **options: int) -> list[tuple[int, ...]]:
    return [group.members for group in fuse(flow, **options)]


def test_two_cosines_in_one_kernel_move_half_the_bytes() -> None:
    (group,) = fuse(cos_cos())
    # One by one: read x, write y, read y, write z: 4 * 1024 * 4. Fused: read x, write z.
    assert group.bytes_now == 4 * N * 4
    assert group.bytes_fused == 2 * N * 4
    assert group.work is not None
    # Both functions are still computed: 2 * 1024 * 8 FLOPs.
    assert group.work.vector_flops == 2 * N * 8


def test_the_opportunity_says_what_it_saves_and_how_much_more_would_be_free() -> None:
    (found,) = find_opportunities(cos_cos(), ceilings(), fixed_s=1e-6)
    assert found.kind == CHAIN
    assert found.ops == ("cos", "cos")
    assert found.sources == ("a.py:1",)
    # 16 KiB and 8 KiB at 1 GB/s, and one fixed cost less.
    assert found.saved_s == pytest.approx(8192 / 1e9 + 1e-6)
    assert found.flops_per_element == 16
    # 8 bytes per element take 8 ns, in which the device does 80 FLOPs.
    assert found.free_flops_per_element == pytest.approx(80)
    assert flops_until_compute_bound(8, BANDWIDTH, VECTOR) == pytest.approx(80)


def test_what_backward_reads_is_still_written() -> None:
    x, y, z, g, h = (tensor(i, N) for i in range(1, 6))
    flow = link(
        [
            op("cos", [x], y),
            op("cos", [y], z),
            op("mm", [tensor(8, 32, 32), tensor(9, 32, 32)], tensor(10, 32, 32)),
            op("index_add", [g, 0, y, z], h),
        ],
        {5},
    )
    group = fuse(flow)[0]
    assert group.members == (0, 1)
    # y and z are read later: only the second read of y is saved.
    assert group.bytes_fused == 3 * N * 4


def test_a_result_that_is_kept_is_written() -> None:
    x, y, z = tensor(1, N), tensor(2, N), tensor(3, N)
    flow = link([op("cos", [x], y), op("cos", [y], z)], {2, 3})
    assert fuse(flow)[0].bytes_fused == 3 * N * 4


def test_in_place_operators_are_values_of_one_storage() -> None:
    x, y = tensor(1, N), tensor(2, N)
    flow = link([op("mul", [x, 2.0], y), op("add_", [y, 1.0, 1], y), op("relu_", [y], y)], {2})
    (group,) = fuse(flow)
    assert group.bytes_now == 6 * N * 4
    assert group.bytes_fused == 2 * N * 4


def test_a_reduction_takes_what_computes_its_input_and_what_uses_its_rows() -> None:
    x, y, s, t, z = (tensor(1, 64, N), tensor(2, 64, N), tensor(3, 64, 1), tensor(4, 64, 1),
                     tensor(5, 64, N))  # fmt: skip
    ops = [
        op("exp", [x], y),
        op("sum", [y, (1,), True, None], s),
        op("reciprocal", [s], t),
        op("mul", [y, t], z),
    ]
    assert members(link(ops, {5})) == [(0, 1, 2, 3)]
    (found,) = find_opportunities(link(ops, {5}))
    assert found.kind == FROM_REDUCTION
    # Only x is read and only z is written.
    assert found.bytes_fused == 2 * 64 * N * 4
    assert found.saved_s is None
    (onto,) = find_opportunities(link(ops[:2], {3}))
    assert onto.kind == ONTO_REDUCTION


def test_a_long_row_is_split_and_its_input_then_read_by_another_kernel() -> None:
    rows, row = 4, 1 << 20
    x, s, z = tensor(1, rows, row), tensor(2, rows, 1), tensor(3, rows, row)
    ops = [op("sum", [x, (1,), True, None], s), op("sub", [x, s, 1], z)]
    assert members(link(ops, {3}), multiprocessors=132) == [(0,), (1,)]
    assert fuse(link(ops, {3}), multiprocessors=132)[0].split
    assert members(link(ops, {3})) == [(0, 1)]


def test_a_product_by_a_library_takes_nothing_but_could() -> None:
    a, b, c, d = tensor(1, 64, 64), tensor(2, 64, 64), tensor(3, 64, 64), tensor(4, 64, 64)
    flow = link([op("mm", [a, b], c), op("relu", [c], d)], {4})
    assert members(flow) == [(0,), (1,)]
    (found,) = find_opportunities(flow)
    assert found.kind == EPILOGUE
    # The product's result is neither written nor read: 5 matrices become 3.
    assert (found.bytes_now, found.bytes_fused) == (5 * 64 * 64 * 4, 3 * 64 * 64 * 4)


def test_nothing_is_fused_across_what_must_run_between() -> None:
    x, y, w, p, z = (tensor(i, 64, 64) for i in range(1, 6))
    flow = link([op("relu", [x], y), op("mm", [y, w], p), op("add", [y, p, 1], z)], {5})
    assert members(flow) == [(0,), (1,), (2,)]


def test_readers_of_one_input_become_one_kernel() -> None:
    x, y, z = tensor(1, N), tensor(2, N), tensor(3, N)
    (group,) = fuse(link([op("cos", [x], y), op("sin", [x], z)], {2, 3}))
    assert group.bytes_fused == 3 * N * 4


def test_a_small_expression_is_computed_where_it_is_broadcast() -> None:
    x, s, t, z = tensor(1, 8, N, 64), tensor(2, 8, 1, 64), tensor(3, 8, 1, 64), tensor(4, 8, N, 64)
    ops = [op("add", [s, 1.0, 1], t), op("mul", [x, t], z)]
    assert members(link(ops, {4})) == [(0, 1)]
    # With another reader elsewhere it is not.
    other = op("mm", [tensor(3, 8, 64), tensor(6, 64, 64)], tensor(7, 8, 64))
    assert members(link([*ops, other], {4})) == [(0,), (1,), (2,)]


def test_the_scale_and_shift_of_an_adaptive_norm_are_told_from_other_chains() -> None:
    shape = (8, 256, 64)
    x, n = tensor(1, *shape), tensor(2, *shape)
    mean, rstd = tensor(3, 8, 256, 1), tensor(4, 8, 256, 1)
    scale, shift = tensor(5, 8, 1, 64), tensor(6, 8, 1, 64)
    flow = link(
        [
            op("native_layer_norm", [x, (64,), None, None, 1e-6], n, mean, rstd),
            op("mul", [n, scale], tensor(7, *shape)),
            op("add", [tensor(7, *shape), shift, 1], tensor(8, *shape)),
        ],
        {8},
    )
    (found,) = find_opportunities(flow)
    assert found.kind == SCALE_SHIFT_GATE


def test_attention_written_out_reads_queries_keys_and_values_once() -> None:
    heads, length, width = 8, 128, 64
    q, v = tensor(1, heads, length, width), tensor(3, heads, length, width)
    kt = TensorSpec((heads, width, length), "float32", (length * width, 1, width), 2, "", 0)
    scores, scaled, soft = (tensor(i, heads, length, length) for i in (4, 5, 6))
    out = tensor(7, heads, length, width)
    flow = link(
        [
            op("bmm", [q, kt], scores),
            op("mul", [scores, 0.125], scaled),
            op("_softmax", [scaled, -1, False], soft),
            op("bmm", [soft, v], out),
        ],
        {7},
    )
    (found,) = find_opportunities(flow)
    assert found.kind == ATTENTION
    assert found.members == (0, 1, 2, 3)
    one = heads * length * width * 4
    square = heads * length * length * 4
    # Scores are written, scaled (read, written), normalised (read, written), read: 6 times.
    assert found.bytes_now == 4 * one + 6 * square
    assert found.bytes_fused == 4 * one


def test_layers_of_the_same_kind_are_one_pattern() -> None:
    ops = []
    for layer in range(3):
        first = layer * 10
        x, y, z = tensor(first + 1, N), tensor(first + 2, N), tensor(first + 3, N)
        ops += [op("cos", [x], y, line="m.py:7"), op("sin", [y], z, line="m.py:7")]
    (pattern,) = patterns(find_opportunities(link(ops, {3, 13, 23}), ceilings()))
    assert len(pattern.places) == 3
    assert pattern.bytes_now - pattern.bytes_fused == 3 * 2 * N * 4
    assert pattern.saved_s == pytest.approx(3 * 2 * N * 4 / BANDWIDTH)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["cos", "add", "mm", "sum"]), st.integers(0, 8),
                          st.integers(0, 8)), min_size=1, max_size=24))  # fmt: skip
def test_kernels_can_run_in_some_order_and_hold_each_op_once(
    rows: list[tuple[str, int, int]],
) -> None:
    made = [tensor(0, 32, 32)]
    ops = []
    for number, (name, a, b) in enumerate(rows, 1):
        first, second = (made[max(0, len(made) - 1 - back)] for back in (a, b))
        args: list[Arg] = [first, second, 1] if name == "add" else [first]
        if name == "mm":
            args = [first, second]
        elif name == "sum":
            args = [first, (1,), True, None]
        made.append(tensor(number, 32, 32))
        ops.append(op(name, args, made[-1]))
    flow = link(ops)
    groups = members(flow)
    assert sorted(m for group in groups for m in group) == list(range(len(flow.ops)))
    group_of = {m: number for number, group in enumerate(groups) for m in group}
    needs = {
        number: {
            group_of[writer]
            for m in group
            for access in flow.ops[m].reads
            if (writer := flow.producer.get(access.value)) is not None
        } - {number}
        for number, group in enumerate(groups)
    }  # fmt: skip
    TopologicalSorter(needs).prepare()


def test_a_long_chain_is_one_kernel_beside_what_cannot_join() -> None:
    # Each link reads a product that depends on nothing: all links become one kernel, and what one
    # of them waits for is what the next waits for.
    chain, ops = tensor(0, 32, 32), []
    for i in range(40):
        product, out = tensor(1000 + i, 32, 32), tensor(1 + i, 32, 32)
        ops.append(op("mm", [tensor(2000 + i, 32, 32), tensor(3000 + i, 32, 32)], product))
        ops.append(op("add", [chain, product, 1], out))
        chain = out
    found = members(link(ops, {40}))
    assert found.count(tuple(range(1, 80, 2))) == 1
    assert len(found) == 41
