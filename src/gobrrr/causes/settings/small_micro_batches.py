"""Many small micro-batches in one optimizer step: their fixed cost is paid for each."""

from __future__ import annotations

from collections import Counter

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.updates import passes_of
from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.timeline.quantities import count, percent, time_text

_FEWEST = 4
# Of what forward and backward passes take, what does not grow with the batch.
_MUCH = 0.3


def _overhead_s(ops: list[OpFact]) -> float:
    return sum(op.host_s + op.fixed_s for op in ops)


def _adds(ops: list[OpFact]) -> bool:
    """Whether a pass adds to gradients that are there."""
    return any(op.phase == "backward" and op.name == "aten::add_" for op in ops)


def _find(facts: Facts) -> Found | None:
    if not facts.trains or not facts.in_order:
        return None
    passes = max(passes_of(facts), key=len, default=[])
    # Passes of other models, or of other sizes, are no micro-batches.
    likeness = Counter(tuple(op.name for op in ops) for ops in passes)
    number = len(passes)
    # The first may make the gradients that the others add to.
    if number < _FEWEST or max(likeness.values()) < 0.7 * number:
        return None
    if sum(map(_adds, passes)) < 0.7 * number - 1:
        # Gradients are added to none: passes of torch.autograd.grad, each for something else.
        return None
    overhead_s = sum(map(_overhead_s, passes))
    kernels_s = sum(op.kernel_s for ops in passes for op in ops)
    if overhead_s < _MUCH * (overhead_s + kernels_s):
        return None
    lines = [op.source for op in passes[-1] if op.phase == "backward" and op.source]
    lines = lines or [op.source for op in passes[-1] if op.source]
    # The loss of a micro-batch, or what else comes last before its backward pass.
    forward = [op for op in passes[-1] if op.phase == "forward" and op.source]
    calls = [op.source for op in reversed(forward) if not op.module] or [
        op.source for op in forward
    ]
    return saves(
        f"{count(number)} micro-batches before an update",
        tuple(dict.fromkeys((*calls[:1], *lines)))[:3],
        0.3 * overhead_s, (1 - 2 / number) * overhead_s, (1 - 1 / number) * overhead_s,
        f"each with {time_text(overhead_s / number)} of Python, dispatch and fixed cost beside "
        f"{time_text(kernels_s / number)} of kernels, so that "
        f"{percent(min(1.0, overhead_s / facts.step_s))} of the step do not depend on how large "
        "a micro-batch is",
    )  # fmt: skip


SMALL_MICRO_BATCHES = Cause(
    name="small_micro_batches",
    title="many small micro-batches make one step (gradient accumulation, larger micro-batch)",
    words=("gradient accumulation steps", "micro batch size", "gradient_accumulation_steps",
           "small batch GPU utilization"),
    find=_find,
    remedy="a larger micro-batch and fewer accumulation steps, as far as memory allows: the "
    "gradient is the same where no op looks at its whole batch (batch norm does)",
)  # fmt: skip
