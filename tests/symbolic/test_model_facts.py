"""What a capture notes of a model for parallelism: blocks, parameters, when gradients are ready."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.prediction.capture_target import capture_target  # noqa: E402
from gobrrr.prediction.kernels.target import target_device  # noqa: E402
from gobrrr.symbolic.model_facts import blocks_of, main_model  # noqa: E402
from gobrrr.symbolic.op_graph import CaptureOptions, capture_op_graph  # noqa: E402
from gobrrr.timeline.data import Phase  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402
from gobrrr.timeline.graph import OpGraph  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402

pytestmark = pytest.mark.torch

TARGET = capture_target(target_device("H100-SXM"))


class Block(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.n_heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.n_heads, -1).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, -1))
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.layers = nn.ModuleList([Block() for _ in range(blocks)])
        self.head = nn.Linear(16, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def training() -> Workload:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.zeros(2, 8, dtype=torch.long)
    return Workload(model, tokens, lambda y: y.float().mean(), optimizer)


def as_a_callable() -> object:
    work = training()
    return work.step


def captured(make: object = training, degree: int = 1) -> OpGraph:
    options = CaptureOptions(model=True, tensor_parallel=degree)
    return capture_op_graph(make, TARGET, options)  # type: ignore[arg-type]


def test_blocks_are_the_elements_of_the_outermost_lists() -> None:
    assert [path for path, _ in blocks_of(Net(3))] == ["layers.0", "layers.1", "layers.2"]
    flat = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert [path for path, _ in blocks_of(flat)] == ["0", "2"]
    # A list of lists, as residual networks have them: the inner elements.
    stages = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    assert [path for path, _ in blocks_of(stages)] == ["0", "1.0", "1.1"]
    assert blocks_of(nn.Linear(2, 2)) == []


def test_the_model_is_the_largest_root() -> None:
    net, small = Net(), nn.Linear(2, 2)
    assert main_model(None, [small, *net.modules()]) is net
    assert main_model(small, [net]) is small
    assert main_model(lambda: None, []) is None


@pytest.mark.parametrize("make", [training, as_a_callable])
def test_gradients_are_ready_as_the_backward_pass_comes_to_them(make: object) -> None:
    graph = captured(make)
    facts = graph.model
    assert facts is not None
    named = {each.name: each for each in facts.parameters}
    assert {each.unit for each in facts.parameters} == {"", "layers.0", "layers.1"}
    assert named["layers.1.q.weight"].unit == "layers.1"
    assert named["embed.weight"].unit == ""
    assert named["head.weight"].n_bytes == 32 * 16 * 4
    ready = [
        named[name].ready for name in ("head.weight", "layers.1.q.weight", "layers.0.q.weight")
    ]
    assert None not in ready
    assert ready == sorted(ready)  # type: ignore[type-var]
    # The op before it is of the backward pass and writes that gradient's storage.
    for each in facts.parameters:
        assert each.ready is not None
        assert graph.ops[each.ready - 1].phase is Phase.BACKWARD
        assert each.gradient in graph.lives
        assert graph.lives[each.gradient].n_bytes == each.n_bytes


def test_facts_are_noted_where_they_are_asked_for() -> None:
    assert capture_op_graph(training, TARGET, CaptureOptions()).model is None


def test_layers_are_divided_as_megatron_does() -> None:
    whole, half = captured(), captured(degree=2)
    assert whole.model is not None
    assert half.model is not None
    sizes = {each.name: each.shape for each in half.model.parameters}
    assert sizes["layers.0.q.weight"] == (8, 16)
    assert sizes["layers.0.q.bias"] == (8,)
    assert sizes["layers.0.o.weight"] == (16, 8)
    assert sizes["layers.0.o.bias"] == (16,)
    assert sizes["layers.0.mlp.0.weight"] == (32, 16)
    assert sizes["layers.0.mlp.2.weight"] == (16, 32)
    assert sizes["head.weight"] == (32, 16)
    asked = [(op.phase, op.collective) for op in half.ops if op.collective is not None]
    # Two for each block and direction, of 2 x 8 x 16 float32.
    assert [phase for phase, _ in asked] == [Phase.FORWARD] * 4 + [Phase.BACKWARD] * 4
    assert {(c.kind, c.n_bytes, c.group, c.ranks) for _, c in asked} == {
        ("all_reduce", 2 * 8 * 16 * 4, "tp", (0, 1))
    }
    assert half.peak_memory_bytes is not None
    assert whole.peak_memory_bytes is not None
    assert half.peak_memory_bytes < whole.peak_memory_bytes


class Grouped(Block):
    """Queries of 4 heads, keys and values of 1, in one projection of 16 + 4 + 4 outputs."""

    def __init__(self) -> None:
        super().__init__()
        del self.q, self.k, self.v, self.o
        self.wqkv, self.o = nn.Linear(16, 24), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, -1, 4).transpose(1, 2)
            for part in self.wqkv(x).split([16, 4, 4], dim=-1)
        )
        k, v = k.expand_as(q), v.expand_as(q)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, -1))
        return x + self.mlp(x)


@pytest.mark.parametrize(
    ("block", "whole"),
    [
        (Block, ()),
        (Grouped, ("layers.*.wqkv", "layers.*.o")),
        (
            lambda: nn.TransformerEncoderLayer(16, 4, 64, batch_first=True),
            ("layers.*.self_attn",),
        ),
    ],
)
def test_layers_that_are_left_whole_are_named(block: object, whole: tuple[str, ...]) -> None:
    def make() -> Workload:
        work = training()
        work.model.layers = nn.ModuleList([block() for _ in range(2)])  # type: ignore[operator]
        return Workload(work.model, work.inputs)

    half = captured(make, degree=2)
    assert half.undivided == (*whole, "head")
    assert captured(make).undivided == ()


def test_a_model_that_was_there_before_is_whole_again() -> None:
    work = training()
    before = dict(work.model.named_parameters())
    captured(lambda: work, degree=2)
    after = dict(work.model.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())
    groups = work.optimizer.param_groups[0]["params"]
    assert all(any(p is q for q in before.values()) for p in groups)
    assert work.model.layers[0].n_heads == 4
    assert work.model.layers[0].q.out_features == 16
    assert not work.model.layers[0].q._forward_pre_hooks


def test_a_degree_that_does_not_divide_the_model_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"tp=3 does not divide the 16 outputs of module layers\.0"
    ):
        captured(degree=3)
    with pytest.raises(InputError, match=r"tp=8 does not divide the 4 n_heads of module layers\.0"):
        captured(degree=8)


def test_a_model_without_layers_to_divide_is_refused() -> None:
    def make() -> Workload:
        return Workload(nn.Linear(4, 4), torch.zeros(2, 4))

    with pytest.raises(InputError, match=r"tp=2: Linear has no module of several nn\.Linear"):
        captured(make, degree=2)


def test_a_model_whose_code_fixes_its_sizes_is_refused() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(self.up(x).view(-1, 16))

    def make() -> Workload:
        return Workload(nn.Sequential(Fixed(), nn.ReLU()), torch.zeros(3, 8))

    with pytest.raises(
        InputError, match="tp=2: the model's own code fails with divided layers"
    ) as raised:
        captured(make, degree=2)
    assert "Divided were up of * by their outputs and down by its inputs." in str(raised.value)


def test_the_last_of_queries_keys_and_values_is_no_output_layer() -> None:
    class Projects(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.query(x) + self.key(x) + self.value(x)

    def make() -> Workload:
        return Workload(nn.Sequential(Projects(), nn.Linear(8, 8)), torch.zeros(3, 8))

    with pytest.raises(InputError, match=r"tp=2: Sequential has no module of several nn\.Linear"):
        captured(make, degree=2)
