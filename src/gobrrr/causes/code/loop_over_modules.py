"""Modules of a list that Python calls one after the other on inputs that are there: experts."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.source_text import lines_with
from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.fixes.patterns.dataflow import Flow, flow_of
from gobrrr.timeline.names import starred
from gobrrr.timeline.quantities import count, percent, time_text

# Fewer are no loop worth another form.
_FEWEST = 4


def _independent(places: list[int], at: int, facts: Facts, flow: Flow) -> bool:
    """Whether no op of an item of the list needs a result of another item, as a layer does.

    ``places``: of one op of each item; ``at``: which part of their modules' paths is the item. All
    ops in between count: a layer's projection of what is there for all layers is no expert.
    """
    prefix = facts.ops[places[0]].module.split(".")[:at]
    items: dict[int, str | None] = {}
    needs: dict[int, frozenset[str]] = {}
    for place in range(places[0], places[-1] + 1):
        parts = facts.ops[place].module.split(".")
        inside = len(parts) > at and parts[:at] == prefix and parts[at].isdigit()
        item = parts[at] if inside else None
        needed: set[str] = set()
        for maker in flow.made_from[place]:
            needed |= needs.get(maker, frozenset())
            made_by = items.get(maker)
            needed |= {made_by} if made_by is not None else set()
        items[place], needs[place] = item, frozenset(needed)
        if item is not None and needed - {item}:
            return False
    return True


def _weight(op: OpFact) -> tuple[object, ...]:
    """What is the same in ops that one batched op could stand for.

    Of a matrix product its second matrix, of a convolution all that it is given.
    """
    if "conv" in op.name:
        return op.call.form
    return next((shape for shape in reversed(op.shapes) if len(shape) >= 2), ())


def _siblings(facts: Facts, flow: Flow) -> dict[str, set[str]]:
    """Paths with stars of lists whose modules are independent, with the modules' own paths."""
    products: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for place, op in enumerate(facts.ops):
        if op.phase in ("forward", "other", "") and op.matrix_flops and "*" in starred(op.module):
            products[starred(op.module), op.name, op.source].setdefault(op.module, place)
    found: dict[str, set[str]] = defaultdict(set)
    for (path, _, _), first in products.items():
        for at, modules in _by_list(first):
            places = sorted(first[module] for module in modules)
            if len(places) < _FEWEST or len({_weight(facts.ops[place]) for place in places}) > 1:
                continue
            if _independent(places, at, facts, flow):
                found[path] |= set(modules)
    return found


def _by_list(modules: dict[str, int]) -> list[tuple[int, list[str]]]:
    """Modules that differ in one place of a list alone: those of one layer's experts.

    With which part of their paths that is.
    """
    lists: dict[tuple[int, str], list[str]] = defaultdict(list)
    for module in modules:
        parts = module.split(".")
        for i, part in enumerate(parts):
            if part.isdigit():
                lists[i, ".".join((*parts[:i], "*", *parts[i + 1 :]))].append(module)
    return [(at, found) for (at, _), found in lists.items()]


def _find(facts: Facts) -> Found | None:
    flow = flow_of(facts)
    found = {} if flow is None else _siblings(facts, flow)
    if not found:
        return None
    modules = set().union(*found.values())
    ops = [op for op in facts.ops if op.module in modules]
    calls = max(len(each) for each in found.values())
    most = max(found, key=lambda path: _host_s(ops, found[path]))
    # One op in place of one for each module.
    fewer = 1 - 1 / calls
    host_s = _host_s(ops, modules) * fewer
    below_s = sum(op.below_s or 0.0 for op in ops)
    return saves(
        f"{count(len(found[most]))} modules {most} are called one after the other, each on an "
        f"input that none of the others makes, with {count(len(ops))} ops a step",
        (*_loops(min(found[most]), ops)[:1], *_lines(ops)[:2]),
        0.5 * host_s, 0.8 * host_s + 0.2 * below_s, host_s + below_s,
        f"the way to them and their fixed cost take {time_text(_host_s(ops, modules))} "
        f"({percent(_host_s(ops, modules) / facts.step_s)} of the step), and kernels "
        f"{time_text(below_s)} more than at the ceilings",
    )  # fmt: skip


def _lines(ops: list[OpFact]) -> tuple[str, ...]:
    return lines_of([op for op in ops if op.phase != "backward"])


def _loops(module: str, ops: list[OpFact]) -> tuple[str, ...]:
    """The user's loops over the list that a module (``moe.experts.3.up``) is in."""
    named = [name for name, item in pairwise(module.split(".")) if item.isdigit()]
    name = next((name for name in reversed(named) if not name.isdigit()), "")
    if not name:
        return ()
    loop = re.compile(rf"\bfor\b.*\bin\b.*\b{re.escape(name)}\b")
    return lines_with(loop, (op.source for op in ops if op.source))


def _host_s(ops: list[OpFact], modules: set[str]) -> float:
    return sum(op.host_s + op.fixed_s for op in ops if op.module in modules)


LOOP_OVER_MODULES = Cause(
    name="loop_over_modules",
    title="experts (modules of a list) are called in a Python loop (batched or grouped GEMM)",
    words=("mixture of experts loop", "grouped GEMM", "torch._grouped_mm", "torch.bmm",
           "batch the experts", "torch.func.stack_module_state"),
    find=_find,
    remedy="the weights of all experts in one tensor and one batched product (torch.bmm, einsum), "
    "or tokens sorted by expert and a grouped GEMM (torch._grouped_mm)",
    verified_by="",
)  # fmt: skip
