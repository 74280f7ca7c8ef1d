"""Reading the nodes of a graph that Dynamo made: what is called, with which arguments, on what."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

# What Python's operators that write into their first argument are called.
_WRITING = frozenset(
    f"i{name}"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or",
                 "xor", "lshift", "rshift")
)  # fmt: skip


def name_of(node: Any) -> str:
    """The method or function of torch (or Python's operator) that a node calls; empty if none."""
    import torch

    if not isinstance(node, torch.fx.Node):
        return ""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    home = getattr(node.target, "__module__", None) or "torch"
    known = home.partition(".")[0] in ("torch", "_operator", "operator")
    return str(getattr(node.target, "__name__", "")) if known else ""


def bound(node: Any, names: Sequence[str]) -> dict[str, Any] | None:
    """The arguments by name; ``None`` if there is one that is not among these names."""
    given = dict(zip(names, node.args, strict=False))
    if len(node.args) > len(names) or given.keys() & node.kwargs.keys():
        return None
    return given | node.kwargs if set(node.kwargs) <= set(names) else None


def example(node: Any) -> Any:
    """The tensor that stands for a node's result; ``None`` if unknown, or if it is no tensor."""
    import torch

    value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def number(given: Any) -> float | None:
    """A number, or that of a tensor which is made of one; ``None`` of anything else."""
    if isinstance(given, (int, float)):
        return float(given)
    place = {"tensor": 0, "full": 1, "full_like": 1}.get(name_of(given))
    seen = example(given)
    if place is None or seen is None or len(given.args) <= place:
        return None
    import torch

    if not all(_only_reads(user, seen) for user in given.users):
        # Part of it, or all, may be another by the time that it is read.
        return None
    made_of = number(given.args[place])
    # As that tensor's type has it.
    return None if made_of is None else float(torch.tensor(made_of).to(seen.dtype).item())


def _only_reads(user: Any, tensor: Any) -> bool:
    """Whether a node neither changes this tensor nor makes a view of it."""
    made = example(user)
    if writes(user) or (made is None and user.op != "output"):
        return False
    return made is None or made.untyped_storage()._cdata != tensor.untyped_storage()._cdata


def writes(node: Any) -> bool:
    """Whether a node changes a tensor that it is given, or may."""
    import torch

    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    if isinstance(node.target, torch._ops.OpOverloadPacket):
        found = [getattr(node.target, one)._schema for one in node.target.overloads()]
        return any(schema.is_mutable for schema in found)
    if isinstance(node.target, torch._ops.HigherOrderOperator) or node.op == "call_module":
        # What it calls is not looked into.
        return True
    name = name_of(node)
    if name in _WRITING or name == "setitem" or "out" in node.kwargs:
        return True
    operator = getattr(node.target, "__module__", "") == "_operator"
    if name.endswith("_") and not name.endswith("__") and not operator:
        return True
    if node.kwargs.get("inplace"):
        return True
    if node.op != "call_function" or getattr(node.target, "__module__", "") != (
        "torch.nn.functional"
    ):
        return False
    try:
        given = inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):
        return False
    return bool(given.get("inplace"))


def switches(node: Any) -> bool:
    """Whether gradients are recorded, or not, from this node on."""
    return "set_grad_enabled" in name_of(node) or "inference_mode" in name_of(node)


def follow_writes(graph: Any, names: Sequence[str]) -> None:
    """What reads a tensor after one of these methods wrote into it reads that method's result.

    They are one tensor, so that the graph computes the same; what follows on what shows.
    """
    place = {node: at for at, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if name_of(node) in names and node.args and example(node.args[0]) is not None:
            written = node.args[0]
            for user in list(written.users):
                if place[user] > place[node]:
                    user.replace_input_with(written, node)
