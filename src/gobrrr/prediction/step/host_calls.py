"""The operators of a costed step as its host sees them, and what it does beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gobrrr.prediction.step.compiled_host import entering
from gobrrr.prediction.step.costs import CostedOp, OpCost
from gobrrr.prediction.step.host_lane import ADDITION_S, PASS, HostCall, Launch
from gobrrr.timeline.data import Phase

# What begins with work of the host that no op stands for.
_OF_PASSES = (Phase.BACKWARD, Phase.OPTIMIZER)


def host_calls_of(ops: Sequence[CostedOp]) -> list[HostCall]:
    """Each operator as the host sees it; one object for all that are alike."""
    known: dict[tuple[OpCost, Phase, Launch, float], HostCall] = {}
    found = []
    for costed in ops:
        phase = costed.op.phase
        key = (costed.cost, phase, costed.launch, costed.before)
        call = known.get(key)
        if call is None:
            call = replace(costed.cost.host_call(phase), launch=costed.launch, before=costed.before)
            known[key] = call
        found.append(call)
    return found


def calls_of_step(ops: Sequence[CostedOp]) -> list[HostCall]:
    """All calls of a step: one for each operator, and on the host for each tensor of its lists.

    An operator begins but once, however often it is called.
    """
    calls: list[HostCall] = []
    for costed, call in zip(ops, host_calls_of(ops)):
        calls.append(call)
        if costed.cost.host_calls > 1:
            calls += [replace(call, before=0.0)] * (costed.cost.host_calls - 1)
    return calls


def begun(ops: Sequence[CostedOp]) -> list[CostedOp]:
    """The ops, with what the host does on a GPU before a backward pass and before an update.

    Each optimizer's step is an update, also where several follow each other. Gradients set to zero
    before the first one belong to it.
    """
    found = []
    last: Phase | None = None
    update = 0
    for op in ops:
        if op.op.collective is None:
            phase = op.op.phase
            if phase in _OF_PASSES and (phase is not last or 0 < update < op.op.update):
                op = beginning(op)
            last, update = phase, op.op.update
        found.append(op)
    return found


def beginning(op: CostedOp) -> CostedOp:
    """The same op as the first of a backward pass or of an update."""
    return replace(op, before=op.before + PASS) if op.cost.weighted else op


def entered(ops: Sequence[CostedOp], parameters: int) -> list[CostedOp]:
    """The ops of a compiled step, with what entering its passes costs the host.

    That was measured on one core, which is taken to be as fast as a host whose addition takes
    ``ADDITION_S``.
    """
    return entered_at(ops, dict.fromkeys(_entries(ops), parameters))


def entered_at(ops: Sequence[CostedOp], entries: Mapping[int, int]) -> list[CostedOp]:
    """The same, of code that is entered at these positions, with so many trained tensors each."""
    found = list(ops)
    trains = any(op.op.phase is Phase.BACKWARD for op in ops)
    for place, parameters in entries.items():
        op = found[place]
        cost = entering(parameters=parameters, trains=trains, records=trains)
        entry_s = cost.forward_s if op.op.phase is Phase.FORWARD else cost.backward_s
        found[place] = replace(op, before=op.before + entry_s / ADDITION_S)
    return found


def _entries(ops: Sequence[CostedOp]) -> Iterator[int]:
    """Where compiled passes begin: each backward pass, and what runs modules before it.

    What follows the last backward pass (clipping, an update written out) is no pass of the model.
    """
    forward: int | None = None
    entered_before = in_module = False
    last: Phase | None = None
    for place, op in enumerate(ops):
        phase = op.op.phase
        if phase is Phase.FORWARD:
            forward = place if forward is None else forward
            in_module = in_module or bool(op.op.module)
        elif phase is Phase.BACKWARD and phase is not last:
            if forward is not None and (in_module or not entered_before):
                yield forward
            yield place
            entered_before, forward, in_module = True, None, False
        last = phase
    if forward is not None and not entered_before:
        yield forward
