"""Steps captured without computing, as they would run on a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from gobrrr.symbolic.op_graph import (  # noqa: E402
    CaptureOptions,
    CaptureTarget,
    capture_op_graph,
)
from gobrrr.symbolic.target.answers import DeviceAnswers  # noqa: E402
from gobrrr.symbolic.target.kernels import Abilities, choose_attention  # noqa: E402
from gobrrr.timeline.data import Phase  # noqa: E402
from gobrrr.timeline.errors import InputError, UserCodeError  # noqa: E402
from gobrrr.timeline.graph import OpGraph  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402

pytestmark = pytest.mark.torch

HALVES = frozenset({"float16", "bfloat16"})
GPU = CaptureTarget(
    DeviceAnswers("cuda", "NVIDIA H100 80GB HBM3", 80 * 10**9, 132, (9, 0), True),
    Abilities(HALVES, HALVES | {"float32"}),
)
CPU = CaptureTarget(None, Abilities(frozenset(), frozenset()))


def names(graph: OpGraph) -> Counter[str]:
    return Counter(op.call.name.removeprefix("aten::") for op in graph.ops)


def capture(step: object, target: CaptureTarget = GPU, **options: object) -> OpGraph:
    return capture_op_graph(lambda: step, target, CaptureOptions(**options))  # type: ignore[arg-type]


def training(width: int = 16, batch: int = 4) -> Workload:
    model = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, 3))
    return Workload(
        model,
        torch.randn(batch, width),
        functional.cross_entropy,
        torch.optim.AdamW(model.parameters()),
        torch.randint(3, (batch,)),
    )


def test_a_training_step_has_forward_backward_and_optimizer() -> None:
    graph = capture(training())
    found = names(graph)
    # Two linear layers: two products forward; backward one for each weight and one for the input
    # of the second.
    assert found["addmm"] == 2
    assert found["mm"] == 3
    assert found["gelu"] == found["gelu_backward"] == 1
    phases = {op.phase for op in graph.ops}
    assert {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER} <= phases
    # On CUDA optimizers work on all parameters at once by default.
    assert found["_foreach_addcdiv_"] == 1
    assert all(op.phase is Phase.OPTIMIZER for op in graph.ops if "foreach" in op.call.name)


def test_backward_belongs_to_the_module_of_its_forward() -> None:
    graph = capture(training())
    products = [op for op in graph.ops if op.call.name == "aten::mm"]
    assert [op.module for op in products] == ["2", "2", "0"]


def test_storages_connect_writers_and_readers() -> None:
    graph = capture(lambda: torch.ones(8).cos().sin())
    ones, cos, sin = graph.ops
    assert cos.call.tensors[0].storage == ones.call.outputs[0].storage
    assert sin.call.tensors[0].storage == cos.call.outputs[0].storage
    # The result outlives the step; what it was made from does not.
    assert sin.call.outputs[0].storage in graph.kept
    assert cos.call.outputs[0].storage not in graph.kept
    assert graph.sizes_bytes[sin.call.outputs[0].storage] == 8 * 4


def test_the_program_gets_its_tensors_back() -> None:
    work = training()
    weight = work.model[0].weight
    values = weight.detach().clone()
    state = torch.get_rng_state()
    capture(work)
    assert work.model[0].weight is weight
    assert type(weight) is nn.Parameter
    assert torch.equal(weight, values)
    assert weight.grad is None
    assert not work.optimizer.state
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.cuda.is_available() == bool(torch.version.cuda and torch._C._cuda_getDeviceCount())
    assert str(weight.device) == "cpu"


def test_peak_memory_counts_what_lives_at_once() -> None:
    # 1000 floats each: x, then x and y, then x, y and z; y goes when z is there.
    x = torch.empty(1000, device="meta")

    def step() -> object:
        y = x * 2
        z = y * 2
        del y
        return z * 2

    # At the second product x, y and z are alive (12000 B); y is freed after it, so at the third
    # x, z and the result are.
    assert capture(step).peak_memory_bytes == 3 * 1000 * 4


def test_a_large_model_takes_no_memory() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(16384, 16384, bias=False) for _ in range(8)))
        x = torch.empty(2, 16384)
    graph = capture((model, x))
    # 8 x 16384^2 x 4 B = 8.59 GB of weights
    assert sum(graph.sizes_bytes[i] for i in graph.parameters) == 8 * 16384**2 * 4
    assert graph.peak_memory_bytes is not None
    assert graph.peak_memory_bytes > 8 * 16384**2 * 4


class Seen:
    """What a step saw; attributes of classes are not part of the state that is put back."""

    answers: ClassVar[dict[str, object]] = {}


def test_the_program_is_answered_as_on_the_target() -> None:
    def step() -> object:
        x = torch.zeros(4, device="cuda")
        Seen.answers = {
            "available": torch.cuda.is_available(),
            "name": torch.cuda.get_device_name(),
            "device": x.device,
            "is_cuda": x.is_cuda,
            "like": torch.zeros_like(x).device,
            "host": torch.zeros(4).device,
            "moved": torch.zeros(4).to("cuda").device,
            "back": x.cpu().is_cuda,
        }
        return x * 2

    graph = capture(step)
    cuda, cpu = torch.device("cuda", 0), torch.device("cpu")
    assert Seen.answers == {
        "available": True, "name": "NVIDIA H100 80GB HBM3", "device": cuda, "is_cuda": True,
        "like": cuda, "host": cpu, "moved": cuda, "back": False,
    }  # fmt: skip
    product = graph.ops[-1].call
    assert product.name == "aten::mul"
    assert product.tensors[0].device == "cuda:0"


def test_a_program_without_devices_runs_on_the_target_as_a_whole() -> None:
    graph = capture(lambda: torch.ones(4) * 2)
    assert {t.device for op in graph.ops for t in op.call.outputs or ()} == {"cuda:0"}


def test_counters_of_an_optimizer_stay_on_the_host() -> None:
    graph = capture(training())
    reads = [op.call for op in graph.ops if op.call.name == "aten::_local_scalar_dense"]
    assert reads
    assert all(call.tensors[0].device == "cpu" for call in reads)


def test_autocast_casts_what_cuda_casts() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Softmax(-1))
    step = (model, torch.randn(2, 8))
    graph = capture(step, autocast="float16")
    calls = {op.call.name: op.call for op in graph.ops}
    assert calls["aten::addmm"].tensors[0].dtype == "float16"
    # A layer norm is in float32 on CUDA; autocast on a CPU leaves it in 16 bits.
    assert calls["aten::native_layer_norm"].tensors[0].dtype == "float32"
    assert calls["aten::_softmax"].outputs[0].dtype == "float32"


def test_autocast_in_the_program_counts_on_the_target() -> None:
    model, x = nn.Linear(8, 8), torch.randn(2, 8)

    def step() -> object:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_dtype("cuda") is torch.bfloat16
            return model(x)

    graph = capture(step)
    product = next(op.call for op in graph.ops if op.call.name == "aten::addmm")
    assert product.outputs[0].dtype == "bfloat16"


def test_autocast_is_as_before_after_a_capture() -> None:
    capture((nn.Linear(8, 8), torch.randn(2, 8)), autocast="float16")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        # The CPU's own list again: softmax is not on it.
        assert torch.softmax(torch.ones(2, 2, dtype=torch.bfloat16), -1).dtype is torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    ("dtype", "mask", "expected"),
    [
        ("float16", False, "_scaled_dot_product_flash_attention"),
        ("float16", True, "_scaled_dot_product_efficient_attention"),
        ("float32", False, "_scaled_dot_product_efficient_attention"),
    ],
)
@pytest.mark.parametrize("inference", [False, True])
def test_attention_is_the_targets(dtype: str, mask: bool, expected: str, inference: bool) -> None:
    q = torch.empty(2, 4, 16, 8, dtype=getattr(torch, dtype), requires_grad=not inference)
    bias = torch.zeros(16, 16, dtype=getattr(torch, dtype)) if mask else None

    def step() -> object:
        out = functional.scaled_dot_product_attention(q, q, q, attn_mask=bias)
        if not inference:
            out.sum().backward()
        return out

    found = names(capture(step, inference_mode=inference))
    assert found[expected] == 1
    assert found[f"{expected}_backward"] == (0 if inference else 1)


def test_attention_without_a_fused_kernel_is_math() -> None:
    turing = Abilities(frozenset(), frozenset({"float16", "float32"}))
    assert choose_attention(turing, "float16", 64, 64, mask=False) == "efficient"
    assert choose_attention(turing, "bfloat16", 64, 64, mask=False) == "math"
    both = Abilities(HALVES, HALVES)
    assert choose_attention(both, "float16", 512, 512, mask=False) == "efficient"


def test_attention_is_cudnns_where_pytorch_prefers_it() -> None:
    # ``check_prefer_cudnn_attention`` in sdp_utils.cpp: with a mask too, and of unequal lengths.
    hopper = Abilities(HALVES, HALVES | {"float32"}, cudnn_head_size=256)
    assert choose_attention(hopper, "bfloat16", 256, 128, mask=True) == "cudnn"
    assert choose_attention(hopper, "float32", 64, 64, mask=False) == "efficient"
    assert choose_attention(hopper, "bfloat16", 68, 68, mask=False) == "flash"
    assert choose_attention(hopper, "bfloat16", 264, 264, mask=True) == "efficient"
    assert choose_attention(hopper, "bfloat16", 64, 64, mask=False, cudnn=False) == "flash"


@pytest.mark.parametrize(
    ("masked", "causal", "keys", "dropout"),
    [(True, False, 32, 0.0), (False, True, 32, 0.0), (False, True, 16, 0.1)],
)
def test_cudnns_attention_is_recorded_with_its_backward(
    masked: bool, causal: bool, keys: int, dropout: float
) -> None:
    q = torch.empty(2, 4, 16, 8, dtype=torch.bfloat16, requires_grad=True)
    k = torch.empty(2, 2, keys, 8, dtype=torch.bfloat16, requires_grad=True)
    mask = torch.ones(16, keys, dtype=torch.bool) if masked else None
    target = replace(GPU, abilities=replace(GPU.abilities, cudnn_head_size=256))

    def step() -> None:
        functional.scaled_dot_product_attention(
            q, k, k, mask, dropout, causal, enable_gqa=True
        ).sum().backward()

    graph = capture(step, target)
    found = names(graph)
    assert found["_scaled_dot_product_cudnn_attention"] == 1
    assert found["_scaled_dot_product_cudnn_attention_backward"] == 1
    (forward,) = (op for op in graph.ops if op.call.name.endswith("cudnn_attention"))
    assert forward.call.outputs[0].shape == (2, 4, 16, 8)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        assert not names(capture(step, target))["_scaled_dot_product_cudnn_attention"]


@pytest.mark.parametrize(
    ("keys", "causal", "expected"),
    [(32, False, "flash"), (16, True, "flash"), (32, True, "efficient")],
)
def test_causal_attention_of_unequal_lengths_is_not_flash(
    keys: int, causal: bool, expected: str
) -> None:
    # ``check_flash_causal_non_square_seqlens`` in sdp_utils.cpp.
    q, k = (torch.empty(2, 4, length, 8, dtype=torch.float16) for length in (16, keys))
    found = names(
        capture(lambda: functional.scaled_dot_product_attention(q, k, k, is_causal=causal))
    )
    assert found[f"_scaled_dot_product_{expected}_attention"] == 1


def test_attention_inside_a_module_of_torch_is_seen() -> None:
    layer = nn.MultiheadAttention(16, 2, batch_first=True)
    x = torch.randn(2, 4, 16)
    found = names(capture(lambda: layer(x, x, x, need_weights=False)[0].sum().backward()))
    assert found["_scaled_dot_product_efficient_attention_backward"] == 1


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_one_kernel_each_way(kind: type[nn.Module]) -> None:
    layer = kind(8, 16, 2, batch_first=True)
    x = torch.randn(2, 5, 8)
    found = names(capture(lambda: layer(x)[0].sum().backward()))
    assert found["_cudnn_rnn"] == found["_cudnn_rnn_backward"] == 1


def test_on_a_cpu_kernels_are_the_cpus() -> None:
    q = torch.empty(2, 4, 16, 8)
    graph = capture(lambda: functional.scaled_dot_product_attention(q, q, q), CPU)
    assert names(graph)["_scaled_dot_product_flash_attention_for_cpu"] == 1
    assert graph.ops[0].call.tensors[0].device == "cpu"


def test_values_that_a_program_needs_are_followed() -> None:
    lengths = torch.tensor([2, 3])

    def step() -> object:
        longest = int(lengths.max())
        mask = torch.arange(longest) < lengths[:, None]
        # 2 + 3 positions are true.
        return torch.ones(2, longest)[mask] * 2

    graph = capture(step)
    assert graph.ops[-1].call.outputs[0].shape == (5,)
    assert graph.notices == ()


def test_sizes_that_depend_on_data_are_asked_for() -> None:
    x = torch.randn(100)
    with pytest.raises(InputError, match="--size-hint"):
        capture(lambda: x[x > 0].sum())
    graph = capture(lambda: x[x > 0].sum(), size_hint=40)
    assert graph.ops[-1].call.tensors[0].shape == (40,)


def test_a_number_read_from_the_device_is_named() -> None:
    x = torch.randn(100)
    graph = capture(lambda: x * x.sum().item())
    (notice,) = graph.notices
    assert "assumed to be 1.0" in notice
    assert "test_op_graph.py" in notice


def test_the_optimizers_first_step_is_not_the_one_recorded() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(2, 4)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    # The first step clones gradients into momenta; all later ones update them.
    found = names(capture(step))
    assert found["_foreach_mul_"] == 1
    assert found["clone"] == 0


def test_an_operator_without_a_fake_implementation_is_named() -> None:
    with torch.library._scoped_library("gobrrr_test", "FRAGMENT") as library:
        library.define("opaque(Tensor x) -> Tensor")
        library.impl("opaque", lambda x: x.clone(), "CPU")
        x = torch.randn(4)
        with pytest.raises(InputError, match=r"gobrrr_test\.opaque.*fake"):
            capture(lambda: torch.ops.gobrrr_test.opaque(x))


def test_what_the_step_raises_is_the_users() -> None:
    def step() -> None:
        raise ValueError("no")

    with pytest.raises(UserCodeError, match="ValueError: no"):
        capture(step)


def test_channels_last_reaches_convolutions() -> None:
    model = nn.Conv2d(3, 8, 3)
    graph = capture((model, torch.randn(2, 3, 8, 8)), channels_last=True)
    convolution = next(op.call for op in graph.ops if op.call.name == "aten::convolution")
    assert convolution.tensors[0].strides == (3 * 8 * 8, 1, 8 * 3, 3)
    assert model.weight.is_contiguous()


def test_gradient_scaling_runs_through() -> None:
    def make() -> Callable[[], None]:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = nn.Linear(8, 8).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device)

        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast(device):
                loss = model(torch.ones(4, 8, device=device)).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        return step

    found = names(capture_op_graph(make, GPU))
    assert found["_amp_foreach_non_finite_check_and_unscale_"] == 1
    assert found["_foreach_add_"] == 1


def test_checkpointed_modules_are_computed_again_in_backward() -> None:
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = torch.randn(2, 4)
    graph = capture(lambda: checkpoint(model, x, use_reentrant=False).sum().backward())
    assert names(graph)["addmm"] == 2
