"""Which ops do something besides making the tensors that they return."""

from __future__ import annotations

from gobrrr.fixes.patterns.dataflow import changes_argument, moves_to_memory
from gobrrr.fixes.patterns.op_schemas import Schema, schema_of
from gobrrr.timeline.ops import Arg, OpCall

# By a part of the name: PyTorch's schemas do not tell these.
_NAMES = ("_local_scalar_dense", "_assert", "print", "record_stream", "c10d")
# Arguments that are 0 where nothing is drawn.
_DROPOUT = ("dropout_p", "dropout")
# Arguments that say whether a batch norm updates its running statistics.
_TRAINING = ("training", "train")


def acts_besides(call: OpCall) -> bool:
    """Whether the op may do more than make its result.

    It draws random numbers (those after it would be others), tells the host a value or a size,
    updates statistics, changes tensors in a way that its name does not tell, or is none of
    PyTorch's own. What it changes in place is no part of it (``Flow.writes_outside``), unless
    which tensors it changes is unknown.
    """
    if any(part in call.name for part in _NAMES):
        return True
    schema = schema_of(call.name, call.overload)
    if schema is None or "data_dependent_output" in schema.tags:
        return True
    known = changes_argument(call) or moves_to_memory(call)
    if schema.changes and not (known and call.outputs):
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


def _draws(schema: Schema, given: dict[str, Arg]) -> bool:
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
