"""Work that need not be done at each step: results nobody reads, constants, sorting all for few."""

from __future__ import annotations

from math import prod
from statistics import median

from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.fixes.device_constants import constant, unmeasured
from gobrrr.fixes.fix import MEMORY, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.fixes.patterns.dataflow import Flow, cost_s, flow_of
from gobrrr.fixes.patterns.side_effects import acts_besides
from gobrrr.timeline.quantities import percent, si, time_text
from gobrrr.work.traffic import is_inplace

_UNKNOWN = RuledOut("the order of the step's ops is unknown")
# Share of what is sorted that is read at most, for the rest to be called sorted for nothing.
_MOST_READ = 0.25


def unread_ops(facts: Facts) -> list[OpFact] | None:
    """The ops whose results neither the step's result nor another op reads; ``None``: unknown.

    What the backward pass and the optimizer compute counts as read, whoever reads it.
    """
    flow = flow_of(facts)
    if facts.returned is None or flow is None:
        return None
    kept = [place for place, _ in facts.returned]
    kept += flow.writes_outside
    kept += [
        place
        for place, op in enumerate(facts.ops)
        if op.phase in ("backward", "optimizer") or acts_besides(op.call)
    ]
    read = flow.reaching(kept) | flow.views
    return [op for place, op in enumerate(facts.ops) if place not in read and op.time_s > 0]


def _consider_unread(facts: Facts) -> Considered:
    unread = unread_ops(facts)
    if unread is None:
        return RuledOut("what the step returns is unknown: give a function or a workload")
    if not unread:
        return RuledOut("every result is read")
    saved_s = sum(map(cost_s, unread))
    reader = "the backward pass" if facts.trains else "another op"
    return prospect_or_not(
        facts, 0.8 * saved_s, saved_s, 1.05 * saved_s,
        f"{len(unread)} ops compute results that neither {reader} nor the step's output uses: "
        f"{time_text(saved_s)}",
        lines_of(unread),
    )  # fmt: skip


def constant_ops(facts: Facts) -> list[OpFact] | None:
    """The ops whose result is the same at every step; ``None`` where the flow is unknown."""
    flow = flow_of(facts)
    if flow is None:
        return None
    return [
        op
        for place, op in enumerate(facts.ops)
        if place in flow.constant
        and op.time_s > 0
        and not _begins_backward(op)
        and not _is_filled(place, flow, facts)
    ]


def _is_filled(place: int, flow: Flow, facts: Facts) -> bool:
    """Whether data of the step go into its result later: kept, it would have the last step's."""
    return any(
        reader not in flow.constant
        and is_inplace(facts.ops[reader].call)
        and next(iter(facts.ops[reader].call.tensors)).storage == spec.storage
        for reader, spec in flow.reads[place]
    )


def _begins_backward(op: OpFact) -> bool:
    """Whether it may be the 1 that ``loss.backward()`` begins with, which no program makes."""
    return op.name == "aten::ones_like" and bool(op.shapes) and not op.shapes[0]


def _consider_constants(facts: Facts) -> Considered:
    constant = constant_ops(facts)
    if constant is None:
        return _UNKNOWN
    if not constant and not any(op.varies is not None for op in facts.ops):
        return RuledOut(
            "one step was recorded (long ones are recorded once): whether ops have the same "
            "numbers at each step is unknown"
        )
    if not constant:
        return RuledOut(
            "no op computes from constants or unchanging weights alone; whether other tensors that "
            "the step gets are the same each time is unknown"
        )
    # What Python did before an op is the op's own only as far as it is what every op takes.
    usual_s = median(op.host_s for op in facts.ops)
    saved_s = sum(op.time_s + min(op.host_s, usual_s) for op in constant)
    names = ", ".join(list(dict.fromkeys(op.name.removeprefix("aten::") for op in constant))[:4])
    what = "constants and weights" if facts.fixed_storages else "constants"
    return prospect_or_not(
        facts, 0.7 * saved_s, saved_s, 1.05 * saved_s,
        f"{len(constant)} ops ({names}) depend only on {what}, so each step recomputes the same "
        f"values: {time_text(saved_s)}; compute them once and keep them",
        lines_of(constant),
    )  # fmt: skip


def _consider_topk(facts: Facts) -> Considered:
    sorts = facts.named("aten::sort")
    if not sorts:
        return RuledOut("nothing is sorted")
    flow = flow_of(facts)
    if flow is None or facts.returned is None:
        return RuledOut(
            "what reads the sorted values after the step is unknown: give a function or a workload"
        )
    wasteful: list[OpFact] = []
    shares: list[float] = []
    for place, op in enumerate(facts.ops):
        if op.name != "aten::sort" or not op.shapes:
            continue
        read = [spec.unique_elements for _, spec in flow.reads[place]]
        read += [spec.unique_elements for maker, spec in facts.returned if maker == place]
        share = max(read, default=0) / max(prod(op.shapes[0]), 1)
        if read and share <= _MOST_READ:
            wasteful.append(op)
            shares.append(share)
    if not wasteful:
        return RuledOut("all sorted values are read")
    now_s = sum(map(cost_s, wasteful))
    left = constant("top_k.left", facts)
    low_s, expected_s, high_s = (now_s * (1.0 - share) for share in left.values)
    elements = max(prod(op.shapes[0]) for op in wasteful)
    return prospect_or_not(
        facts, low_s, expected_s, high_s,
        f"{si(elements, 'elements')} are sorted, but only {percent(max(shares), 2)} of them are "
        f"read: {time_text(now_s)}; topk selects those without sorting the others"
        + unmeasured(left),
        lines_of(wasteful),
    )  # fmt: skip


_LEAVES = ("compute.vector.roof", "compute.vector.below", "memory.device.roof",
           "memory.device.below", "overhead.dispatch")  # fmt: skip
UNREAD_RESULTS = Fix(
    "unread_results", "Drop results that nothing reads", _LEAVES, (MEMORY,), _consider_unread,
    "logits = model.head(features)  # and not the other head",
)  # fmt: skip
CONSTANTS_EACH_STEP = Fix(
    "constants_each_step", "Compute constants once, not in each step", _LEAVES, (MEMORY,),
    _consider_constants, 'self.register_buffer("table", table, persistent=False)  # in __init__',
)  # fmt: skip
TOPK = Fix(
    "topk", "topk instead of a full sort", _LEAVES, (), _consider_topk,
    "values, places = scores.topk(k, dim=-1)",
)  # fmt: skip
