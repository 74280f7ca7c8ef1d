"""The energy of a predicted step, as a diagnosis keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gobrrr.diagnosis.step_schema import EnergyRecord
from gobrrr.prediction.kernels.energy import energy_of_step
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.step.costs import CostedOp
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp

_EMBEDDING = "aten::embedding"


def energy_record(
    ops: Sequence[CostedOp], step_s: float, device: TargetDevice
) -> EnergyRecord | None:
    """Joules of the step and of each of its tokens; ``None`` where they are not known.

    No measurement was compared with these joules, which ``source`` says.
    """
    found = energy_of_step(
        ((op.work, op.cost.cold_bytes, op.device_s) for op in ops), step_s, device
    )
    if found is None:
        return None
    tokens = tokens_of(op.op for op in ops)
    return EnergyRecord(
        joules=found.joules,
        mean_w=found.mean_w,
        board_w=found.board_w,
        static_j=found.static_j,
        arithmetic_j=found.arithmetic_j,
        memory_j=found.memory_j,
        tokens=tokens,
        joules_per_token=found.joules / tokens if tokens else None,
        source=(
            "the board's static power over the step, published joules per byte of memory, and the "
            "power model's joules per FLOP, within the board's power; not validated against "
            "measurements"
        ),
    )


def tokens_of(ops: Iterable[StepOp]) -> int | None:
    """Tokens that a step takes in: the indices of all its forward lookups in one table.

    The table is the one with the most of them: a step may look up several microbatches, or a
    prompt and then each token after it. Tables of positions or of segments are looked up as often
    at the most. A table of biases between positions (a row for each distance, a column for each
    head) is looked up more often, and left out: its rows are less than half as wide as the widest.
    ``None`` for a step without a table.
    """
    lookups: Counter[tuple[int | None, tuple[int, ...]]] = Counter()
    for op in ops:
        call = op.call
        if call.name == _EMBEDDING and op.phase is not Phase.BACKWARD and len(call.tensors) > 1:
            table, indices = call.tensors[0], call.tensors[1]
            lookups[table.storage, table.shape] += indices.numel
    widest = max((shape[-1] for _, shape in lookups if shape), default=0)
    of_tokens = [
        count for (_, shape), count in lookups.items() if shape and 2 * shape[-1] >= widest
    ]
    return max(of_tokens, default=None)
