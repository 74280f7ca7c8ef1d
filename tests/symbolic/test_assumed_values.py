"""Choices of a router are spread evenly, and what follows from them follows."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.symbolic.op_graph import CaptureOptions, capture_op_graph  # noqa: E402
from gobrrr.timeline.graph import OpGraph  # noqa: E402

from .targets import GPU  # noqa: E402

pytestmark = pytest.mark.torch
TOKENS, WIDTH, EXPERTS, TOP_K = 16, 8, 4, 2


class Experts(nn.Module):
    """A router and a loop over the experts that it hits, as model libraries write it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH))

    def choose(self, x: Any) -> Any:
        return self.gate(x).softmax(-1).topk(TOP_K)

    def forward(self, x: Any) -> Any:
        weights, chosen = self.choose(x)
        mask = nn.functional.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert in torch.greater(mask.sum((-1, -2)), 0).nonzero():
            slot, token = torch.where(mask[expert[0]])
            rows = x[token] @ self.experts[expert[0]]
            out.index_add_(0, token, rows * weights[token, slot, None])
        return out


class Grouped(Experts):
    """The same by one grouped product."""

    def __init__(self) -> None:
        super().__init__()
        self.to(torch.bfloat16)

    def forward(self, x: Any) -> Any:
        _, chosen = self.choose(x)
        sorted_experts, order = chosen.flatten().sort()
        counts = torch.histc(sorted_experts.int(), bins=EXPERTS, min=0, max=EXPERTS - 1)
        ends = counts.cumsum(0, dtype=torch.int32)
        return torch._grouped_mm(x[order // TOP_K], self.experts, offs=ends)


def capture(module: nn.Module, tokens: int = TOKENS, **options: Any) -> OpGraph:
    x = torch.randn(tokens, WIDTH, dtype=next(module.parameters()).dtype)
    return capture_op_graph(lambda: lambda: module(x), GPU, CaptureOptions(**options))


def rows_of_experts(graph: OpGraph) -> list[int]:
    products = [op.call for op in graph.ops if op.call.name == "aten::mm"]
    return [call.tensors[0].shape[0] for call in products if call.tensors[1].shape[1] == WIDTH]


def test_each_expert_that_is_hit_gets_its_even_share() -> None:
    graph = capture(Experts())
    assert rows_of_experts(graph) == [8, 8, 8, 8]  # 16 tokens * 2 / 4 experts
    assert any("topk" in notice and "balanced routing" in notice for notice in graph.notices)


def test_one_token_hits_as_many_experts_as_it_chooses() -> None:
    assert rows_of_experts(capture(Experts(), tokens=1)) == [1, 1]


def test_a_size_hint_is_the_tokens_of_an_expert_that_is_hit() -> None:
    # 16 tokens * 2 = 32 rows, 16 for each expert that has any: two experts
    graph = capture(Experts(), size_hint=16)
    assert rows_of_experts(graph) == [16, 16]
    assert any("2 of the 4 entries" in notice for notice in graph.notices)


def test_training_follows_the_routing_too() -> None:
    module = Experts()
    x = torch.randn(TOKENS, WIDTH)
    graph = capture_op_graph(lambda: lambda: module(x).sum().backward(), GPU)
    assert sum(op.call.name == "aten::index_add_" for op in graph.ops) == EXPERTS


@pytest.mark.parametrize(("hint", "ends"), [(None, (8, 16, 24, 32)), (16, (0, 0, 16, 32))])
def test_a_grouped_product_knows_its_groups(hint: int | None, ends: tuple[int, ...]) -> None:
    graph = capture(Grouped(), size_hint=hint)
    (call,) = [op.call for op in graph.ops if op.call.name == "aten::_grouped_mm"]
    assert call.args[2] == ends
    assert any("balanced routing" in notice for notice in graph.notices)


def test_groups_of_unknown_sizes_are_said_to_be_even() -> None:
    rows, stack = torch.randn(8, WIDTH).bfloat16(), torch.randn(2, WIDTH, WIDTH).bfloat16()

    def step() -> Any:
        ends = (rows[:2, 0] > 0).int().cumsum(0, dtype=torch.int32)
        return torch._grouped_mm(rows, stack, offs=ends)

    graph = capture_op_graph(lambda: step, GPU)
    assert any("equal numbers of rows" in notice for notice in graph.notices)


def test_without_a_kernel_for_groups_each_is_a_product_of_its_own() -> None:
    module = Grouped().float()
    x = torch.randn(TOKENS, WIDTH)
    graph = capture_op_graph(lambda: lambda: module(x).sum().backward(), GPU)
    assert not [op for op in graph.ops if op.call.name == "aten::_grouped_mm"]
    # Forward and gradient of the matrices: 8 of 32 rows each
    shapes = [op.call.tensors[0].shape for op in graph.ops if op.call.overload == "out"]
    assert shapes == [(8, 8)] * 2 * EXPERTS
    copies = [op.call for op in graph.ops if op.call.name == "aten::_to_copy"]
    assert any(call.outputs[0].device == "cpu" for call in copies if call.outputs)


def test_known_choices_are_not_assumed() -> None:
    numbers = torch.tensor([3, 9, 4, 1])

    def step() -> Any:
        return torch.ones(4, 4)[: numbers.topk(1).indices.item()]

    graph = capture_op_graph(lambda: step, GPU)
    assert not graph.notices
    assert graph.ops[-1].call.args[3] == 1


def test_tokens_that_a_program_only_decides_by_are_not_called_routing() -> None:
    head = nn.Linear(WIDTH, 100)

    def step() -> Any:
        x, done = torch.zeros(2, WIDTH), False
        with torch.no_grad():
            for _ in range(3):
                token = head(x).argmax(-1)
                done = bool((token == 99).all())
                x = x + token[:, None] if not done else x
        return x

    (notice,) = capture_op_graph(lambda: step, GPU).notices
    assert "argmax" in notice and "100 entries" in notice
    assert "routing" not in notice and "--size-hint" not in notice


def test_tokens_that_decide_nothing_are_not_spoken_of() -> None:
    head = nn.Linear(WIDTH, WIDTH)
    x = torch.zeros(2, WIDTH)
    graph = capture_op_graph(lambda: lambda: torch.cat([x, head(x).argmax(-1)[:, None]], 1), GPU)
    assert not graph.notices


def test_routing_is_said_once_of_a_choice() -> None:
    module = Experts()
    x = torch.randn(TOKENS, WIDTH)

    def step() -> Any:
        chosen = module.choose(x)[1]
        for expert in range(EXPERTS):
            if (chosen == expert).any():
                x[torch.where(chosen == expert)[0]].sum()

    spoken = [n for n in capture_op_graph(lambda: step, GPU).notices if "topk" in n]
    assert len(spoken) == 1 and "balanced routing" in spoken[0]
