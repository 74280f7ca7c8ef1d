"""Control flow as an operator (``cond``, ``while_loop``, ``scan``, ``map``), and flex attention.

PyTorch traces the functions that such operators take into graphs of their own, which stand-ins
under dispatch modes break (in C++, which ends the process). Here they run as Python would run them:
one branch, turn after turn. Flex attention is the one kernel that ``torch.compile`` makes of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from gobrrr.symbolic.compiled_regions import under_compile
from gobrrr.symbolic.stand_ins import value_of
from gobrrr.symbolic.values.block_masks import share_of_blocks


@contextlib.contextmanager
def run_plainly(assume: Callable[[str], None], *, compiled: bool = False) -> Iterator[None]:
    """Operators with functions among their arguments run these; ``assume`` is told in a sentence
    what was not known. ``compiled``: the whole step is to be.
    """
    from torch._ops import HigherOrderOperator

    original = HigherOrderOperator.__call__

    flex = partial(_flex_attention, compiled)
    plain: dict[str, Callable[..., Any]] = {**_PLAIN, "flex_attention": flex}

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        own = plain.get(self._name)
        return original(self, *args, **kwargs) if own is None else own(assume, *args, **kwargs)

    HigherOrderOperator.__call__ = call
    try:
        yield
    finally:
        HigherOrderOperator.__call__ = original


def _cond(_: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    return true_fn(*operands) if pred else false_fn(*operands)


def _while_loop(
    assume: Any, cond_fn: Any, body_fn: Any, carried: Any, additional: Any = (), **_: Any
) -> Any:
    """Turn after turn while the condition is known to hold; one turn where it is not known."""
    import torch

    carried = tuple(carried)
    while True:
        goes_on = cond_fn(*carried, *additional)
        unknown = isinstance(goes_on, torch.Tensor) and value_of(goes_on) is None
        if unknown:
            assume(
                "the number of iterations of a while_loop depends on data: the prediction has one "
                "iteration"
            )
        elif not goes_on:
            return carried
        carried = tuple(body_fn(*carried, *additional))
        if unknown:
            return carried


def _scan(_: Any, combine_fn: Any, init: Any, xs: Any, additional: Any = ()) -> Any:
    import torch

    carry, results = list(init), []
    for turn in range(int(xs[0].shape[0]) if xs else 0):
        made = list(combine_fn(*carry, *(x[turn] for x in xs), *additional))
        carry = made[: len(carry)]
        results.append(made[len(carry) :])
    return (*carry, *(torch.stack(column) for column in zip(*results)))


def _map(_: Any, function: Any, xs: Any, additional: Any = ()) -> Any:
    import torch

    results = [function(*(x[turn] for x in xs), *additional) for turn in range(int(xs[0].shape[0]))]
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results)
    return type(results[0])(torch.stack(column) for column in zip(*results))


def _associative_scan(_: Any, combine_fn: Any, xs: Any, additional: Any = ()) -> Any:
    from torch._higher_order_ops.associative_scan import generic_associative_scan

    return generic_associative_scan(combine_fn, list(xs), additional_inputs=tuple(additional))


def _out_dtype(_: Any, op: Any, output_dtype: Any, *args: Any) -> Any:
    """``out_dtype`` as it runs eagerly on CUDA: int8 products are one kernel, all else is cast."""
    import torch
    from torch._higher_order_ops.out_dtype import out_dtype_fallback

    aten = torch.ops.aten
    whole = [arg.dtype for arg in args if isinstance(arg, torch.Tensor)] == [torch.int8] * 2
    if op is aten.mm.default and output_dtype is torch.int32 and whole:
        return aten._int_mm.default(*args)
    return out_dtype_fallback(op, output_dtype, *args)


def _flex_attention(
    compiled: bool, assume: Any, query: Any, key: Any, value: Any, score_mod: Any,
    block_mask: Any, scale: Any, *_: Any, **__: Any,
) -> Any:  # fmt: skip
    del score_mod, scale
    share = share_of_blocks(block_mask, int(query.shape[-2]), int(key.shape[-2]))
    if share is None:
        assume(
            "which blocks a block mask leaves is not known (its function asks for data, or for too "
            "many pairs): flex_attention is assumed to compute all of them"
        )
    assume(
        "flex_attention is predicted as the one kernel that torch.compile makes of it; what "
        "score_mod and mask_mod compute is not in the prediction"
    )
    if not compiled and not under_compile():
        assume(
            "flex_attention is called without torch.compile: as it is, it computes all scores in "
            "full, in more time and memory than is predicted"
        )
    batch = query.shape[0]
    if key.shape[0] != batch:
        key, value = (t.expand(batch, *t.shape[1:]) for t in (key, value))
    out, statistics = _flex_operator()(query, key, value, 1.0 if share is None else share)
    return out, statistics, statistics


@lru_cache(maxsize=1)
def _flex_operator() -> Any:
    """``flex::attention(q, k, v, share) -> (out, logsumexp)``, with its backward.

    Shapes as of ``scaled_dot_product_attention`` with grouped heads; ``share``: of all pairs of a
    query and a key, those that a block mask leaves.
    """
    import torch
    from torch import Tensor

    def shapes(query: Tensor, key: Tensor, value: Tensor, share: float) -> tuple[Tensor, Tensor]:
        del key, share
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        return out, query.new_empty(query.shape[:-1], dtype=torch.float32)

    def gradient_shapes(
        grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor,
        share: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        del grad, out, lse, share
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)

    define: Any = torch.library.custom_op
    qkv = "Tensor query, Tensor key, Tensor value"
    forward = define(
        "flex::attention", shapes, mutates_args=(),
        schema=f"({qkv}, float share) -> (Tensor, Tensor)",
    )  # fmt: skip
    backward = define(
        "flex::attention_backward", gradient_shapes, mutates_args=(),
        schema=f"(Tensor grad, {qkv}, Tensor out, Tensor lse, float share)"
        " -> (Tensor, Tensor, Tensor)",
    )  # fmt: skip
    forward.register_fake(shapes)
    backward.register_fake(gradient_shapes)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.share = inputs
        ctx.save_for_backward(*tensors, *output)

    def differentiate(ctx: Any, grad: Any, _: Any) -> Any:
        return (*backward(grad, *ctx.saved_tensors, ctx.share), None)

    forward.register_autograd(differentiate, setup_context=keep)
    return forward


_PLAIN: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
    "associative_scan": _associative_scan,
    "out_dtype": _out_dtype,
}
