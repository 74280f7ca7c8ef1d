"""Operators that choose another kernel on a GPU than on a CPU, made to choose the GPU's.

While a capture runs, the dispatcher's CPU entries of the composites that ask for the device are
replaced: attention, dropout, softmax with a dtype, the root-mean-square norm, one-hot vectors,
recurrent layers and cells, and autocast's cast lists. ``tests/symbolic/test_target_dispatch.py``
finds the operators for which this is necessary in PyTorch's own tables.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gobrrr.observe.native_warnings import native_warnings_dropped
from gobrrr.symbolic.target import recurrent as target_recurrent
from gobrrr.symbolic.target import transformers as target_transformers
from gobrrr.symbolic.target.autocast_lists import use_cuda_lists
from gobrrr.symbolic.target.recurrent import RECURRENT, pad_packed

KEY = "AutogradCPU"


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a device's attention kernels take.

    Attributes:
        flash_dtypes: names of the dtypes that the flash kernel takes; empty: there is none.
        efficient_dtypes: those of the memory-efficient kernel.
        flash_head_size: the largest head that the flash kernel takes.
        cudnn_head_size: the largest head that cuDNN's kernel takes, where PyTorch asks it first;
            0: it does not.
        fused: whether dropout, recurrent cells and recurrent layers are kernels of their own there
            (CUDA, ROCm, XPU), not composites.
    """

    flash_dtypes: frozenset[str]
    efficient_dtypes: frozenset[str]
    flash_head_size: int = 256
    cudnn_head_size: int = 0
    fused: bool = True


def choose_attention(
    abilities: Abilities,
    dtype: str,
    head_size: int,
    value_size: int,
    *,
    mask: bool,
    nested: bool = False,
    unequal_causal: bool = False,
    cudnn: bool = True,
) -> str:
    """``cudnn``, ``flash``, ``efficient`` or ``math``, in PyTorch's order of preference.

    ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp``: cuDNN's kernel takes masks, lengths
    that differ and heads of two sizes, as long as they are multiples of 8 (``cudnn``: whether it
    may be asked); flash takes no mask, heads of one size for keys and values, and no causal
    attention of other numbers of queries than keys (``unequal_causal``: it would align the last
    ones, PyTorch aligns the first); the memory-efficient kernel takes them all.
    """
    if (
        cudnn
        and not nested
        and dtype in abilities.flash_dtypes
        and max(head_size, value_size) <= abilities.cudnn_head_size
        and head_size % 8 == value_size % 8 == 0
    ):
        return "cudnn"
    if (
        not mask
        and not nested
        and not unequal_causal
        and dtype in abilities.flash_dtypes
        and head_size == value_size
        and head_size <= abilities.flash_head_size
    ):
        return "flash"
    return "efficient" if dtype in abilities.efficient_dtypes and not nested else "math"


def composites_of(abilities: Abilities) -> dict[str, Any]:
    """What composites of ``aten`` do on the device, where it is not what they do on a CPU."""
    composites = {
        "scaled_dot_product_attention": attention_of(abilities),
        "_pad_packed_sequence": pad_packed,
        "ctc_loss.IntList": _ctc_loss,
        "one_hot": _one_hot,
    }
    if abilities.fused:
        composites.update(RECURRENT)
        composites.update(target_transformers.layers_of(*_plain_attention(abilities)))
        composites.update(
            {
                "dropout": _dropout,
                "softmax.int": _softmax("softmax", "_softmax"),
                "log_softmax.int": _softmax("log_softmax", "_log_softmax"),
            }
        )
    return composites


# Operators with a kernel on GPUs that torch's CPU build would take apart.
WHOLE = frozenset({"aten::_fused_rms_norm"})


@contextlib.contextmanager
def kernels_of(abilities: Abilities) -> Iterator[None]:
    """Replace the CPU's choices by a GPU's until the block ends."""
    import torch

    library = torch.library.Library("aten", "IMPL")
    try:
        # "Overriding a previously registered kernel": that is the purpose here.
        with warnings.catch_warnings(), native_warnings_dropped():
            warnings.simplefilter("ignore")
            use_cuda_lists(library)
            for name, kernel in composites_of(abilities).items():
                library.impl(name, kernel, KEY)
            for name in WHOLE:
                # With a kernel of its own for the device an operator comes before its composite,
                # and has its own derivative.
                library.impl(name.removeprefix("aten::"), _taken_apart(name), "CPU")
            # PyTorch 2.11 has kernels of some in Python, which it lets none override unasked.
            override = _override(library)
            for name, shapes in {**target_recurrent.SHAPES, **target_transformers.SHAPES}.items():
                library.impl(name, shapes, "Meta", **override)
        yield
    finally:
        library._destroy()


def _override(library: Any) -> dict[str, bool]:
    # PyTorch 2.6 knows no such option.
    known = inspect.signature(library.impl).parameters
    return {"allow_override": True} if "allow_override" in known else {}


def attention_of(abilities: Abilities) -> Any:
    """``scaled_dot_product_attention`` as the device carries it out."""

    def kernel(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        return attend(
            abilities, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        )

    return kernel


def attend(
    abilities: Abilities,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    dropout: float,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Any:
    """Attention by the kernel that PyTorch would choose on the device.

    Enabled backends (``torch.nn.attention.sdpa_kernel``) are respected.
    """
    import torch

    aten, head = torch.ops.aten, query.shape[-1]
    choice = _chosen(abilities, query, key, value, mask, dropout, causal, grouped)
    if choice == "flash":
        # The kernel takes multiples of 8: PyTorch pads the head and cuts the result.
        pad = -head % 8
        if pad:
            query, key, value = (torch.nn.functional.pad(t, (0, pad)) for t in (query, key, value))
            scale = head**-0.5 if scale is None else scale
        out = aten._scaled_dot_product_flash_attention(
            query, key, value, dropout, causal, False, scale=scale
        )[0]
        return out[..., :head] if pad else out
    if choice in ("cudnn", "efficient"):
        wants_gradient = torch.is_grad_enabled() and any(
            t.requires_grad for t in (query, key, value, mask) if t is not None
        )
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.where(mask, 0.0, float("-inf")).to(query.dtype)
    if choice == "cudnn":
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, mask, wants_gradient, dropout, causal, False, scale=scale
        )[0]
    if choice == "efficient":
        if mask is not None:
            mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, wants_gradient, dropout, causal, scale=scale
        )[0]
    return aten._scaled_dot_product_attention_math(
        query, key, value, mask, dropout, causal, None, scale=scale, enable_gqa=grouped
    )[0]


def _chosen(
    abilities: Abilities,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    dropout: float,
    causal: bool,
    grouped: bool,
) -> str:
    """As ``choose_attention``, of what the program has left enabled."""
    import torch

    cuda = torch.backends.cuda
    name = str(query.dtype).removeprefix("torch.")
    choice = choose_attention(
        abilities, name, query.shape[-1], value.shape[-1], mask=mask is not None,
        nested=query.dim() != 4, unequal_causal=causal and query.shape[-2] != key.shape[-2],
        cudnn=_cudnn_may_be_asked(query, key, mask, dropout),
    )  # fmt: skip
    if choice == "flash" and not cuda.flash_sdp_enabled():
        choice = "efficient" if name in abilities.efficient_dtypes else "math"
    if choice == "efficient" and not cuda.mem_efficient_sdp_enabled():
        choice = "math"
    # The memory-efficient kernel has no grouped heads: PyTorch falls back to math.
    return "math" if choice == "efficient" and grouped else choice


def _plain_attention(abilities: Abilities) -> tuple[Any, Any]:
    """Whether attention without a mask is one kernel on the device, and that attention."""

    def has_kernel(query: Any, key: Any, value: Any) -> bool:
        return _chosen(abilities, query, key, value, None, 0.0, False, False) != "math"

    def plain(query: Any, key: Any, value: Any) -> Any:
        return attend(abilities, query, key, value, None, 0.0, False, None, False)

    return has_kernel, plain


def _cudnn_may_be_asked(query: Any, key: Any, mask: Any, dropout: float) -> bool:
    """Whether neither the program nor these shapes keep cuDNN's kernel out (``sdp_utils.cpp``)."""
    import torch

    # Its kernel has no gradient of the mask (``check_attn_mask_shape``).
    if mask is not None and mask.requires_grad:
        return False

    strict = torch.are_deterministic_algorithms_enabled()
    strict = strict and not torch.is_deterministic_algorithms_warn_only_enabled()
    one_query = query.shape[-2] == 1 and dropout > 0
    enabled = torch.backends.cuda.cudnn_sdp_enabled()
    return bool(enabled and not strict and key.shape[-2] != 1 and not one_query)


def _ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *options: Any
) -> Any:
    """``LossCTC.cpp``: lists of lengths become tensors, which here have values to be known."""
    import torch

    lengths = (torch.tensor(list(given)) for given in (input_lengths, target_lengths))
    return torch.ops.aten.ctc_loss.Tensor(log_probs, targets, *lengths, *options)


def _one_hot(self: Any, num_classes: int = -1) -> Any:
    """``Onehot.cpp``: on tensors of a device zeros and a scatter, on others a comparison."""
    import torch

    if not self.numel():
        return _composite(torch.ops.aten.one_hot.default, self, num_classes)
    classes = int(self.max().item()) + 1 if num_classes == -1 else num_classes
    made = torch.zeros((*self.shape, classes), dtype=self.dtype, device=self.device)
    return made.scatter_(-1, self.unsqueeze(-1), 1)


def _dropout(input: Any, p: float, train: bool) -> Any:
    """``aten/src/ATen/native/Dropout.cpp``: one kernel that keeps its mask as booleans."""
    import torch

    aten = torch.ops.aten
    if train and 0 < p < 1 and input.numel():
        return aten.native_dropout(input, p, train)[0]
    return _composite(aten.dropout.default, input, p, train)


def _softmax(name: str, kernel_name: str) -> Any:
    """``aten/src/ATen/native/SoftMax.cpp``: from float16 to float32 in the kernel."""

    def kernel(self: Any, dim: int, dtype: Any = None) -> Any:
        import torch

        aten = torch.ops.aten
        if self.dtype is torch.float16 and dtype is torch.float32:
            return getattr(aten, kernel_name)(self, dim, True)
        return _composite(getattr(aten, name).int, self, dim, dtype)

    return kernel


def _taken_apart(name: str) -> Any:
    def kernel(*args: Any) -> Any:
        import torch

        return _composite(getattr(torch.ops.aten, name.removeprefix("aten::")).default, *args)

    return kernel


def _composite(operator: Any, *args: Any) -> Any:
    """An operator as PyTorch composes it of others."""
    import torch

    return operator._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args)
