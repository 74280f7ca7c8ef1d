"""What happens to the scores of an attention between the product and the softmax.

In whatever spelling: scales, biases and fills, in order. What is not understood is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gobrrr.fixes.attention.forms import operands
from gobrrr.fixes.attention.graph_nodes import bound, example, name_of, number

_MULTIPLY = ("mul", "mul_", "imul", "multiply", "__mul__", "__rmul__")
_DIVIDE = ("div", "div_", "truediv", "itruediv", "divide", "true_divide", "__truediv__")
_ADD = ("add", "add_", "iadd", "__add__", "__radd__")
_SUBTRACT = ("sub", "sub_", "isub", "subtract", "__sub__")
_FILL = ("masked_fill", "masked_fill_")
CASTS = ("to", "type_as", "float", "double", "half", "bfloat16", "contiguous")
PRODUCTS = {"matmul": ("input", "other"), "__matmul__": ("input", "other"),
            "bmm": ("input", "mat2")}  # fmt: skip
# Those of them that write into the scores.
IN_PLACE = ("mul_", "imul", "div_", "itruediv", "add_", "iadd", "sub_", "isub", "masked_fill_")
# A finite number below this says that a score does not count.
_MASKED = -1e4


@dataclass(frozen=True)
class Scale:
    """Scores times a number or a tensor that is the same for all keys; or divided by it."""

    by: Any
    divides: bool = False


@dataclass(frozen=True)
class Bias:
    """What is added to the scores, a number or a tensor, so many times."""

    what: Any
    times: float = 1.0


@dataclass(frozen=True)
class Fill:
    """Scores replaced by a number where a mask is true, or where it is not."""

    mask: Any
    value: float
    where_false: bool = False


Step = Scale | Bias | Fill


@dataclass(frozen=True)
class Scores:
    """A product and what is done to it.

    ``nodes`` are the product and those that follow on it, in order; each is read by the next alone.
    """

    first: Any
    second: Any
    equation: str | None
    nodes: tuple[Any, ...]
    steps: tuple[Step, ...] = ()

    @property
    def product(self) -> Any:
        """The node of the product itself."""
        return self.nodes[0]

    def then(self, node: Any, *steps: Step) -> Scores:
        """The same after one more node."""
        return Scores(
            self.first, self.second, self.equation, (*self.nodes, node), (*self.steps, *steps)
        )


def scores_of(node: Any) -> Scores | None:
    """The scores that a node computes; ``None`` where that is not clear, or others read them."""
    import torch

    if not isinstance(node, torch.fx.Node) or len(node.users) != 1:
        return None
    name = name_of(node)
    if name in PRODUCTS:
        given = bound(node, PRODUCTS[name])
        if given is None or len(given) != 2:
            return None
        first, second = (given[part] for part in PRODUCTS[name])
        return Scores(first, second, None, (node,))
    if name == "einsum":
        parts = operands(node)
        return None if parts is None else Scores(parts[1], parts[2], parts[0], (node,))
    if name == "baddbmm":
        return _of_baddbmm(node)
    if name in CASTS:
        found = scores_of(node.args[0]) if node.args else None
        return found.then(node) if found is not None and keeps_precision(node, found) else None
    found = _scaled(node, name) or _added(node, name) or _filled(node, name)
    if found is None or not _same_size(node, found):
        return None
    return found if keeps_precision(node, found) else None


def keeps_precision(node: Any, scores: Scores) -> bool:
    """Whether a node is in the type and on the device of the product, or in float32."""
    import torch

    made, seen = example(scores.product), example(node)
    if made is None or seen is None:
        # What is known of neither changes nothing, if it is no cast.
        return name_of(node) not in CASTS or name_of(node) == "contiguous"
    if made.device != seen.device:
        return False
    wider = seen.dtype == torch.float32 and made.dtype in (torch.float16, torch.bfloat16)
    return bool(wider or made.dtype == seen.dtype)


def _same_size(node: Any, scores: Scores) -> bool:
    """Whether what stands beside the scores, if it is a tensor, has no dimension that they lack."""
    before, after = example(scores.product), example(node)
    if before is None or after is None:
        return all(isinstance(s, Scale) and number(s.by) is not None for s in scores.steps)
    return bool(before.shape == after.shape)


def _of_baddbmm(node: Any) -> Scores | None:
    given = bound(node, ("input", "batch1", "batch2", "beta", "alpha"))
    if given is None or example(node) is None:
        return None
    alpha, beta = number(given.get("alpha", 1)), number(given.get("beta", 1))
    if alpha is None or beta is None or not alpha:
        return None
    # With 0 the tensor is not read at all.
    added = (Bias(given["input"], beta),) if beta else ()
    return Scores(given["batch1"], given["batch2"], None, (node,), (Scale(alpha), *added))


def _sides(node: Any, given: dict[str, Any]) -> tuple[Scores, Any, bool] | None:
    """(scores, what stands beside them, whether they come first)."""
    first, other = given.get("input"), given.get("other")
    found = scores_of(first)
    if found is not None:
        return found, other, True
    # What writes into something else than the scores is not only about them.
    found = None if name_of(node) in IN_PLACE else scores_of(other)
    return None if found is None else (found, first, False)


def _scaled(node: Any, name: str) -> Scores | None:
    if name not in (*_MULTIPLY, *_DIVIDE):
        return None
    given = bound(node, ("input", "other"))
    sides = None if given is None else _sides(node, given)
    if sides is None:
        return None
    scores, by, first = sides
    divides = name in _DIVIDE
    if divides and not first:
        return None
    value, seen = number(by), example(by)
    if value is not None:
        if not math.isfinite(value) or not value:
            return None
        return scores.then(node, Scale(1.0 / value if divides else value))
    if seen is not None and seen.ndim and seen.shape[-1] != 1:
        return None
    # Which sign and size it has is not known: it may make a number that masks one that does not.
    if any(isinstance(step, Fill) for step in scores.steps):
        return None
    return scores.then(node, Scale(by, divides))


def _added(node: Any, name: str) -> Scores | None:
    if name not in (*_ADD, *_SUBTRACT):
        return None
    given = bound(node, ("input", "other", "alpha"))
    sides = None if given is None else _sides(node, given)
    times = number(given.get("alpha", 1)) if given is not None else None
    if sides is None or times is None or not times:
        return None
    scores, bias, first = sides
    value = number(bias)
    if value is None and example(bias) is None:
        return None
    if value is not None and not math.isfinite(value):
        return None
    times = -times if name in _SUBTRACT else times
    bias = bias if value is None else value
    if first:
        return scores.then(node, Bias(bias, times))
    return scores.then(node, *([Scale(times)] if times != 1 else []), Bias(bias))


def _filled(node: Any, name: str) -> Scores | None:
    if name in _FILL:
        given = bound(node, ("input", "mask", "value"))
        if given is None or len(given) != 3:
            return None
        kept, mask, value, where_false = given["input"], given["mask"], given["value"], False
    elif name == "where":
        method = node.op == "call_method"
        order = ("input", "condition", "other") if method else ("condition", "input", "other")
        given = bound(node, order)
        if given is None or len(given) != 3:
            return None
        mask, kept, value, where_false = given["condition"], given["input"], given["other"], True
        if number(value) is None:
            kept, value, where_false = value, kept, False
    else:
        return None
    scores, filled, seen = scores_of(kept), number(value), example(mask)
    if scores is None or filled is None or seen is None or not seen.ndim:
        return None
    import torch

    if seen.dtype != torch.bool:
        return None
    return scores.then(node, Fill(mask, filled, where_false))


def fills_mask(steps: Sequence[Step]) -> bool:
    """Whether each number that is filled in is, after what follows, one that does not count."""
    for place, step in enumerate(steps):
        if isinstance(step, Fill):
            value = step.value
            for later in steps[place + 1 :]:
                value *= number(later.by) or 0.0 if isinstance(later, Scale) else 1.0
            if not value < _MASKED:
                return False
    return True
