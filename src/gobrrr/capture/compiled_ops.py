"""The ops of a step that runs compiled code, from one profile with shapes.

A dispatch recorder makes ``torch.compile`` fall back to eager, so it sees another program. The
profiler sees the compiled one: the ops that Inductor left to libraries, with shapes, and its
generated kernels, without. Modules and lines are not known for either.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from gobrrr.capture.op_recorder import RecordedOp
from gobrrr.capture.profile import RawEvents
from gobrrr.capture.trace_args import DTYPES
from gobrrr.timeline.data import Phase
from gobrrr.timeline.nesting import inherited_minimum, parents
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work import has_formula, is_composite

COMPILED_MARKS = ("Torch-Compiled Region", "CompiledFxGraph")


def runs_compiled_code(step: RawEvents) -> bool:
    """Whether any of the step's events is a compiled region."""
    return any(mark in name for name in step.names for mark in COMPILED_MARKS)


def call_of_event(event: Any) -> OpCall | None:
    """The operator call that a kineto event recorded with shapes describes; ``None`` without."""
    try:
        shapes, dtypes, values = event.shapes(), event.dtypes(), event.concrete_inputs()
    except (AttributeError, RuntimeError):
        return None
    if not dtypes:
        return None
    strides = event.structured_input_strides() if hasattr(event, "structured_input_strides") else []
    args: list[Arg] = []
    for i, kind in enumerate(dtypes):
        dtype = DTYPES.get(kind)
        value = values[i] if i < len(values) else None
        if dtype is not None and value is None:
            shape = tuple(shapes[i])
            steps = tuple(strides[i]) if i < len(strides) else None
            fits = steps is not None and len(steps) == len(shape)
            args.append(TensorSpec(shape, dtype, steps if fits else None, device="cpu"))
        elif isinstance(value, list):
            args.append(tuple(v if isinstance(v, (int, float, bool)) else None for v in value))
        else:
            args.append(value if isinstance(value, (bool, int, float, str)) else None)
    args += [v if isinstance(v, (bool, int, float, str)) else None for v in values[len(dtypes) :]]
    return OpCall(event.name(), tuple(args))


def ops_of_compiled_step(step: RawEvents, calls: tuple[OpCall | None, ...]) -> list[RecordedOp]:
    """The step's outermost ops with a formula of their own, in order.

    ``calls`` are per event of ``step``.
    """
    chosen_name = np.array([has_formula(n) and not is_composite(n) for n in step.names], bool)
    wanted = chosen_name[step.name] & (step.thread == 0) & ~step.annotation
    wanted &= np.array([call is not None for call in calls], bool)
    parent = parents(step.start_ns, step.end_ns, step.thread)
    rows = np.arange(len(step), dtype=np.int64)
    outermost = inherited_minimum(parent, np.where(wanted, rows, len(step)))
    backward = np.array(["Backward" in name for name in step.names], bool)[step.name]
    in_backward = inherited_minimum(parent, np.where(backward, 0, 1)) == 0
    optimizer = np.array([n.startswith("Optimizer.step") for n in step.names], bool)[step.name]
    in_optimizer = inherited_minimum(parent, np.where(optimizer, 0, 1)) == 0
    found = []
    for row in np.flatnonzero(wanted & (outermost == rows)).tolist():
        call = calls[row]
        assert call is not None
        phase = Phase.FORWARD
        if in_optimizer[row]:
            phase = Phase.OPTIMIZER
        elif in_backward[row]:
            phase = Phase.BACKWARD
        found.append(RecordedOp(call, "", "", phase, threading.get_native_id()))
    return found
