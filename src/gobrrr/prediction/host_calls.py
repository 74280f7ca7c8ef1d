"""The operators of a costed step as its host sees them, and what it does beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gobrrr.models.compiled_host import entering_s
from gobrrr.models.host_lane import ADDITION_S, PASS, HostCall, Launch
from gobrrr.prediction.costs import CostedOp, OpCost
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


def repeated(call: HostCall, times: int) -> list[HostCall]:
    """An operator that the host calls so often for its lists of tensors, which begins but once."""
    return [call, *[replace(call, before=0.0)] * (times - 1)] if times > 1 else [call]


def begun(ops: Sequence[CostedOp]) -> list[CostedOp]:
    """The ops, with what the host does on a GPU before a backward pass and before an update."""
    found = []
    last: Phase | None = None
    for op in ops:
        if op.op.collective is None:
            phase = op.op.phase
            if phase is not last and phase in _OF_PASSES:
                op = beginning(op)
            last = phase
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
    found = list(ops)
    places = {op.op.phase: place for place, op in reversed(list(enumerate(ops)))}
    trains = Phase.BACKWARD in places
    each_s = entering_s(parameters=parameters, trains=trains)
    for phase, seconds in zip((Phase.FORWARD, Phase.BACKWARD), each_s):
        if phase in places:
            place = places[phase]
            found[place] = replace(found[place], before=found[place].before + seconds / ADDITION_S)
    return found
