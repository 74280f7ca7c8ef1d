"""What a training loop does by hand: an optimizer tensor by tensor, a graph gone through twice."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.fixes.fix import MEMORY, NUMERICS, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.fixes.patterns.dataflow import changes_argument, cost_s
from gobrrr.fixes.scripts import attribute
from gobrrr.observe.source_lines import user_line
from gobrrr.timeline.quantities import percent, time_text

# A loop over parameters runs each of its ops for at least so many of them.
_LEAST_TENSORS = 8
# Share of the dispatch and Python between ops that lists of tensors spare: low, expected, high.
# torch 2.13 on a Zen 4 core, an update of seven ops over 48 tensors: 0.7 to 0.9.
_SPARED = (0.5, 0.8, 0.95)


def update_loops(facts: Facts) -> dict[str, list[OpFact]]:
    """Ops after the last backward pass that one line runs for many tensors, by line."""
    if not facts.trains or not facts.in_order:
        return {}
    last = max((p for p, op in enumerate(facts.ops) if op.phase == "backward"), default=None)
    if last is None:
        return {}
    by_op: dict[tuple[str, str], list[OpFact]] = defaultdict(list)
    for op in facts.ops[last + 1 :]:
        if op.source and op.phase in ("optimizer", "other") and cost_s(op) > 0:
            by_op[op.source, op.name].append(op)
    found: dict[str, list[OpFact]] = defaultdict(list)
    for (source, _), ops in by_op.items():
        if len(ops) >= _LEAST_TENSORS:
            found[source] += ops
    return found


def _updated(facts: Facts, loops: Mapping[str, Sequence[OpFact]]) -> int:
    """How many parameters these loops change in place: tensors that the forward pass has read.

    0 where they are given new data instead, so that the record does not tell.
    """
    read = {
        spec.storage for op in facts.ops if op.phase == "forward" for spec in op.call.tensors
    } - {
        # Memory that the step takes comes back; that of a parameter is no other's.
        spec.storage
        for op in facts.ops
        for spec in op.call.outputs or ()
        if spec.storage not in {given.storage for given in op.call.tensors}
    }  # fmt: skip
    changed = {
        (spec.storage, spec.offset)
        for ops in loops.values()
        for op in ops
        if changes_argument(op.call)
        for spec in op.call.tensors[:1]
    }
    return sum(storage is not None and storage in read for storage, _ in changed)


def _consider_optimizer(facts: Facts) -> Considered:
    if not facts.trains:
        return RuledOut("no optimizer runs in this step")
    if facts.optimizers and all(o.of_torch for o in facts.optimizers):
        return RuledOut("the optimizer is torch's own")
    loops = update_loops(facts)
    if not loops:
        return RuledOut("no parameters are updated in a loop of the program's own")
    overhead_s = sum(op.host_s + op.fixed_s for ops in loops.values() for op in ops)
    count = sum(map(len, loops.values()))
    updated = _updated(facts, loops)
    what = f"{updated} parameters" if updated else "tensors"
    savings = [share * overhead_s for share in _SPARED]
    spent = {source: sum(map(cost_s, ops)) for source, ops in loops.items()}
    sources = sorted(spent, key=lambda line: -spent[line])
    return prospect_or_not(
        facts, savings[0], savings[1], savings[2],
        f"{count} ops update {what} one by one, with "
        f"{time_text(overhead_s)} of Python and dispatch; torch._foreach_* updates all "
        "tensors in one op, as torch.optim does for most optimizers (fused=True, foreach=True)",
        tuple(sources[:3]),
    )  # fmt: skip


@contextmanager
def watching_kept_graphs() -> Iterator[list[str]]:
    """Lines that call ``backward(retain_graph=True)`` without asking for a graph of gradients."""
    import torch

    original = torch.autograd.backward
    lines: list[str] = []

    def backward(tensors: Any, grad_tensors: Any = None, retain_graph: Any = None,
                 create_graph: bool = False, *args: Any, **kwargs: Any) -> Any:  # fmt: skip
        if retain_graph and not create_graph:
            line = user_line(sys._getframe(1))
            if line and line not in lines:
                lines.append(line)
        return original(tensors, grad_tensors, retain_graph, create_graph, *args, **kwargs)

    with attribute(torch.autograd, "backward", backward):
        yield lines


def _consider_backward(facts: Facts) -> Considered:
    if not facts.trains:
        return RuledOut("there is no backward pass")
    if not facts.graphs_kept:
        return RuledOut("no graph is kept for another backward pass")
    if not facts.in_order:
        return RuledOut("the order of the step's ops is unknown")
    forward = [op for op in facts.ops if op.phase == "forward"]
    backward = [op for op in facts.ops if op.phase == "backward"]
    flops = [sum(op.matrix_flops or 0.0 for op in ops) for ops in (forward, backward)]
    # Two products for each one of the forward pass, but for the first, whose input is data.
    first = next((op.matrix_flops or 0.0 for op in forward if op.matrix_flops), 0.0)
    own = 2.0 * flops[0] - first
    backward_s = sum(map(cost_s, backward))
    again = min(max(1.0 - own / flops[1], 0.0), 0.9) if flops[1] > 0 else 0.5
    saved_s = again * backward_s
    return prospect_or_not(
        facts, 0.6 * saved_s, saved_s, 1.2 * saved_s,
        "the graph is kept (retain_graph=True) and traversed again: the backward pass takes "
        f"{time_text(backward_s)}, {percent(again)} of it repeated; one backward pass of the sum "
        "of the losses traverses it once",
        facts.graphs_kept[:3],
    )  # fmt: skip


OPTIMIZER_BY_HAND = Fix(
    "optimizer_by_hand", "Update all tensors at once in your own optimizer",
    ("overhead.python", "overhead.dispatch", "overhead.launch", "overhead.kernel_fixed_cost",
     "overhead.kernel_gap"),
    (NUMERICS, MEMORY), _consider_optimizer,
    "torch._foreach_mul_(momenta, beta)  # instead of: for m in momenta: m.mul_(beta)",
)  # fmt: skip
ONE_BACKWARD = Fix(
    "one_backward", "One backward pass for the sum of the losses",
    ("compute.matrix.roof", "compute.matrix.below", "memory.device.roof", "overhead.dispatch"),
    (NUMERICS, MEMORY), _consider_backward,
    "(first_loss + second_loss).backward()  # instead of two, one with retain_graph=True",
)  # fmt: skip
