"""Operators that have one path on CPUs and another on a GPU take the GPU's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph  # noqa: E402
from gobrrr.symbolic.target.kernels import Abilities  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402

from .test_op_graph import CPU, GPU, capture, names  # noqa: E402

pytestmark = pytest.mark.torch


def working(graph: object) -> list[str]:
    """Names of what launches a kernel, in order."""
    views = {"t", "view", "expand", "detach", "transpose", "unsqueeze", "squeeze", "empty"}
    found = [op.call.name.removeprefix("aten::") for op in graph.ops]  # type: ignore[attr-defined]
    return [name for name in found if name not in views]


@pytest.mark.parametrize("inference", [False, True])
def test_dropout_is_one_kernel_each_way(inference: bool) -> None:
    x = torch.empty(4, 8, requires_grad=True)

    def step() -> object:
        out = functional.dropout(x, 0.1, training=True)
        if not inference:
            out.backward(torch.empty(4, 8))
        return out

    expected = ["native_dropout"] if inference else ["native_dropout", "native_dropout_backward"]
    assert working(capture(step, inference_mode=inference)) == expected


def test_dropout_that_keeps_or_drops_all_is_composed() -> None:
    x = torch.empty(4, 8)
    assert working(capture(lambda: functional.dropout(x, 0.5, training=False))) == []
    assert "native_dropout" not in names(capture(lambda: functional.dropout(x, 1.0, training=True)))
    without = CaptureTarget(GPU.answers, Abilities(frozenset(), frozenset(), fused=False))
    found = names(capture(lambda: functional.dropout(x, 0.5, training=True), without))
    assert found["bernoulli_"] == 1
    found = names(capture(lambda: functional.dropout(x, 0.5, training=True), CPU))
    assert found["bernoulli_"] == 1


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_the_root_mean_square_norm_is_one_kernel_each_way(inference: bool, affine: bool) -> None:
    norm = nn.RMSNorm(8, elementwise_affine=affine)
    x = torch.empty(4, 8, requires_grad=True)

    def step() -> object:
        out = norm(x)
        if not inference:
            out.backward(torch.empty(4, 8))
        return out

    graph = capture(step, inference_mode=inference)
    expected = ["_fused_rms_norm"] if inference else ["_fused_rms_norm", "_fused_rms_norm_backward"]
    assert working(graph) == expected
    output, rstd = graph.ops[0].call.outputs
    assert output.shape == (4, 8)
    assert rstd.shape == (4, 1)


def test_the_root_mean_square_norm_of_two_dtypes_is_composed() -> None:
    norm, x = nn.RMSNorm(8), torch.empty(4, 8, dtype=torch.bfloat16)
    found = names(capture(lambda: norm(x)))
    assert found["rsqrt"] == 1
    assert found["_fused_rms_norm"] == 0


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_step_of_a_recurrent_cell_is_two_products_and_a_kernel(
    inference: bool, bias: bool
) -> None:
    lstm, gru = nn.LSTMCell(6, 8, bias), nn.GRUCell(6, 8, bias)
    x, h = torch.empty(3, 6), torch.empty(3, 8)

    def step() -> object:
        hidden, cell = lstm(x, (h, h))
        out = gru(x, hidden) + cell
        if not inference:
            out.backward(torch.empty(3, 8))
        return out

    graph = capture(step, inference_mode=inference)
    forward = ["mm", "mm", "_thnn_fused_lstm_cell", "mm", "mm", "_thnn_fused_gru_cell", "add"]
    found = working(graph)
    assert found[:7] == forward
    cells = {name: op.call for op in graph.ops if "_cell" in (name := op.call.name[6:])}
    assert [out.shape for out in cells["_thnn_fused_lstm_cell"].outputs] == [
        (3, 8),
        (3, 8),
        (3, 32),
    ]
    assert [out.shape for out in cells["_thnn_fused_gru_cell"].outputs] == [(3, 8), (3, 40)]
    assert found.count("_thnn_fused_gru_cell_backward") == (0 if inference else 1)
    assert found.count("_thnn_fused_lstm_cell_backward_impl") == (0 if inference else 1)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_casts_float16_in_its_kernel(name: str) -> None:
    x = torch.empty(4, 8, dtype=torch.float16)
    function = getattr(functional, name)
    graph = capture(lambda: function(x, dim=-1, dtype=torch.float32))
    assert working(graph) == [f"_{name}"]
    call = graph.ops[0].call
    assert (call.tensors[0].dtype, call.outputs[0].dtype) == ("float16", "float32")
    # bfloat16 is cast first, on CUDA too.
    graph = capture(lambda: function(x.bfloat16(), dim=-1, dtype=torch.float32))
    assert working(graph) == ["_to_copy", "_to_copy", f"_{name}"]


@pytest.mark.parametrize("as_workload", [False, True])
def test_sparse_gradients_keep_their_entries(as_workload: bool) -> None:
    embedding = nn.Embedding(1000, 16, sparse=True)
    optimizer = torch.optim.SparseAdam(embedding.parameters())
    ids = torch.zeros(4, 8, dtype=torch.long)

    def step() -> None:
        optimizer.zero_grad()
        embedding(ids).sum().backward()
        optimizer.step()

    work = Workload(embedding, ids, lambda out, _: out.sum(), optimizer, ids)
    graph = capture(work if as_workload else step)
    found = names(graph)
    assert found["embedding_dense_backward"] == 0
    assert found["sparse_mask"] == 2
    # 4 x 8 rows of 16 are updated, not all 1,000.
    roots = [op.call for op in graph.ops if op.call.name == "aten::sqrt_"]
    assert [call.tensors[0].shape for call in roots] == [(32, 16)]


def test_sparse_gradients_lie_where_the_table_does() -> None:
    def make() -> Callable[[], None]:
        embedding = nn.EmbeddingBag(1000, 16, sparse=True).to("cuda")
        optimizer = torch.optim.SparseAdam(embedding.parameters())
        ids = torch.zeros(4, 8, dtype=torch.long, device="cuda")

        def step() -> None:
            optimizer.zero_grad()
            embedding(ids).sum().backward()
            assert embedding.weight.grad.is_cuda
            optimizer.step()

        return step

    graph = capture_op_graph(make, GPU)
    ops = [op.call for op in graph.ops if op.call.name in ("aten::_coalesce", "aten::sqrt_")]
    assert {t.device for call in ops for t in (*call.tensors, *call.outputs)} == {"cuda:0"}


@pytest.mark.parametrize("name", ["mm", "_sparse_addmm"])
def test_a_sparse_product_takes_entries_in_order_each_way(name: str) -> None:
    indices, values = torch.zeros(2, 30, dtype=torch.long), torch.randn(30)
    x = torch.randn(20, 4, requires_grad=True)

    def step() -> None:
        matrix = torch.sparse_coo_tensor(indices, values, (10, 20), check_invariants=False)
        out = matrix @ x if name == "mm" else torch.sparse.mm(matrix, x)
        out.sum().backward()

    graph = capture(step)
    products = [op.call for op in graph.ops if op.call.name in ("aten::mm", f"aten::{name}")]
    # The gradient's matrix is the transpose: as many entries, in another order.
    assert [out.shape for call in products for out in call.outputs] == [(10, 4), (20, 4)]
    for call in products:
        parts = next(arg for arg in call.args if isinstance(arg, tuple))
        assert [part.shape for part in parts[1:]] == [(2, 30), (30,)]
    assert names(graph)["_coalesce"] == 2
    assert names(capture(step, CPU))["_coalesce"] == 0


@pytest.mark.parametrize("of_parts", [False, True])
def test_a_compressed_matrix_has_its_entries(of_parts: bool) -> None:
    def make() -> Callable[[], object]:
        x = torch.randn(20, 4, device="cuda")
        if of_parts:
            starts = torch.zeros(11, dtype=torch.long, device="cuda")
            columns = torch.zeros(30, dtype=torch.long, device="cuda")
            values = torch.randn(30, device="cuda")
            matrix = torch.sparse_csr_tensor(starts, columns, values, (10, 20))
        else:
            matrix = torch.randn(10, 20, device="cuda").to_sparse_csr()
        return lambda: matrix @ x

    graph = capture_op_graph(make, GPU)
    (call,) = [op.call for op in graph.ops if op.call.name == "aten::mm"]
    entries = 30 if of_parts else 200
    layout, *parts = call.args[0]  # type: ignore[misc]
    assert layout == "sparse_csr"
    assert [part.shape for part in parts] == [(11,), (entries,), (entries,)]
    assert {part.device for part in parts} == {"cuda:0"}
    # How many of a dense one are zeros nobody knows: all are said to be there.
    assert ("an entry for each element" in " ".join(graph.notices)) != of_parts


def test_sparse_gradients_of_a_large_table_are_added_without_its_memory() -> None:
    # A table of 256 TB: real memory for it does not exist.
    with torch.device("meta"):
        embedding = nn.EmbeddingBag(1 << 38, 256, mode="sum", sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
    ids = torch.zeros(4, 8, dtype=torch.long)

    def step() -> None:
        optimizer.zero_grad()
        embedding(ids).sum().backward()
        optimizer.step()

    graph = capture(step)
    (update,) = [op.call for op in graph.ops if op.call.name == "aten::add_"
                 and len(op.call.tensors) == 3]  # fmt: skip
    assert [t.shape for t in update.tensors] == [(1 << 38, 256), (1, 32), (32, 256)]


@pytest.mark.parametrize("inference", [False, True])
def test_one_hot_vectors_are_written_into_zeros(inference: bool) -> None:
    index = torch.zeros(8, dtype=torch.int64)
    graph = capture(lambda: functional.one_hot(index, 5), inference_mode=inference)
    assert working(graph) == ["zeros", "scatter_"]
    assert graph.ops[-1].call.outputs[0].shape == (8, 5)
    # Without the number of classes it is asked of the values.
    graph = capture(lambda: functional.one_hot(index), inference_mode=inference)
    assert working(graph) == ["max", "_local_scalar_dense", "zeros", "scatter_"]
    assert graph.ops[-1].call.outputs[0].shape == (8, 1)
