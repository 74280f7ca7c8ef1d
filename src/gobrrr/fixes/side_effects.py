"""Which ops do something besides making the tensors that they return."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from gobrrr.fixes.dataflow import changes_argument
from gobrrr.timeline.ops import Arg, OpCall

# By a part of the name: PyTorch's schemas do not tell these.
_NAMES = ("_local_scalar_dense", "_assert", "print", "record_stream", "c10d")
# Arguments that are 0 where nothing is drawn.
_DROPOUT = ("dropout_p", "dropout")
# Arguments that say whether a batch norm updates its running statistics.
_TRAINING = ("training", "train")


class _Schema(NamedTuple):
    """What PyTorch says of an operator: the overloads' together where that is not recorded."""

    tags: frozenset[str]
    changes: bool
    makes_tensors: bool
    arguments: tuple[str, ...]


def acts_besides(call: OpCall) -> bool:
    """Whether the op may do more than make its result.

    It draws random numbers (those after it would be others), tells the host a value or a size,
    updates statistics, changes tensors in a way that its name does not tell, or is none of
    PyTorch's own. What it changes in place is no part of it (``Flow.writes_outside``), unless
    which tensors it changes is unknown.
    """
    if any(part in call.name for part in _NAMES):
        return True
    schema = _schema_of(call.name, call.overload)
    if schema is None or "data_dependent_output" in schema.tags:
        return True
    if schema.changes and not (changes_argument(call) and call.outputs):
        return True
    # One without a plain form cannot be followed to who reads it.
    if schema.makes_tensors and call.outputs is None:
        return True
    given = dict(zip(schema.arguments, call.args))
    return (
        _draws(schema, given)
        or ("dynamic_output_shape" in schema.tags and _picks(call))
        or _updates_statistics(given)
    )


def _draws(schema: _Schema, given: dict[str, Arg]) -> bool:
    dropped = [given[name] for name in _DROPOUT if name in given]
    return "nondeterministic_seeded" in schema.tags and not (dropped and not any(dropped))


def _picks(call: OpCall) -> bool:
    """Whether the size of the result follows from data, and may be what the host reads of it."""
    return call.name != "aten::index" or any(
        spec.dtype in ("bool", "uint8") for spec in call.tensors[1:]
    )


def _updates_statistics(given: dict[str, Arg]) -> bool:
    """A batch norm does, and its older schemas do not tell."""
    trains = [given[name] for name in _TRAINING if name in given]
    return given.get("running_mean") is not None and (not trains or any(trains))


@lru_cache(maxsize=4096)
def _schema_of(name: str, overload: str) -> _Schema | None:
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
    return _Schema(
        frozenset(str(tag).removeprefix("Tag.") for one in found for tag in one.tags),
        all(schema.is_mutable for schema in schemas),
        any("Tensor" in str(r.type) for schema in schemas for r in schema.returns),
        tuple(argument.name for argument in schemas[0].arguments),
    )
