"""What an optimizer says of itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gobrrr.live.watch.fused_optimizers import refused_on_cuda
from gobrrr.observe.program_facts import OptimizerFact


def is_of_torch(value: Any) -> bool:
    """Whether its class is one of torch's own: another's may have the name, and not the meaning."""
    return type(value).__module__.startswith("torch.")


def describe_optimizer(optimizer: Any) -> OptimizerFact:
    """What an optimizer steps over, and how."""
    tensors = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    first = optimizer.param_groups[0]
    return OptimizerFact(
        name=type(optimizer).__name__,
        tensors=len(tensors),
        elements=sum(p.numel() for p in tensors),
        fused=first.get("fused"),
        foreach=first.get("foreach"),
        of_torch=is_of_torch(optimizer),
        takes_sparse=_takes_sparse(optimizer),
        refused_on_cuda=refused_on_cuda(type(optimizer).__name__),
    )


def described(optimizers: Iterable[Any]) -> tuple[OptimizerFact, ...]:
    """Of each of them that has parameters."""
    return tuple(describe_optimizer(each) for each in optimizers if each.param_groups)


def _takes_sparse(optimizer: Any) -> bool:
    """Whether sparse gradients move the same elements by the same amount as dense ones."""
    if type(optimizer).__name__ not in ("SGD", "Adagrad", "SparseAdam"):
        return False
    moving = ("momentum", "weight_decay", "fused", "maximize")
    return not any(group.get(name) for group in optimizer.param_groups for name in moving)
