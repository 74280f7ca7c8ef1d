"""Which operators autocast casts on a GPU, put in place of the CPU's list while a capture runs.

Stand-in tensors are CPU tensors to the dispatcher, so a step's ``autocast("cuda")`` is carried out
by the kernels of the key ``AutocastCPU``, whose list is another. The lists are those of
``aten/src/ATen/autocast_mode.h`` (PyTorch 2.13); an operator that the installed version does not
cast on CUDA is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KEY = "AutocastCPU"


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LOWER_PRECISION = _names(
    """
_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm
mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell
_thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
_scaled_dot_product_flash_attention scaled_dot_product_attention
"""
)

FLOAT32 = _names(
    """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm
frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss
cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss
huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d
_upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d
upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d
_upsample_bicubic2d_aa norm.Scalar norm.ScalarOpt_dim
"""
)

# The result is float32; the input is read as it is.
FLOAT32_RESULT = _names(
    """
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList
"""
)

PROMOTE = _names(
    """
addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat
stack
"""
)


_Policy = Callable[[Any], Callable[..., Any]]


def use_cuda_lists(library: Any) -> None:
    """Give ``library`` (``torch.library.Library("aten", "IMPL")``) kernels with CUDA's lists.

    They hold until the library is destroyed.
    """
    import torch

    cpu = set(torch._C._dispatch_get_registrations_for_dispatch_key(KEY))
    wanted: dict[str, _Policy] = {}
    policies: tuple[tuple[tuple[str, ...], _Policy], ...] = (
        (LOWER_PRECISION, _lower_precision),
        (FLOAT32, _float32),
        (FLOAT32_RESULT, _float32_result),
        (PROMOTE, _promote),
    )
    for names, policy in policies:
        wanted.update(dict.fromkeys(names, policy))
    fallthrough = torch.library.fallthrough_kernel
    for name in sorted(cpu):
        short = name.removeprefix("aten::")
        if name.startswith("aten::") and short not in wanted:
            library.impl(short, fallthrough, KEY)
    for short, policy in wanted.items():
        on_cpu = f"aten::{short}" in cpu
        if on_cpu and policy is _lower_precision:
            # The same on both, with the cache of cast weights.
            continue
        if on_cpu and policy is _promote:
            continue
        overload = _overload(short)
        if overload is None or not _casts_on_cuda(short):
            continue
        library.impl(short, policy(overload), KEY)


def _casts_on_cuda(short: str) -> bool:
    import torch

    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{short}", "AutocastCUDA"))


def _overload(short: str) -> Any:
    import torch

    name, _, overload = short.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    return None if packet is None else getattr(packet, overload or "default", None)


def _without_autocast() -> Any:
    import torch

    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    return torch._C._ExcludeDispatchKeyGuard(keys)


def _cast(value: Any, dtype: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and value.dtype not in (torch.float64, dtype):
            return value.to(dtype)
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, dtype) for item in value)
    return value


def _casting(overload: Any, dtype_of: Callable[[Any], Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            dtype = dtype_of((args, tuple(kwargs.values())))
            args = tuple(_cast(arg, dtype) for arg in args)
            return overload(*args, **{key: _cast(arg, dtype) for key, arg in kwargs.items()})

    return kernel


def _lower_precision(overload: Any) -> Callable[..., Any]:
    import torch

    return _casting(overload, lambda _: torch.get_autocast_dtype("cpu"))


def _float32(overload: Any) -> Callable[..., Any]:
    import torch

    return _casting(overload, lambda _: torch.float32)


def _promote(overload: Any) -> Callable[..., Any]:
    import torch

    def widest(values: Any) -> Any:
        if any(t.dtype == torch.float32 for t in _floats(values)):
            return torch.float32
        return torch.get_autocast_dtype("cpu")

    return _casting(overload, widest)


def _floats(values: Any) -> list[Any]:
    import torch

    if isinstance(values, torch.Tensor):
        return [values] if values.is_floating_point() else []
    if isinstance(values, (list, tuple)):
        return [t for item in values for t in _floats(item)]
    return []


def _float32_result(overload: Any) -> Callable[..., Any]:
    import torch

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            first = args[0]
            given = kwargs.get("dtype") is not None or any(
                isinstance(arg, torch.dtype) for arg in args
            )
            narrow = first.is_floating_point() and first.dtype != torch.float64
            if given or not narrow:
                return overload(*args, **kwargs)
            if first.dtype == torch.float16 and overload in _HALF_TO_FLOAT:
                # CUDA's kernels read half and write float in one pass.
                return _HALF_TO_FLOAT[overload](first, args[1], True)
            return overload(*args, **{**kwargs, "dtype": torch.float32})

    aten = torch.ops.aten
    _HALF_TO_FLOAT.setdefault(aten.softmax.int, aten._softmax.default)
    _HALF_TO_FLOAT.setdefault(aten.log_softmax.int, aten._log_softmax.default)
    return kernel


_HALF_TO_FLOAT: dict[Any, Any] = {}
