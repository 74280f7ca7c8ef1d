"""What PyTorch's schemas tell of the operators of a step."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Schema(NamedTuple):
    """What PyTorch says of an operator: the overloads' together where that is not recorded.

    Attributes:
        tags: ``torch.Tag``.
        changes: whether it changes tensors that it is given.
        fills: whether these are what it was given to write its results into (``out=``).
        makes_tensors: whether tensors are among its results.
        arguments: their names, in order.
    """

    tags: frozenset[str]
    changes: bool
    fills: bool
    makes_tensors: bool
    arguments: tuple[str, ...]


@lru_cache(maxsize=4096)
def schema_of(name: str, overload: str) -> Schema | None:
    """``None`` of an operator that is none of PyTorch's own, or that it does not have."""
    import torch

    home, _, own = name.partition("::")
    if home != "aten" or not hasattr(torch.ops.aten, own):
        return None
    packet = getattr(torch.ops.aten, own)
    names = packet.overloads()
    known = overload or "default"
    found = [getattr(packet, one) for one in ([known] if known in names else names)]
    schemas = [one._schema for one in found]
    return Schema(
        frozenset(str(tag).removeprefix("Tag.") for one in found for tag in one.tags),
        all(schema.is_mutable for schema in schemas),
        all(any(argument.is_out for argument in schema.arguments) for schema in schemas),
        any("Tensor" in str(r.type) for schema in schemas for r in schema.returns),
        tuple(argument.name for argument in schemas[0].arguments),
    )
