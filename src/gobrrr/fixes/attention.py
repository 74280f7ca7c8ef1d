"""Fused attention in place of matmul, softmax, matmul: the scores are never written to memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gobrrr.capture.workload import Workload
from gobrrr.fixes.attention_forms import Orders, operands, orders_of
from gobrrr.fixes.facts import Facts, OpFact, lines_of
from gobrrr.fixes.fix import (
    MEMORY,
    NUMERICS,
    RANDOMNESS,
    UNBOUNDED,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.programs import as_program, is_module
from gobrrr.fixes.scripts import before_first_call, compile_in_place
from gobrrr.fixes.spread import KERNELS
from gobrrr.timeline.quantities import time_text

_PRODUCTS = ("aten::bmm", "aten::baddbmm", "aten::matmul")
_SOFTMAX = ("aten::_softmax", "aten::_safe_softmax")
# Rate of torch's CPU flash attention against its own matrix ceiling. Measured with torch 2.13 on
# Zen 4, 2 threads: 8 heads of 64, 128 to 1024 tokens, 0.35 to 0.6 of the float32 ceiling.
_REACHED = 0.45
# The same of its backward pass, which writes the scores again block by block: 0.18 of its roof in
# training with torch 2.13 on an EPYC (Zen 4), one thread.
_REACHED_BACKWARD = 0.18
# What the call of the fused op costs beside its kernel.
_CALL_S = 20e-6
# Models switched over and attentions rewritten in graphs, in this process.
_rewritten: Counter[str] = Counter()


def find_attention(facts: Facts) -> list[tuple[OpFact, ...]]:
    """Runs of product, softmax, product over the same scores, with what stands between them."""
    ops = [op for op in facts.ops if op.time_s > 0 and op.phase != "optimizer"]
    found = []
    for position, op in enumerate(ops):
        if op.name not in _SOFTMAX or not op.shapes:
            continue
        before = _reach(ops, position, -1)
        after = _reach(ops, position, 1)
        if before is not None and after is not None:
            found.append(tuple(ops[before : after + 1]))
    return found


def _reach(ops: list[OpFact], position: int, step: int) -> int | None:
    """The nearest product before or after, with scales, masks and casts between."""
    for distance in range(1, 10):
        other = position + step * distance
        if not 0 <= other < len(ops):
            return None
        if ops[other].name in _PRODUCTS:
            return other
        if ops[other].matrix_flops:
            return None
    return None


def attention_on(facts: Facts, lines: Collection[str]) -> list[tuple[OpFact, ...]]:
    """Those of ``find_attention`` that are called on these lines."""
    return [run for run in find_attention(facts) if any(op.source in lines for op in run)]


def fused_seconds(facts: Facts, runs: list[tuple[OpFact, ...]]) -> tuple[float, float] | None:
    """Seconds of these attentions now and fused, backward passes included.

    ``None`` where the rate of matrix products is unknown.
    """
    ops = [op for run in runs for op in run]
    forward_s = sum(op.time_s + op.host_s for op in ops)
    flops = sum(op.matrix_flops or 0.0 for op in ops)
    rate = facts.rate(f"matrix.{ops[0].dtype or 'float32'}") or facts.rate("matrix.float32")
    if rate is None:
        return None
    per_exponential = facts.rate("vector.float32.exp")
    exponentials_s = sum(op.special for op in ops) / per_exponential if per_exponential else 0.0
    calls_s = len(runs) * _CALL_S
    fused_s = flops / rate / _REACHED + exponentials_s + calls_s
    if not facts.trains:
        return forward_s, fused_s
    # Five products in place of two, the scores among them (FlashAttention, arXiv:2205.14135, 3.1).
    backward_s = 2.5 * flops / rate / _REACHED_BACKWARD + exponentials_s + calls_s
    return forward_s + _backward_s(facts, runs, forward_s), fused_s + backward_s


def _backward_s(facts: Facts, runs: list[tuple[OpFact, ...]], forward_s: float) -> float:
    """Seconds of the backward ops that read or write tensors of the scores' size."""
    sizes = {op.call.tensors[0].numel for run in runs for op in run if op.name in _SOFTMAX}
    found = [
        op for op in facts.ops
        if op.phase == "backward"
        and any(spec.numel in sizes for spec in (*op.call.tensors, *(op.call.outputs or ())))
    ]  # fmt: skip
    # Twice the forward pass where the ops are not known one by one.
    return sum(op.time_s + op.host_s for op in found) or 2.0 * forward_s


def _consider(facts: Facts) -> Considered:
    if facts.compiled:
        return RuledOut("the program is compiled: torch.compile fuses the attention that it knows")
    runs = find_attention(facts)
    called = {call.line for call in facts.attention_calls}
    by_hand = [run for run in runs if not any(op.source in called for op in run)]
    if runs and not by_hand and any(call.strided for call in facts.attention_calls):
        return RuledOut(
            "scaled_dot_product_attention is called already; on rows that are not contiguous "
            "PyTorch runs it as separate ops on a CPU (see attention_layout)"
        )
    if runs and not by_hand:
        return RuledOut(
            "scaled_dot_product_attention is called already; with dropout or a trainable mask "
            "PyTorch runs it as separate ops on a CPU"
        )
    runs = by_hand
    if not runs:
        return RuledOut("no attention is computed as separate product, softmax and product")
    seconds = fused_seconds(facts, runs)
    if seconds is None:
        return RuledOut("this machine's rate of matrix products is unknown")
    now_s, after_s = seconds
    saved_s = now_s - after_s
    sources = lines_of(op for run in runs for op in run if op.name in _SOFTMAX)
    return prospect_or_not(
        facts, 0.3 * saved_s - 0.05 * now_s, saved_s, now_s - 0.5 * after_s,
        f"{_attentions(len(runs))} them again: {time_text(now_s)}, "
        f"fused about {time_text(after_s)}",
        sources,
    )  # fmt: skip


def _attentions(count: int) -> str:
    if count == 1:
        return "1 attention writes its scores and reads"
    return f"{count} attentions write their scores and read"


def _use(model: Any) -> Any:
    """The model with fused attention, by its own switch if it has one."""
    switch = getattr(model, "set_attn_implementation", None)
    if switch is not None:
        switch("sdpa")
        _rewritten["models"] += 1
        return model
    import torch

    return torch.compile(model, backend=fuse_attention_in_graph)


def fuse_attention_in_graph(graph_module: Any, example_inputs: Any) -> Callable[..., Any]:
    """A backend of ``torch.compile`` that rewrites attention and runs the rest as it is.

    softmax(q @ k^T * scale + mask) @ v, without dropout, becomes
    ``scaled_dot_product_attention``. Anything else is left alone.
    """
    for node in list(graph_module.graph.nodes):
        match = _match(node)
        if match is not None:
            _rewrite(graph_module.graph, match)
            _rewritten["graphs"] += 1
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()
    forward: Callable[..., Any] = graph_module.forward
    return forward


def _is(node: Any, *names: str) -> bool:
    import torch

    if not isinstance(node, torch.fx.Node):
        return False
    if node.op == "call_method":
        return node.target in names
    if node.op != "call_function":
        return False
    return getattr(node.target, "__name__", "") in names


@dataclass(frozen=True)
class _Match:
    """An attention in a graph; ``orders`` where it is written in einsum."""

    last: Any
    query: Any
    key: Any
    value: Any
    scale: float
    mask: tuple[str, Any] | None
    orders: Orders | None = None


def _match(last: Any) -> _Match | None:
    """The attention that ends in ``last``."""
    import torch

    mixing = ""
    if _is(last, "einsum"):
        parts = operands(last)
        if parts is None:
            return None
        mixing, weights, value = parts
    elif _is(last, "matmul", "bmm", "__matmul__"):
        weights, value = last.args[:2]
    else:
        return None
    while _is(weights, "to", "type_as", "contiguous") and len(weights.users) == 1:
        weights = weights.args[0]
    if _is(weights, "dropout") and not _drops(weights):
        weights = weights.args[0]
    if not _is(weights, "softmax") or len(weights.users) != 1:
        return None
    if weights.kwargs.get("dim", weights.args[1] if len(weights.args) > 1 else None) != -1:
        return None
    scores, mask, scale = weights.args[0], None, None
    if _is(scores, "masked_fill", "masked_fill_") and len(scores.args) == 3:
        kind = _kind_of_fill(scores.args[2])
        if not kind:
            return None
        mask = (kind, scores.args[1])
        scores = scores.args[0]
    elif _is(scores, "add", "__add__", "iadd") and len(scores.args) == 2:
        mask = ("add", scores.args[1])
        scores = scores.args[0]
    if _is(scores, "mul", "__mul__", "imul") and isinstance(scores.args[1], (int, float)):
        scale, scores = float(scores.args[1]), scores.args[0]
    elif _is(scores, "truediv", "div", "__truediv__") and isinstance(scores.args[1], (int, float)):
        scale, scores = 1.0 / float(scores.args[1]), scores.args[0]
    if not isinstance(scores, torch.fx.Node) or len(scores.users) != 1:
        return None
    scale = 1.0 if scale is None else scale
    if mixing:
        parts = operands(scores) if _is(scores, "einsum") else None
        orders = orders_of(parts[0], mixing) if parts is not None else None
        if parts is None or orders is None:
            return None
        return _Match(last, parts[1], parts[2], value, scale, mask, orders)
    if not _is(scores, "matmul", "bmm", "__matmul__"):
        return None
    return _Match(last, scores.args[0], scores.args[1], value, scale, mask)


def _drops(node: Any) -> bool:
    training = node.kwargs.get("training", node.args[2] if len(node.args) > 2 else True)
    rate = node.kwargs.get("p", node.args[1] if len(node.args) > 1 else 0.5)
    return bool(training) and rate != 0


def _kind_of_fill(value: Any) -> str:
    """How scores filled with ``value`` are masked; empty if that cannot be said of them."""
    if not isinstance(value, (int, float)) or not value < -1e4:
        return ""
    return "keep where not" if value == -math.inf else "fill"


def _rewrite(graph: Any, found: _Match) -> None:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    orders = found.orders
    with graph.inserting_before(found.last):
        query, value = found.query, found.value
        if orders is None:
            keys = graph.call_method("transpose", (found.key, -2, -1))
        else:
            query, keys, value = (
                graph.call_method("permute", (part, order))
                for part, order in (
                    (query, orders.query), (found.key, orders.key), (value, orders.value)
                )
            )  # fmt: skip
        bias = None
        if found.mask is not None:
            kind, mask = found.mask
            if kind == "fill":
                # A row that is masked whole with a finite number has equal weights, and its scores
                # no gradient. So has one whose query is 0, with nothing masked.
                whole = graph.call_method("all", (mask, -1, True))
                query = graph.call_method("masked_fill", (query, whole, 0.0))
                kept = graph.call_function(torch.logical_not, (mask,))
                mask = graph.call_function(torch.logical_or, (kept, whole))
            bias = _as_mask(graph, kind, mask)
        fused = graph.call_function(
            scaled_dot_product_attention, (query, keys, value),
            {"attn_mask": bias, "scale": found.scale},
        )  # fmt: skip
        if orders is not None and orders.result != tuple(range(len(orders.result))):
            fused = graph.call_method("permute", (fused, orders.result))
            if not torch.is_grad_enabled():
                fused = graph.call_method("contiguous", (fused,))
    found.last.replace_all_uses_with(fused)


def _as_mask(graph: Any, kind: str, mask: Any) -> Any:
    """What ``scaled_dot_product_attention`` takes: its CPU kernel has 2 or 4 dimensions."""
    import torch

    if kind == "keep where not":
        mask = graph.call_function(torch.logical_not, (mask,))
    elif kind == "add" and isinstance(mask, torch.fx.Node) and not torch.is_grad_enabled():
        # With a mask that could train PyTorch takes attention apart.
        mask = graph.call_method("detach", (mask,))
    seen = getattr(_example(mask), "ndim", None)
    return graph.call_method("unsqueeze", (mask, 0)) if seen == 3 else mask


def _example(node: Any) -> Any:
    """The stand-in that Dynamo traced with, through what was inserted; ``None`` if unknown."""
    import torch

    while isinstance(node, torch.fx.Node):
        value = node.meta.get("example_value")
        if value is not None or not node.args:
            return value
        node = node.args[0]
    return None


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    program = as_program(work)
    yield replace(program, model=_use(program.model))


@contextmanager
def _in_script() -> Iterator[None]:
    def change(module: Any) -> None:
        if hasattr(module, "set_attn_implementation"):
            module.set_attn_implementation("sdpa")
            _rewritten["models"] += 1
        elif is_module(module):
            compile_in_place(module, backend=fuse_attention_in_graph)

    with before_first_call(change):
        yield


FUSED_ATTENTION = Fix(
    name="fused_attention",
    judged_with=KERNELS,
    title="Fused attention",
    leaves=("memory.device.roof", "memory.device.below", "memory.page_faults",
            "compute.matrix.below", "compute.vector.below", "overhead.dispatch"),
    may_change=(NUMERICS, MEMORY, RANDOMNESS),
    consider=_consider,
    snippet="out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # scale: 1/sqrt(d)",
    apply=_apply,
    in_script=_in_script,
    changes_made=lambda: _rewritten.total(),
    effect=UNBOUNDED,
)  # fmt: skip
