"""The ops of a step that could not be recorded: what torch's profiler has of them, their names."""

from __future__ import annotations

from gobrrr.live.profiles.candidates import candidate_rows
from gobrrr.live.profiles.profile import RawEvents
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall

# Ranges that autograd writes around the operators of a backward pass.
_AUTOGRAD = ("autograd::", "torch::autograd::")


def ops_of_profile(step: RawEvents) -> list[StepOp]:
    """The outermost operators of a profiled step, in order, composites whole.

    Without arguments: no work follows from them, so their time is unmodelled.
    """
    operators = {name for name in step.names if "::" in name and not name.startswith(_AUTOGRAD)}
    rows = candidate_rows(step, operators)
    return [StepOp(OpCall(step.names[name])) for name in step.name[rows].tolist()]
