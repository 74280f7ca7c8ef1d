"""Values that are the same everywhere are followed whatever their size."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph  # noqa: E402
from gobrrr.symbolic.values.uniform_values import as_uniform, is_uniform  # noqa: E402
from gobrrr.timeline.graph import OpGraph  # noqa: E402

from .test_op_graph import CPU, GPU  # noqa: E402

pytestmark = pytest.mark.torch

# 2^30 elements: as int64 8 GiB, if anything held them.
LARGE = (1 << 10, 1 << 20)


def taken(condition: Callable[[], object]) -> tuple[bool, OpGraph]:
    """Which way a branch on data goes, and whether the capture had to guess."""

    def step() -> object:
        return torch.ones(2).cos() if condition() else torch.ones(2).sin()

    graph = capture_op_graph(lambda: step, GPU)
    return graph.ops[-1].call.name == "aten::cos", graph


def changed_in_place() -> object:
    mask = torch.zeros(LARGE, dtype=torch.bool)
    mask.fill_(True)
    mask.logical_not_()
    return not mask.any()


@pytest.mark.parametrize(
    "condition",
    [
        lambda: torch.ones(LARGE, dtype=torch.long).bool().all(),
        lambda: torch.ones(LARGE, dtype=torch.bool).sum() == LARGE[0] * LARGE[1],
        lambda: (torch.ones(LARGE)[:, None, None, : 1 << 19] == 1).all(),
        lambda: torch.ones_like(torch.empty(LARGE)).mul(3).sub(1, alpha=2).mean() == 1,
        lambda: torch.full(LARGE, 7).repeat(2, 1).reshape(-1).amax() == 7,
        lambda: torch.cat([torch.ones(LARGE), torch.ones(LARGE)]).min() == 1,
        lambda: (1.0 - torch.ones(LARGE, dtype=torch.half)).amax() == 0,
        lambda: torch.ones(LARGE)[3].expand(2, -1).clone().all(),
        changed_in_place,
    ],
)
def test_a_large_constant_decides_branches(condition: Callable[[], object]) -> None:
    way, graph = taken(condition)
    assert way
    assert graph.notices == ()


@pytest.mark.parametrize(
    "condition",
    [
        # One element differs; the rest is not written down.
        lambda: torch.ones(LARGE, dtype=torch.long).index_fill_(0, torch.tensor(2), 5).all(),
        # Half of the elements differ.
        lambda: torch.cat([torch.ones(LARGE), torch.zeros(LARGE)]).all(),
        lambda: torch.ones(LARGE).tril().all(),
        lambda: torch.ones(LARGE).add(torch.randn(LARGE)).all(),
    ],
)
def test_what_is_no_longer_the_same_everywhere_is_unknown(condition: Callable[[], object]) -> None:
    way, graph = taken(condition)
    assert not way
    assert "assumed to be false" in graph.notices[0]


def test_a_write_through_a_view_is_seen_by_the_whole() -> None:
    def condition() -> object:
        whole = torch.ones(LARGE)
        whole[3].zero_()
        return whole.all()

    way, graph = taken(condition)
    assert not way
    assert graph.notices


def test_a_write_of_unknown_values_is_seen_by_all_that_share_the_memory() -> None:
    def condition() -> object:
        mask = torch.ones(8, dtype=torch.long)
        mask[:2] = torch.empty(2, 100).sum(-1).long()
        return mask.all()

    way, graph = taken(condition)
    assert not way
    assert graph.notices


def test_a_small_mask_written_in_part_stays_known() -> None:
    def condition() -> object:
        mask = torch.ones(2, 8, dtype=torch.long)
        mask[:, 4:] = 0
        return mask.sum() == 8

    assert taken(condition) == (True, taken(condition)[1])


def test_masks_made_before_the_capture_are_looked_at_once() -> None:
    mask = torch.ones(1 << 10, 1 << 9, dtype=torch.bool)  # more than is copied
    assert taken(lambda: mask.all())[0]
    mask[5, 5] = False
    way, graph = taken(lambda: mask.all())
    assert not way
    assert graph.notices


FUSED = """
import inspect
import torch
from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph
from gobrrr.symbolic.target.answers import DeviceAnswers
from gobrrr.symbolic.target.kernels import Abilities
GPU = CaptureTarget(
    DeviceAnswers("cuda", "NVIDIA H100 80GB HBM3", 80 * 10**9, 132, (9, 0), True),
    Abilities(frozenset(), frozenset()),
)
def made(name):
    weight = torch.nn.Parameter(torch.zeros(4096, 4096, device="cuda"))
    weight.grad = torch.zeros_like(weight)
    return getattr(torch.optim, name)([weight], lr=0.1, fused=True).step
names = ["Adam", "AdamW", "SGD"]
# PyTorch 2.11 refuses a fused Adagrad on CUDA.
if "cuda_unsupported" not in inspect.getsource(torch.optim.Adagrad):
    names.append("Adagrad")
for name in names:
    graph = capture_op_graph(lambda: made(name), GPU)
    assert any("_fused_" in op.call.name for op in graph.ops), name
noise = torch.zeros(512, 512)
step = lambda: torch.ops.aten.rrelu_with_noise(torch.zeros(512, 512), noise, training=True)
capture_op_graph(lambda: step, GPU)
"""


def test_a_kernel_that_writes_past_an_expanded_value_is_not_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FUSED], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_real_tensor_is_uniform_or_not() -> None:
    found = as_uniform(torch.full((4, 5), 2.5))
    assert is_uniform(found)
    assert found.shape == (4, 5)
    assert found.untyped_storage().nbytes() == 4
    assert as_uniform(torch.tensor([1, 2, 1])) is None
    assert as_uniform(torch.tensor([True, False, True])) is None
    assert as_uniform(torch.empty(0)) is None


@pytest.mark.parametrize("inputs", ["attention_mask", "nothing", "use_cache"])
def test_a_decoder_with_a_mask_of_ones_is_causal(inputs: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    # 2^19 positions: more than the values that are kept one by one.
    batch, length = (64, 8192) if inputs == "attention_mask" else (2, 64)

    def make() -> Callable[[], object]:
        with torch.device("meta"):
            model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
        ids = torch.zeros(batch, length, dtype=torch.long)
        options: dict[str, object] = {}
        if inputs == "attention_mask":
            options["attention_mask"] = torch.ones(batch, length, dtype=torch.long)
        elif inputs == "use_cache":
            options["use_cache"] = False
        return lambda: model(ids, **options).logits

    graph = capture_op_graph(make, GPU)
    attention = [op.call for op in graph.ops if "scaled_dot_product" in op.call.name]
    assert [call.name for call in attention] == ["aten::_scaled_dot_product_flash_attention"]
    assert attention[0].args[4] is True  # is_causal
    assert graph.notices == ()


class Program:
    """A module of a program's own; attributes of classes are not put back after a capture."""

    names: ClassVar[dict[str, Any]] = {}


def test_whether_a_tensor_is_fake_is_answered_truly_afterwards() -> None:
    from torch import _subclasses
    from torch._subclasses import fake_tensor

    code = "from torch._subclasses import FakeTensor\nasked = isinstance(x, FakeTensor)"

    def step() -> object:
        Program.names = {"__name__": "program", "x": torch.ones(2)}
        exec(code, Program.names)
        return torch.ones(2).cos()

    capture_op_graph(lambda: step, GPU)
    assert Program.names["asked"] is False
    with fake_tensor.FakeTensorMode():
        fake = torch.ones(2)
    # What was bound during the capture is as good as torch's own now.
    assert isinstance(fake, Program.names["FakeTensor"])
    assert not isinstance(torch.ones(2), Program.names["FakeTensor"])
    assert _subclasses.FakeTensor is fake_tensor.FakeTensor is type(fake)


@pytest.mark.parametrize("target", [GPU, CPU], ids=["gpu", "cpu"])
def test_a_constant_is_an_array_on_each_device(target: CaptureTarget) -> None:
    def make() -> Callable[[], object]:
        table = torch.arange(4)

        def step() -> object:
            assert (table * 2).numpy().tolist() == [0, 2, 4, 6]
            return torch.ones(2).cos()

        return step

    graph = capture_op_graph(make, target)
    assert graph.ops[-1].call.name == "aten::cos"
