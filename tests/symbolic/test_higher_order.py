"""Control flow as an operator and flex attention, captured as they run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402
from gobrrr.timeline.graph import OpGraph  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402

from .targets import CPU, GPU  # noqa: E402

pytestmark = pytest.mark.torch


def names(graph: OpGraph) -> Counter[str]:
    return Counter(op.call.name for op in graph.ops)


@pytest.mark.parametrize("target", [GPU, CPU])
def test_cond_runs_one_branch(target: CaptureTarget) -> None:
    x, w = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)

    def step() -> None:
        out = torch.cond(x.sum() > 0, lambda v: v.sin() @ w, lambda v: v.cos() @ w, (x,))
        out.sum().backward()

    graph = capture_op_graph(lambda: step, target)
    seen = names(graph)
    assert (seen["aten::sin"], seen["aten::cos"], seen["aten::mm"]) == (0, 1, 2)
    assert any("assumed to be false" in notice for notice in graph.notices)


def test_a_while_loop_of_known_length_runs_it() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def step(x: Any) -> Any:
        return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v.sin()), (torch.tensor(0), x))

    x = torch.randn(4)
    graph = capture_op_graph(lambda: lambda: step(x), GPU)
    assert names(graph)["aten::sin"] == 3
    assert not graph.notices


def test_a_while_loop_of_unknown_length_runs_one_turn_and_says_so() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    x = torch.randn(64)  # too many for their values to be kept
    graph = capture_op_graph(
        lambda: lambda: while_loop(lambda v: v.sum() < 3, lambda v: (v.sin(),), (x,)), GPU
    )
    assert names(graph)["aten::sin"] == 1
    assert any("while_loop" in notice and "one iteration" in notice for notice in graph.notices)


def test_scan_and_map_run_turn_after_turn() -> None:
    from torch._higher_order_ops.map import map as map_op
    from torch._higher_order_ops.scan import scan

    x = torch.randn(5, 3, requires_grad=True)

    def step() -> None:
        last, all_of_them = scan(lambda c, v: (c * v, c.sin()), torch.ones(3), x)
        (last.sum() + all_of_them.sum() + map_op(lambda v: v.cos(), x).sum()).backward()

    seen = names(capture_op_graph(lambda: step, GPU))
    # Five turns each, and each is the other's gradient; the first carry needs none
    assert (seen["aten::sin"], seen["aten::cos"]) == (5 + 5, 5 + 4)


def test_flex_attention_is_one_kernel_each_way() -> None:
    q = torch.randn(1, 4, 8, 16, requires_grad=True)
    k = torch.randn(1, 2, 8, 16, requires_grad=True)

    def step() -> None:
        flex_attention(q, k, k, lambda s, b, h, i, j: s + i - j, enable_gqa=True).sum().backward()

    graph = capture_op_graph(lambda: step, GPU)
    seen = names(graph)
    assert (seen["flex::attention"], seen["flex::attention_backward"]) == (1, 1)
    assert any("one kernel" in notice for notice in graph.notices)


def test_a_block_mask_leaves_its_share_of_the_pairs() -> None:
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 512, 512, device="cpu")
    q = torch.randn(1, 1, 512, 16)
    graph = capture_op_graph(lambda: lambda: flex_attention(q, q, q, block_mask=mask), GPU)
    (call,) = [op.call for op in graph.ops if op.call.name == "flex::attention"]
    assert call.args[3] == 10 / 16  # 4 x 4 blocks of 128: 1 + 2 + 3 + 4 on or below the diagonal


def blocks_left(mask: Any, n: int) -> tuple[float, tuple[str, ...]]:
    q = torch.randn(1, 2, n, 16)
    flex = torch.compile(flex_attention)
    graph = capture_op_graph(lambda: lambda: flex(q, q, q, block_mask=mask()), GPU)
    (call,) = [op.call for op in graph.ops if op.call.name == "flex::attention"]
    share = call.args[3]
    assert isinstance(share, float)
    return share, graph.notices


def test_a_function_of_indices_says_which_blocks_are_empty() -> None:
    # 2^24 pairs: more than are followed as values.
    n, blocks = 4096, 32

    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    def window(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= j) & (i - j < 256)

    def second_head(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (h == 1) & (i >= j)

    half = blocks * (blocks + 1) // 2
    share, notices = blocks_left(
        lambda: create_block_mask(causal, None, None, n, n, device="cpu"), n
    )
    assert share == half / blocks**2
    (notice,) = notices
    assert "one kernel" in notice
    # A row of blocks has its own, the one before, and some pairs of the one before that.
    shares = [
        blocks_left(lambda: create_block_mask(window, None, None, n, n, device="cpu"), n)[0],
        blocks_left(lambda: create_block_mask(second_head, 1, 2, n, n, device="cpu"), n)[0],
    ]
    assert shares == [(3 * blocks - 3) / blocks**2, half / blocks**2 / 2]


def test_lengths_that_are_no_multiple_of_a_block_count_their_last_one() -> None:
    n = 1000  # 8 blocks, the last of 104
    share, _ = blocks_left(
        lambda: create_block_mask(lambda b, h, i, j: i >= j, 1, None, n, n, device="cpu"), n
    )
    assert share == 36 / 64


def test_a_mask_of_data_leaves_all_blocks_and_says_so() -> None:
    n = 1024

    def mask() -> Any:
        document = torch.randn(n).argsort()
        return create_block_mask(
            lambda b, h, i, j: document[i] == document[j], None, None, n, n, device="cpu"
        )

    share, notices = blocks_left(mask, n)
    assert share == 1.0
    assert any("all of them" in notice for notice in notices)


@pytest.mark.parametrize("of", ["nothing", "flex_attention", "the step"])
def test_flex_attention_says_whether_the_program_compiles_it(
    of: str, recwarn: pytest.WarningsRecorder
) -> None:
    flex = torch.compile(flex_attention) if of == "flex_attention" else flex_attention
    q = torch.randn(1, 1, 128, 16)

    def step() -> Any:
        return flex(q, q, q)

    whole = torch.compile(step) if of == "the step" else step
    said = " ".join(capture_op_graph(lambda: whole, GPU).notices)
    assert ("without torch.compile" in said) is (of == "nothing")
    assert ("predicted as eager code" in said) is (of == "the step")
    assert not any("without torch.compile" in str(each.message) for each in recwarn)


def test_operators_are_as_before_after_a_capture() -> None:
    from torch._ops import HigherOrderOperator

    before = HigherOrderOperator.__call__
    x = torch.randn(4)
    capture_op_graph(lambda: lambda: x.sin(), GPU)
    assert HigherOrderOperator.__call__ is before


def test_functional_transforms_are_captured() -> None:
    from torch.func import grad, hessian, vmap

    x, w = torch.randn(8, 32), torch.randn(32)

    def step() -> Any:
        per_sample = vmap(grad(lambda w, row: (row * w).sum().sin()), in_dims=(None, 0))(w, x)
        return per_sample, hessian(lambda v: (v @ w).tanh())(w)

    seen = names(capture_op_graph(lambda: step, GPU))
    assert seen["aten::cos"]  # the gradient of sin
    assert seen["aten::tanh"]


def test_a_device_given_back_names_nothing() -> None:
    x = torch.randn(64, 64)

    def step() -> Any:
        return x @ torch.ones(64, 64, device=x.device)

    graph = capture_op_graph(lambda: step, GPU)
    assert {spec.device for spec in graph.ops[-1].call.tensors} == {"cuda:0"}


def test_a_device_named_inside_torchs_own_functions_is_followed() -> None:
    x = torch.randn(2, 3, 8, 8)
    pool = torch.nn.functional.fractional_max_pool2d
    graph = capture_op_graph(lambda: lambda: pool(x, 2, output_size=(4, 4)), GPU)
    assert names(graph)["aten::fractional_max_pool2d"] == 1
    assert {spec.device for op in graph.ops for spec in op.call.tensors} == {"cuda:0"}


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_a_nested_tensor_is_refused_in_a_sentence(layout: Any) -> None:
    rows = torch.nested.nested_tensor([torch.randn(5, 4), torch.randn(3, 4)], layout=layout)
    work = Workload(torch.nn.Linear(4, 4), (rows,))
    with pytest.raises(InputError, match="nested tensor"):
        capture_op_graph(lambda: work, GPU)


def test_dynamo_knows_the_functions_of_torch_after_a_capture() -> None:
    from torch._dynamo import trace_rules

    def step() -> Any:
        # What Dynamo asks of every function that it meets.
        trace_rules.lookup(torch.sin)
        return torch.tensor([1.0, 2.0])

    trace_rules.clear_lru_cache()
    capture_op_graph(lambda: step, GPU)
    assert torch.tensor in trace_rules.get_torch_obj_rule_map()
