"""The operators that a step would run, in order, with the memory they share: a graph by storages.

What a capture without computing leaves behind. An operator reads what an earlier one wrote exactly
if their tensors carry the same storage id; no edges are stored beside that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gobrrr.timeline.data import Phase
from gobrrr.timeline.ops import OpCall


@dataclass(frozen=True, slots=True)
class StepOp:
    """One operator call of a step: run, recorded, or captured without computing.

    Attributes:
        call: its arguments (schema order) and outputs; of a captured one every tensor carries
            storage id, strides, offset and device.
        module: path of the innermost module it ran in, ``"layers.0.mlp"``; the root's class name
            for ops of the root itself; ``""`` outside modules. An operator of backward belongs to
            the module of the forward operator it derives from.
        source: the user's line that called it, ``"train.py:88 in get_batch"`` or ``"file.py:12"``;
            for an operator of backward, of the forward; ``""`` where unknown.
        phase: forward, backward, optimizer or other.
        thread: the operating system's identifier; 0 where it did not run.
        page_faults: minor faults of the process while it ran.
        nodes: of autograd, made since the op before: the record of this op for a backward pass.
        start_ns, end_ns: on the clock ``time.perf_counter_ns``; 0 where it was not timed.
    """

    call: OpCall
    module: str = ""
    source: str = ""
    phase: Phase = Phase.OTHER
    thread: int = 0
    page_faults: int = 0
    nodes: int = 0
    start_ns: int = 0
    end_ns: int = 0


@dataclass(frozen=True, slots=True)
class OpGraph:
    """The operators of one step, in the order in which the framework would issue them.

    Attributes:
        ops: views included; an operator that launches nothing is told by its work.
        kept: storages that outlive the step: parameters, gradients, optimizer state, results. What
            writes one of them cannot be fused away.
        parameters: storages of parameters.
        inputs: storages that existed before the step and are not parameters (data, buffers).
        sizes_bytes: size of each storage named in ``ops``.
        peak_memory_bytes: most bytes of storages alive at once on the device, parameters and
            optimizer state included, the allocator's rounding and workspaces not.
        notices: sentences for the user about what could not be captured as it would run.
    """

    ops: tuple[StepOp, ...]
    kept: frozenset[int]
    parameters: frozenset[int]
    inputs: frozenset[int]
    sizes_bytes: Mapping[int, int]
    peak_memory_bytes: int | None
    notices: tuple[str, ...] = ()
