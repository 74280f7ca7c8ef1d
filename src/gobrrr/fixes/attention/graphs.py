"""Attention in graphs of Dynamo: found in any spelling, replaced by the fused function."""

from __future__ import annotations

import math
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gobrrr.fixes.attention.forms import Orders, operands, orders_of
from gobrrr.fixes.attention.graph_nodes import (
    bound,
    example,
    follow_writes,
    name_of,
    number,
    switches,
    writes,
)
from gobrrr.fixes.attention.scores import (
    CASTS,
    IN_PLACE,
    PRODUCTS,
    Bias,
    Fill,
    Scale,
    Scores,
    fills_mask,
    keeps_precision,
    scores_of,
)
from gobrrr.fixes.changes import changed


def fuse_attention_in_graph(graph_module: Any, example_inputs: Any) -> Callable[..., Any]:
    """A backend of ``torch.compile`` that rewrites attention and runs the rest as it is.

    The softmax of q @ k^T, with scales, biases and masks, times v, without dropout, becomes
    ``scaled_dot_product_attention``. Anything else is left alone.
    """
    import torch

    graph = graph_module.graph
    follow_writes(graph, IN_PLACE)
    nodes = list(graph.nodes)
    # Where a part of the graph records gradients, they are kept wherever they may be.
    records = torch.is_grad_enabled() or any(switches(node) for node in nodes)
    casts = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    casts = casts or any("autocast" in name_of(node) for node in nodes)
    for place, node in enumerate(nodes):
        found = _match(node, casts)
        if found is None:
            continue
        own = set(found.nodes)
        between = [n for n in nodes[nodes.index(found.scores.product) : place] if n not in own]
        # What the product has read is another by then, or its gradients are.
        if any(writes(other) or switches(other) for other in between):
            continue
        _rewrite(graph, found, records)
        changed("fused_attention")
    graph_module.recompile()
    forward: Callable[..., Any] = graph_module.forward
    return forward


@dataclass(frozen=True)
class _Match:
    """An attention in a graph: its scores, from the product on, and what they weigh.

    ``nodes`` are all that it consists of, in order. ``orders`` is ``None`` where nothing is known
    of the dimensions, and the last two are transposed.
    """

    scores: Scores
    query: Any
    key: Any
    value: Any
    nodes: tuple[Any, ...]
    orders: Orders | None

    @property
    def query_shape(self) -> tuple[Any, ...] | None:
        """In the order (batch..., tokens, width)."""
        seen = example(self.query)
        if seen is None:
            return None
        shape = tuple(seen.shape)
        return shape if self.orders is None else tuple(shape[i] for i in self.orders.query)


def _match(last: Any, casts: bool = False) -> _Match | None:
    """The attention that ends in ``last``; ``casts``: under autocast."""
    mixing = None
    if name_of(last) == "einsum":
        parts = operands(last)
        if parts is None:
            return None
        mixing, weights, value = parts
        if _softmax_behind(weights) is None:
            weights, value, mixing = value, weights, _swapped(mixing)
    elif name_of(last) in PRODUCTS:
        given = bound(last, PRODUCTS[name_of(last)])
        if given is None or len(given) != 2:
            return None
        weights, value = (given[name] for name in PRODUCTS[name_of(last)])
    else:
        return None
    behind = _softmax_behind(weights)
    scores = None if behind is None else scores_of(behind[0].args[0])
    if behind is None or scores is None or not fills_mask(scores.steps):
        return None
    softmax, passed = behind
    if not _over_keys(softmax, scores) or not all(keeps_precision(n, scores) for n in passed):
        return None
    made, seen = example(scores.product), example(last)
    if made is not None and seen is not None and made.dtype != seen.dtype:
        return None
    query, key, orders = scores.first, scores.second, None
    if scores.equation is not None or mixing is not None or _dims(query, key, value):
        dims = 0 if made is None else made.ndim
        first = scores.equation or _letters(dims, _dims(query, key), key_second=True)
        second = mixing or _letters(dims, _dims(weights, value), key_second=False)
        if first is None or second is None:
            return None
        orders = orders_of(first, second)
        if orders is None:
            swapped = _swapped(first)
            orders, query, key = orders_of(swapped, second), key, query
        if orders is None:
            return None
    elif any(part is not None and part.ndim < 2 for part in map(example, (query, key, value))):
        return None
    found = _Match(scores, query, key, value, (*scores.nodes, *passed, last), orders)
    return found if _can_be_said(found, casts) else None


def _softmax_behind(weights: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """The softmax whose weights these are, and the nodes from it on that nobody else reads."""
    passed: list[Any] = []
    while name_of(weights):
        if len(weights.users) != 1 or not weights.args:
            return None
        passed.insert(0, weights)
        if name_of(weights) == "softmax":
            return weights, tuple(passed)
        if name_of(weights) == "dropout":
            if _drops(weights):
                return None
        elif name_of(weights) not in CASTS:
            return None
        weights = weights.args[0]
    return None


def _over_keys(softmax: Any, scores: Scores) -> bool:
    """Whether the softmax is one over the last dimension."""
    third = "_stacklevel" if _is_functional(softmax) else "dtype"
    given = bound(softmax, ("input", "dim", third, "dtype", "_stacklevel"))
    if given is None:
        return False
    seen = example(scores.product)
    last = (-1,) if seen is None else (-1, seen.ndim - 1)
    if seen is None and given.get("dtype") is not None:
        return False
    return given.get("dim") in last


def _is_functional(node: Any) -> bool:
    return node.op == "call_function" and (
        getattr(node.target, "__module__", "") == "torch.nn.functional"
    )


def _drops(node: Any) -> bool:
    given = node.kwargs
    training = given.get("training", given.get("train"))
    if training is None:
        training = node.args[2] if len(node.args) > 2 else True
    rate = given.get("p", node.args[1] if len(node.args) > 1 else 0.5)
    return bool(training) and rate != 0


def _dims(*parts: Any) -> int:
    """How many dimensions all of these have; 0 if not all the same, or unknown."""
    dims = {getattr(example(part), "ndim", 0) for part in parts}
    return dims.pop() if len(dims) == 1 else 0


def _letters(dims: int, given: int, key_second: bool) -> str | None:
    """A product of matrices as an equation; ``None`` where one has other dimensions."""
    if dims != given or dims < 2:
        return None
    batch = string.ascii_lowercase[: dims - 2]
    inner = ("XY", "YZ", "XZ") if key_second else ("XZ", "ZY", "XY")
    first, second, made = (batch + pair for pair in inner)
    return f"{first},{second}->{made}"


def _swapped(equation: str) -> str:
    inputs, arrow, made = equation.partition("->")
    first, _, second = inputs.partition(",")
    return f"{second},{first}{arrow}{made}"


def _can_be_said(found: _Match, casts: bool) -> bool:
    """Whether all that is done to the scores can be said of query and mask."""
    import torch

    made, shape = example(found.scores.product), found.query_shape
    if made is None or shape is None:
        return all(isinstance(s, Scale) and number(s.by) is not None for s in found.scores.steps)
    same_rows = tuple(made.shape[:-1]) == shape[:-1]
    for step in found.scores.steps:
        if isinstance(step, Fill) and step.value != -math.inf and not same_rows:
            return False
        if isinstance(step, Scale) and number(step.by) is None:
            seen = example(step.by)
            if seen is not None and seen.ndim and (not same_rows or seen.dtype != made.dtype):
                return False
        if isinstance(step, Bias) and not isinstance(step.what, float):
            seen = example(step.what)
            if seen.is_complex() or (seen.is_floating_point() and seen.itemsize > 4 and (
                made.dtype != torch.float64
            )):  # fmt: skip
                return False
            wider = seen.is_floating_point() and seen.itemsize > made.itemsize
            # Autocast narrows a mask like the rest; on a GPU the kernels take none that is wider.
            if wider and (casts or made.device.type != "cpu"):
                return False
    return True


def _rewrite(graph: Any, found: _Match, records: bool) -> None:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    orders, last = found.orders, found.nodes[-1]
    call, function = graph.call_method, graph.call_function
    with graph.inserting_before(last):
        query, key, value = found.query, found.key, found.value
        if orders is None:
            key = call("transpose", (key, -2, -1))
        else:
            query, key, value = (
                _permuted(graph, part, order)
                for part, order in (
                    (query, orders.query), (key, orders.key), (value, orders.value)
                )
            )  # fmt: skip
        scale = 1.0
        for step in found.scores.steps:
            if isinstance(step, Scale):
                by = number(step.by)
                if by is None:
                    query = function(torch.div if step.divides else torch.mul, (query, step.by))
                else:
                    scale *= by
        if scale < 0:
            query, scale = function(torch.mul, (query, -1.0)), -scale
        mask = _mask_of(graph, found, records)
        if mask.equal_weights is not None:
            query = call("masked_fill", (query, mask.equal_weights, 0.0))
        dims = len(found.query_shape or ()) if orders is not None else 0
        # The fused kernels take 4 dimensions and no fewer.
        missing = 4 - dims if dims in (2, 3) else 0
        for _ in range(missing):
            query, key, value = (call("unsqueeze", (part, 0)) for part in (query, key, value))
        given = mask.node
        if given is not None:
            scores = example(found.scores.product).ndim + missing
            # The CPU kernel takes masks of 2 or 4 dimensions.
            for _ in range(int(scores > 3) if mask.dims == 3 else max(2 - mask.dims, 0)):
                given = call("unsqueeze", (given, 0))
        made = function(
            scaled_dot_product_attention, (query, key, value),
            {"attn_mask": given, "scale": scale},
        )  # fmt: skip
        for _ in range(missing):
            made = call("squeeze", (made, 0))
        if mask.undefined is not None:
            made = call("masked_fill", (made, mask.undefined, math.nan))
        moved = orders is not None and orders.result != tuple(range(len(orders.result)))
        if orders is not None and moved:
            made = call("permute", (made, orders.result))
        # A product is contiguous, which a view of it relies upon; the fused result need not be.
        viewed = any(name_of(user) in ("view", "view_as") for user in last.users)
        if viewed or (moved and not records):
            made = call("contiguous", (made,))
    last.replace_all_uses_with(made)
    # Nothing else: what only has an effect has no users either.
    for node in reversed(found.nodes):
        if not node.users:
            graph.erase_node(node)


def _permuted(graph: Any, part: Any, order: tuple[int, ...]) -> Any:
    if order == tuple(range(len(order))):
        return part
    return graph.call_method("permute", (part, order))


@dataclass
class _Mask:
    """What is added to the scores, or which of them count.

    Attributes:
        node: the mask; ``None``: there is none.
        dims: its dimensions.
        equal_weights: rows whose own scores do not count, all of them being filled.
        undefined: rows of which all is filled with -inf: their softmax is not a number.
    """

    node: Any = None
    dims: int = 2
    equal_weights: Any = None
    undefined: Any = None


def _mask_of(graph: Any, found: _Match, records: bool) -> _Mask:
    import torch

    function = graph.call_function
    steps = found.scores.steps
    fills = [step for step in steps if isinstance(step, Fill)]
    biases = [step for step in steps if isinstance(step, Bias)]
    if not fills and all(isinstance(step.what, float) for step in biases):
        # The same for all keys: their weights do not change.
        return _Mask()
    filled: Any = None
    masks: dict[Fill, Any] = {}
    for fill in fills:
        mask = function(torch.logical_not, (fill.mask,)) if fill.where_false else fill.mask
        masks[fill] = mask
        filled = mask if filled is None else function(torch.logical_or, (filled, mask))
    whole = None if filled is None else graph.call_method("all", (filled, -1, True))
    values = {fill.value for fill in fills}
    parts = [step.mask for step in fills]
    parts += [step.what for step in biases if not isinstance(step.what, float)]
    dims = max(example(part).ndim for part in parts)
    if not biases and len(values) == 1:
        kept = function(torch.logical_not, (filled,))
        if values == {-math.inf}:
            return _Mask(kept, dims, None, whole)
        # A row that is filled whole with a finite number has equal weights, and its scores no
        # gradient. So has one whose query is 0, with nothing masked.
        return _Mask(function(torch.logical_or, (kept, whole)), dims, whole)
    made = _added(graph, found, masks)
    if not records:
        # With a mask that could train PyTorch takes attention apart.
        made = graph.call_method("detach", (made,))
    equal = whole if values - {-math.inf} else None
    undefined = whole if values == {-math.inf} else None
    if len(values) > 1 and -math.inf in values:
        lost = function(torch.isneginf, (made,))
        undefined = graph.call_method("all", (lost, -1, True))
    return _Mask(made, dims, equal, undefined)


def _added(graph: Any, found: _Match, masks: dict[Fill, Any]) -> Any:
    """What the steps make of scores that are 0."""
    import torch

    seen = example(found.scores.product)
    function = graph.call_function
    made: Any = None

    def all_of(value: float) -> Any:
        kind = {"dtype": seen.dtype, "device": seen.device}
        return function(torch.full, ((), value), kind)

    for step in found.scores.steps:
        if isinstance(step, Scale):
            if made is not None:
                made = function(torch.div if step.divides else torch.mul, (made, step.by))
        elif isinstance(step, Fill):
            made = all_of(0.0) if made is None else made
            made = graph.call_method("masked_fill", (made, masks[step], step.value))
        else:
            what = step.what
            if isinstance(what, float):
                what = all_of(what * step.times)
            else:
                kind = example(what)
                if not kind.is_floating_point() or kind.itemsize < seen.itemsize:
                    what = graph.call_method("to", (what, seen.dtype))
                if step.times != 1:
                    what = function(torch.mul, (what, step.times))
            made = what if made is None else function(torch.add, (made, what))
    return made
