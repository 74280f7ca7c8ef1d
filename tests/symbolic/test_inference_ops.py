"""In inference mode and without gradients a step is told as PyTorch runs it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from gobrrr.observe.leaf_ops import leaf_op_mode, name_of  # noqa: E402
from gobrrr.symbolic.op_graph import CaptureTarget  # noqa: E402
from gobrrr.symbolic.target.transformers import layers_of  # noqa: E402
from gobrrr.symbolic.values.padded_sequences import PADDED  # noqa: E402

from .test_op_graph import CPU, GPU, capture, names  # noqa: E402
from .test_target_kernels import working  # noqa: E402

pytestmark = pytest.mark.torch

# What tells a product of matrices from one of batches, and whether a copy comes before.
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "clone"}


def products(found: list[str]) -> list[str]:
    names = [name.removeprefix("aten::") for name in found]
    return [name for name in names if name in PRODUCTS]


def really_run(step: Callable[[], Any]) -> list[str]:
    """The operators that PyTorch's own profiler sees of real tensors."""
    with torch.profiler.profile() as profile:
        step()
    return products([event.name for event in profile.events()])


def recorded(step: Callable[[], Any]) -> list[str]:
    """The operators that a recorder sees of real tensors."""
    seen = []

    def visit(func: Any, args: Any, kwargs: Any) -> Any:
        seen.append(name_of(func))
        return func(*args, **kwargs)

    with leaf_op_mode(visit):
        step()
    return products(seen)


INPUTS = {
    "contiguous": lambda: torch.empty(4, 8, 16),
    "batch second": lambda: torch.empty(8, 4, 16).transpose(0, 1),
    "channels first": lambda: torch.empty(4, 16, 8).transpose(1, 2),
    "heads": lambda: torch.empty(2, 8, 4, 16).transpose(1, 2),
}


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("layout", list(INPUTS))
def test_a_linear_layer_is_the_products_that_pytorch_runs(
    layout: str, trains: bool, mode: Any
) -> None:
    x, weight = INPUTS[layout](), torch.empty(32, 16, requires_grad=trains)
    bias = torch.empty(32, requires_grad=trains)

    def step() -> object:
        with mode():
            return functional.linear(x, weight, bias), functional.linear(x, weight)

    expected = really_run(step)
    assert recorded(step) == expected
    for target in (GPU, CPU):
        assert products([op.call.name for op in capture(step, target).ops]) == expected


def test_views_in_inference_mode_require_what_their_bases_do() -> None:
    weight = torch.empty(8, 8, requires_grad=True)
    found = []

    def step() -> object:
        with torch.inference_mode():
            # Composites, one with views of its own; ``detach`` requires nothing.
            views = (weight.chunk(2)[0], weight.reshape(4, 16), weight.mT, weight.detach())
            found[:] = [view.requires_grad for view in views]
            return [view.sin() for view in views]

    step()
    real = list(found)
    capture(step)
    assert found == real == [True, True, True, False]


def attention_layer(width: int = 32, **options: Any) -> Any:
    return nn.MultiheadAttention(width, 4, batch_first=True, **options).eval()


def encoder_layer(**options: Any) -> Any:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, **options).eval()


def without_gradients(mode: Any, call: Callable[[], Any]) -> Callable[[], Any]:
    def step() -> object:
        with mode():
            return call()

    return step


MODES = [torch.inference_mode, torch.no_grad]
BY_PRODUCTS = [
    "mm", "_unsafe_view", "_transform_bias_rescale_qkv", "bmm", "_softmax", "bmm", "permute",
    "clone", "addmm",
]  # fmt: skip
FUSED = ["addmm", "split", "_scaled_dot_product_efficient_attention", "addmm"]
FEED_FORWARD = [
    "add_", "native_layer_norm", "_addmm_activation", "addmm", "add_", "native_layer_norm",
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_attention_in_inference_is_the_fast_path_of_a_gpu(mode: Any) -> None:
    layer, narrow = attention_layer(), attention_layer(24)
    x, y = torch.empty(2, 8, 32), torch.empty(2, 8, 24)

    def found(call: Callable[[], Any]) -> list[str]:
        return working(capture(without_gradients(mode, call)))

    assert found(lambda: layer(x, x, x, need_weights=False)) == FUSED
    assert found(lambda: layer(x, x, x)) == [*BY_PRODUCTS, "sum", "div_"]
    # Heads of 6: no multiple of 8.
    assert found(lambda: narrow(y, y, y, need_weights=False)) == BY_PRODUCTS


@pytest.mark.parametrize("mode", MODES)
def test_an_encoder_layer_in_inference_is_the_fast_path_of_a_gpu(mode: Any) -> None:
    layer, first, x = encoder_layer(), encoder_layer(norm_first=True), torch.empty(2, 8, 32)
    assert working(capture(without_gradients(mode, lambda: layer(x)))) == [*FUSED, *FEED_FORWARD]
    found = working(capture(without_gradients(mode, lambda: first(x))))
    norm, *rest = FEED_FORWARD[-1:], FUSED, FEED_FORWARD[:-1]
    assert found == sum(rest, norm)
    mask = torch.ones(8, 8, dtype=torch.bool)
    found = working(capture(without_gradients(mode, lambda: layer(x, src_mask=mask))))
    assert found.count("_masked_softmax") == 1
    assert "_scaled_dot_product_efficient_attention" not in found


def test_a_long_masked_softmax_is_two_kernels() -> None:
    layer, x = encoder_layer(), torch.empty(1, 1032, 32)
    mask = torch.ones(1032, 1032, dtype=torch.bool)
    found = working(capture(without_gradients(torch.no_grad, lambda: layer(x, src_mask=mask))))
    assert "_masked_softmax" not in found
    assert found[found.index("masked_fill") + 1] == "_softmax"


def test_the_fast_path_is_left_where_pytorch_leaves_it() -> None:
    layer, x, other = attention_layer(), torch.empty(2, 8, 32), torch.empty(2, 8, 32)

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    def overridden() -> object:
        with Mode():
            return layer(x, x, x)

    slow = {
        "gradients": without_gradients(torch.enable_grad, lambda: layer(x, x, x)),
        "cross": without_gradients(torch.no_grad, lambda: layer(x, other, other)),
        "a mode of the program's": without_gradients(torch.no_grad, overridden),
        "autocast": lambda: layer(x, x, x),
    }
    for name, step in slow.items():
        options = {"autocast": "bfloat16", "inference_mode": True} if name == "autocast" else {}
        found = names(capture(step, **options))
        assert found["_transform_bias_rescale_qkv"] == 0, name
        assert found["mean"] == 1, name


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_the_parts_of_the_fast_path_compute_what_it_does(fused: bool, weights: bool) -> None:
    layer, x = attention_layer(), torch.randn(2, 8, 32)
    given = (
        x, x, x, 32, 4, layer.in_proj_weight, torch.randn(96), layer.out_proj.weight,
        layer.out_proj.bias, None, weights,
    )  # fmt: skip
    parts = layers_of(lambda *_: fused, functional.scaled_dot_product_attention)
    with torch.no_grad():
        expected, seen = torch._native_multi_head_attention(*given)
        out, found = parts["_native_multi_head_attention"](*given)
        torch.testing.assert_close(out, expected)
        assert (found is None) == (not weights)
        if weights:
            torch.testing.assert_close(found, seen)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("kind", [None, 0, 1])
def test_the_parts_of_an_encoder_layer_compute_what_it_does(
    kind: int | None, activation: str, first: bool
) -> None:
    layer = encoder_layer(norm_first=first, activation=activation)
    x, attention = torch.randn(2, 8, 32), layer.self_attn
    mask = None if kind is None else torch.ones(8, 8).triu(1).bool()[: 2 if kind else 8]
    given = (
        x, 32, 4, attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight,
        attention.out_proj.bias, activation == "gelu", first, 1e-5, layer.norm1.weight,
        layer.norm1.bias, layer.norm2.weight, layer.norm2.bias, layer.linear1.weight,
        layer.linear1.bias, layer.linear2.weight, layer.linear2.bias, mask, kind,
    )  # fmt: skip
    parts = layers_of(lambda *_: True, functional.scaled_dot_product_attention)
    with torch.no_grad():
        expected = torch._transformer_encoder_layer_fwd(*given)
        # The CPU's gelu in the epilogue is the exact one, a GPU's too.
        torch.testing.assert_close(parts["_transformer_encoder_layer_fwd"](*given), expected)


@pytest.mark.parametrize("target", [GPU, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("check", [True, False])
def test_an_encoder_with_a_padding_mask_is_told_at_the_padded_length(
    check: bool, target: CaptureTarget
) -> None:
    encoder = nn.TransformerEncoder(encoder_layer(), 2, mask_check=check).eval()
    x, mask = torch.empty(2, 8, 32), torch.zeros(2, 8, dtype=torch.bool)

    def step() -> object:
        return encoder(x, src_key_padding_mask=mask)

    graph = capture(without_gradients(torch.no_grad, step), target)
    assert [PADDED.lower()] == [notice.rstrip(".").lower() for notice in graph.notices]
    whole = target is CPU
    layer = ["_transformer_encoder_layer_fwd"] if whole else [*FUSED, *FEED_FORWARD]
    found = [name for name in working(graph) if "mask" not in name and name != "logical_not"]
    assert found == ["zeros_like", "clone", *layer, *layer, "clone"]
    assert torch.Tensor.to_padded_tensor is torch._C.TensorBase.to_padded_tensor
