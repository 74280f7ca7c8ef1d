"""What a program holds of the target: generators, CUDA graphs, packages; and where it makes it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.symbolic.op_graph import capture_op_graph  # noqa: E402
from gobrrr.timeline.errors import CaptureError  # noqa: E402
from gobrrr.timeline.graph import OpGraph  # noqa: E402

from .targets import GPU  # noqa: E402

pytestmark = pytest.mark.torch


def names(graph: OpGraph) -> Counter[str]:
    return Counter(op.call.name for op in graph.ops)


def test_a_generator_of_the_target() -> None:
    def make() -> Any:
        generator = torch.Generator("cuda").manual_seed(1)
        assert isinstance(generator, torch.Generator) and generator.device.type == "cuda"

        def step() -> None:
            torch.randn(8, 8, device="cuda", generator=generator)
            torch.randn(8, 8, generator=torch.Generator())

        return step

    graph = capture_op_graph(make, GPU)
    devices = [(op.call.outputs or ())[0].device for op in graph.ops]
    assert devices == ["cuda:0", "cpu"]
    assert torch.Generator is torch._C.Generator


def test_a_cuda_graph_is_as_much_work_as_it_is_replayed() -> None:
    def make() -> Any:
        model, x = torch.nn.Linear(8, 8).cuda(), torch.randn(4, 8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(x).relu()

        def step() -> None:
            x.copy_(torch.randn(4, 8, device="cuda"))
            graph.replay()
            graph.replay()

        return step

    captured = capture_op_graph(make, GPU)
    seen = names(captured)
    assert (seen["aten::addmm"], seen["aten::relu"], seen["aten::copy_"]) == (2, 2, 1)
    assert any("replays a CUDA graph" in notice for notice in captured.notices)


def test_graphed_callables_run_forward_and_backward() -> None:
    def make() -> Any:
        x = torch.randn(4, 8, device="cuda")
        model = torch.cuda.make_graphed_callables(torch.nn.Linear(8, 8).cuda(), (x,))

        def step() -> None:
            model(torch.randn(4, 8, device="cuda")).sum().backward()

        return step

    seen = names(capture_op_graph(make, GPU))
    assert (seen["aten::addmm"], seen["aten::mm"]) == (1, 1)


def test_a_package_of_compiled_code_is_refused() -> None:
    package = pytest.importorskip("torch._inductor.package.package")
    model = package.AOTICompiledModel(None)
    with pytest.raises(CaptureError, match="AOTInductor"):
        capture_op_graph(lambda: lambda: model(torch.randn(4, 8)), GPU)


def test_a_mask_on_meta_in_keyword_arguments() -> None:
    mask = torch.ones(16, 16, dtype=torch.bool, device="meta")
    q = torch.randn(2, 4, 16, 32, device="meta")

    def step() -> None:
        torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    seen = names(capture_op_graph(lambda: step, GPU))
    assert sum(count for name, count in seen.items() if "attention" in name) == 1
