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
class GraphOp:
    """One operator call of the step.

    Attributes:
        call: its arguments; every tensor carries storage id, strides, offset and device.
        phase: forward, backward, optimizer or other.
        module: path of the module it ran in, ``"layers.0.mlp"``; ``""`` outside modules. An
            operator of backward belongs to the module of the forward operator it derives from.
        source: ``"file.py:12"`` of the user's line that called it; ``""`` where unknown.
    """

    call: OpCall
    phase: Phase = Phase.OTHER
    module: str = ""
    source: str = ""


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

    ops: tuple[GraphOp, ...]
    kept: frozenset[int]
    parameters: frozenset[int]
    inputs: frozenset[int]
    sizes_bytes: Mapping[int, int]
    peak_memory_bytes: int | None
    notices: tuple[str, ...] = ()
