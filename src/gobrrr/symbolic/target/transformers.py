"""The fused transformer layers that ``torch.nn`` calls in inference, as a GPU carries them out.

``aten/src/ATen/native/transformers/{attention,transformer}.cpp`` and ``cuda/attention.cu``: one
operator each to the dispatcher, whose kernels are those of the operators that it calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import wraps
from typing import Any

# (query, key, value of all heads) -> their attention; whether one kernel does it.
Attend = Callable[[Any, Any, Any], Any]
HasKernel = Callable[[Any, Any, Any], bool]

# The longest row of a masked softmax in one kernel, in elements and bytes (``SoftMax.cu``).
_MASKED_ELEMENTS, _MASKED_BYTES = 1024, 4096


def layers_of(has_kernel: HasKernel, attend: Attend) -> dict[str, Any]:
    """What each of these operators calls, by its name."""

    def attention(
        query: Any,
        key: Any,
        value: Any,
        embed_dim: int,
        num_head: int,
        qkv_weight: Any,
        qkv_bias: Any,
        proj_weight: Any,
        proj_bias: Any,
        mask: Any = None,
        need_weights: bool = True,
        average_attn_weights: bool = True,
        mask_type: int | None = None,
    ) -> Any:
        import torch

        itself, head = query is key and key is value, embed_dim // num_head
        if itself and mask is None and not need_weights and head % 8 == 0:
            # The kernel is chosen by the shapes of heads that are not projected yet.
            q = _heads(query, num_head, head)
            if has_kernel(q, q, q):
                projected = torch.nn.functional.linear(query, qkv_weight, qkv_bias)
                found = attend(*(_heads(part, num_head, head) for part in projected.chunk(3, -1)))
                joined = found.transpose(1, 2).reshape(query.shape[0], -1, embed_dim)
                return torch.nn.functional.linear(joined, proj_weight, proj_bias), None
        projected = _projected(query, key, value, embed_dim, qkv_weight)
        if projected.numel() == 0:
            return torch.empty_like(query), None
        return _by_products(
            projected, num_head, qkv_bias, proj_weight, proj_bias, mask, mask_type,
            need_weights, average_attn_weights,
        )  # fmt: skip

    def layer(
        src: Any,
        embed_dim: int,
        num_heads: int,
        qkv_weight: Any,
        qkv_bias: Any,
        proj_weight: Any,
        proj_bias: Any,
        use_gelu: bool,
        norm_first: bool,
        eps: float,
        norm_weight_1: Any,
        norm_bias_1: Any,
        norm_weight_2: Any,
        norm_bias_2: Any,
        ffn_weight_1: Any,
        ffn_bias_1: Any,
        ffn_weight_2: Any,
        ffn_bias_2: Any,
        mask: Any = None,
        mask_type: int | None = None,
    ) -> Any:
        import torch

        def norm(x: Any, weight: Any, bias: Any) -> Any:
            return torch.nn.functional.layer_norm(x, (embed_dim,), weight, bias, eps)

        if src.numel() == 0:
            return src.clone()
        x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
        x = attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
            False, True, mask_type,
        )[0]  # fmt: skip
        x.add_(src)
        if not norm_first:
            x = norm(x, norm_weight_1, norm_bias_1)
        before = x
        if norm_first:
            x = norm(x, norm_weight_2, norm_bias_2)
        rows = x.view(-1, x.shape[-1])
        # Bias and activation are the epilogue of the first product.
        inner = torch.ops.aten._addmm_activation(
            ffn_bias_1, rows, ffn_weight_1.t(), use_gelu=use_gelu
        )
        x = torch.addmm(ffn_bias_2, inner, ffn_weight_2.t()).view(x.shape)
        x.add_(before)
        return x if norm_first else norm(x, norm_weight_2, norm_bias_2)

    return {
        "_native_multi_head_attention": _below_views(attention),
        "_transformer_encoder_layer_fwd": _below_views(layer),
    }


def _below_views(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """``kernel`` as autograd calls one: what are views in it require no gradient.

    Inference mode passes autograd by, and there they do (``leaf_ops.views_tracked``).
    """

    @wraps(kernel)
    def called(*args: Any, **kwargs: Any) -> Any:
        import torch

        guard: Any = contextlib.nullcontext()
        if not torch.is_inference_mode_enabled():
            key = torch._C.DispatchKey.ADInplaceOrView
            guard = torch._C._SetExcludeDispatchKeyGuard(key, True)
        with guard:
            return kernel(*args, **kwargs)

    return called


def _heads(x: Any, count: int, size: int) -> Any:
    return x.view(x.shape[0], -1, count, size).transpose(1, 2)


def _projected(query: Any, key: Any, value: Any, width: int, weight: Any) -> Any:
    """Queries, keys and values side by side, without their bias (``qkv_projection``)."""
    import torch

    if key is not value:
        parts, weights = [query, key, value], weight.chunk(3, 0)
    elif query is not key:
        parts, weights = [query, key], weight.split([width, 2 * width], 0)
    else:
        return query.matmul(weight.t())
    return torch.cat([part.matmul(own.t()) for part, own in zip(parts, weights)], 2)


def _by_products(
    projected: Any,
    heads: int,
    bias: Any,
    out_weight: Any,
    out_bias: Any,
    mask: Any,
    mask_type: int | None,
    need_weights: bool,
    average: bool,
) -> Any:
    """Attention as two products and a softmax: with a mask, weights wanted, or heads not by 8."""
    import torch

    aten = torch.ops.aten
    q, k, v = aten._transform_bias_rescale_qkv(projected, bias, heads)
    batch, _, steps, size = q.shape
    flat = (batch * heads, steps, size)
    scores = q.view(flat).bmm(k.view(flat).transpose(2, 1)).view(batch, heads, steps, steps)
    if mask is None:
        aten._softmax.out(scores, 3, False, out=scores)
    else:
        scores = _masked_softmax(scores, mask.to(torch.bool), mask_type)
    # The queries are not needed any more: the result is written over them.
    out = q.view(flat)
    torch.bmm(scores.view(batch * heads, steps, steps), v.view(flat), out=out)
    rows = out.view(q.shape).permute(0, 2, 1, 3).contiguous().view(batch * steps, heads * size)
    result = torch.nn.functional.linear(rows, out_weight, out_bias).view(batch, steps, -1)
    if not need_weights:
        return result, None
    if average:
        scores = scores.sum(1)
        scores.div_(heads)
    return result, scores


def _masked_softmax(scores: Any, mask: Any, mask_type: int | None) -> Any:
    """``SoftMax.cu``: one kernel of short rows, two kernels of long ones."""
    import torch

    length = scores.shape[-1]
    short = length <= _MASKED_ELEMENTS and length * scores.element_size() <= _MASKED_BYTES
    if short and mask.is_contiguous():
        return torch.ops.aten._masked_softmax(scores, mask, 3, mask_type)
    if mask_type == 1:
        mask = mask.view(mask.shape[0], 1, 1, length)
    return scores.masked_fill(mask.expand(scores.shape), float("-inf")).softmax(-1)


def _rescaled_shapes(qkv: Any, bias: Any, heads: int) -> Any:
    """Queries, keys and values of all heads, which lie in one buffer."""
    batch, steps, width = qkv.shape
    made = qkv.new_empty((3, batch, heads, steps, width // 3 // heads))
    return made[0], made[1], made[2]


def _masked_softmax_shapes(x: Any, *_: Any, **__: Any) -> Any:
    import torch

    return torch.empty_like(x)


# Operators whose results' shapes torch cannot tell without their kernels.
SHAPES = {
    "_transform_bias_rescale_qkv": _rescaled_shapes,
    "_masked_softmax": _masked_softmax_shapes,
}
