"""An op that Python runs for one slice after the other, where one op over all slices would do."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gobrrr.attribution.attributed import READ_OF_ONE_VALUE
from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.fixes.fix import MEMORY, NUMERICS, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.fixes.patterns.dataflow import Flow, cost_s, flow_of, numbers_in, only_for_the_host
from gobrrr.fixes.patterns.recurrence import places_of_cells
from gobrrr.fixes.patterns.training_by_hand import update_loops
from gobrrr.timeline.names import FROM, starred
from gobrrr.timeline.quantities import time_text

# A loop is a line that runs the same op at least this often in one step.
_LEAST_REPEATS = 8
# Loops of a data loader over its items.
_LOADING = (" in __getitem__", " in __iter__", " in __next__", " in fetch", " in collate")
_LINE_NUMBER = re.compile(r":(\d+) ")
# Of a loop over samples: ops in each turn, and turns.
_OPS_OF_A_TURN, _FEWEST_SLICES = 3, 16
_GATHERS = ("aten::stack", "aten::cat")
# An op over all slices at once runs nearer its roof than one slice does.
_TOGETHER = 0.7


@dataclass(frozen=True)
class _Loop:
    """Calls of one op, by their places, that ``batches`` calls could do."""

    source: str
    places: tuple[int, ...]
    count: float
    batches: int


def _loops(facts: Facts, flow: Flow | None) -> list[_Loop]:
    """Ops that one line repeats in one module, or in siblings of one list, and in one phase.

    Views are none: they take Python's time and nothing of the device's, and go with the ops that
    read them.
    """
    found: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    others = _advice_of_its_own(facts, flow)
    for place, op in enumerate(facts.ops):
        if place in others or _is_view(facts, flow, place) or not _in_forward(op):
            continue
        if op.source and op.time_s + op.host_s > 0 and not _loads(op.source):
            found[op.source, op.name, starred(op.module), str(op.shapes)].append(place)
    loops = []
    often = {key: ps for key, ps in found.items() if _calls(facts, ps) >= _LEAST_REPEATS}
    from_host = _from_host(facts) if often and flow is not None else {}
    for (source, _, _, _), places in often.items():
        together = [places] if flow is None else _batches(places, flow, facts, from_host)
        together = [b for b in together if _calls(facts, b) >= _LEAST_REPEATS]
        if together:
            kept = tuple(place for batch in together for place in batch)
            loops.append(_Loop(source, kept, _calls(facts, kept), len(together)))
    return loops


def repeated_products(facts: Facts) -> list[tuple[int, ...]]:
    """Places of the matrix products that one module repeats on what was there before the first.

    Nothing that a later one is given came from the host meanwhile, which may have read what an
    earlier one made; and they are one forward pass, with no backward pass in between.
    """
    flow = flow_of(facts)
    if flow is None:
        return []
    from_host = _from_host(facts)
    by_module: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for loop in _loops(facts, flow):
        for place in loop.places:
            op = facts.ops[place]
            if op.matrix_flops and op.module:
                by_module[loop.source, op.name, op.module].append(place)
    return [
        tuple(places)
        for places in by_module.values()
        if len(places) >= _LEAST_REPEATS
        and len(_batches(places, flow, facts, from_host)) == 1
        and all(from_host.get(place, -1) <= places[0] for place in places)
        and not any(op.phase == "backward" for op in facts.ops[places[0] : places[-1]])
    ]


@dataclass(frozen=True, slots=True)
class TurnsOfLines:
    """Lines of a function that run the same ops once for each of so many slices.

    A branch that is not taken in each turn runs fewer of its ops.
    """

    lines: tuple[str, ...]
    turns: int
    places: tuple[int, ...]


def loops_over_slices(facts: Facts) -> list[TurnsOfLines]:
    """Loops whose turns need nothing of each other, and which are not those of a list of modules.

    The longest first. They run several ops a turn: one line that does one thing for each of a few
    tensors is no loop over samples.
    """
    flow = flow_of(facts)
    if flow is None:
        return []
    by_function: dict[str, list[_Loop]] = defaultdict(list)
    for loop in _loops(facts, flow):
        modules = {facts.ops[place].module for place in loop.places}
        if loop.batches == 1 and len(modules) == 1 and FROM not in loop.source:
            by_function[_LINE_NUMBER.sub(" ", loop.source)].append(loop)
    found = []
    for loops in by_function.values():
        turns, often = Counter(round(loop.count) for loop in loops).most_common(1)[0]
        if often < _OPS_OF_A_TURN or turns < _FEWEST_SLICES:
            continue
        within = [loop for loop in loops if loop.count <= turns]
        if not any(_walks_slices(facts, loop) for loop in within):
            # A loop over tensors of a model's is another cause.
            continue
        lines = sorted({loop.source for loop in within}, key=_number_of)
        places = sorted(place for loop in within for place in loop.places)
        found.append(TurnsOfLines(tuple(lines), turns, tuple(places)))
    return sorted(found, key=lambda each: -len(each.places))


def _walks_slices(facts: Facts, loop: _Loop) -> bool:
    """Whether its op reads one place after the other of the same memory."""
    given = [next(iter(facts.ops[place].call.tensors), None) for place in loop.places]
    known = [spec for spec in given if spec is not None and spec.storage is not None]
    one = len({spec.storage for spec in known}) == 1
    return one and 2 * len({spec.offset for spec in known}) > len(loop.places)


def _number_of(line: str) -> int:
    number = _LINE_NUMBER.search(line)
    return int(number[1]) if number else 0


def _advice_of_its_own(facts: Facts, flow: Flow | None) -> Collection[int]:
    """What is constant, only printed, of a recurrent cell, or updates parameters."""
    updates = update_loops(facts)
    others = {place for place, op in enumerate(facts.ops) if op.source in updates}
    if flow is not None:
        others |= flow.constant | only_for_the_host(facts, flow) | places_of_cells(facts)
    return others


def _in_forward(op: OpFact) -> bool:
    return op.phase in ("forward", "other", "")


def _is_view(facts: Facts, flow: Flow | None, place: int) -> bool:
    return facts.ops[place].op_class == "view" or (flow is not None and place in flow.views)


def _loads(source: str) -> bool:
    return any(line.endswith(_LOADING) for line in source.split(FROM))


def _calls(facts: Facts, places: Iterable[int]) -> float:
    return sum(facts.ops[place].count for place in places)


def _batches(
    places: Sequence[int], flow: Flow, facts: Facts, from_host: Mapping[int, int]
) -> list[list[int]]:
    """These ops by how many of them each one needs the results of, one after the other.

    Those of one number need nothing of each other. In a recurrence each has a number of its own.
    A result that the host read may be in what it gave to a later op.
    """
    members = set(places)
    before: dict[int, int] = {}
    found: dict[int, list[int]] = defaultdict(list)
    reads = _reads_between(facts, flow, places)
    read = 0
    for place in range(places[0], places[-1] + 1):
        makers = [m for m in reads.get(place, ()) if m in before]
        read = max([read, *(before[m] + (m in members) for m in makers)])
        needed = [before[m] + (m in members) for m in flow.made_from[place] if m in before]
        before[place] = max(needed, default=0)
        if from_host.get(place, -1) > places[0]:
            before[place] = max(before[place], read)
        if place in members:
            found[before[place]].append(place)
    return list(found.values())


def _reads_between(facts: Facts, flow: Flow, places: Sequence[int]) -> dict[int, list[int]]:
    """By the op before which it happens: which ops' results the host reads within the loop."""
    found: dict[int, list[int]] = defaultdict(list)
    for before, maker in facts.host_reads:
        if places[0] < before <= places[-1] and maker is not None:
            found[before].append(maker)
    for place in range(places[0], places[-1]):
        if facts.ops[place].name == READ_OF_ONE_VALUE:
            found[place + 1] += flow.made_from[place]
    return found


def _from_host(facts: Facts) -> dict[int, int]:
    """Ops that may get from the host what it has read within the step, and since when that is so.

    Memory that no op has made, by the op that was first to read it; a view at a place that
    the host has told, which all that read its memory may read.
    """
    since: dict[int | None, int] = dict.fromkeys(facts.fixed_storages, -1)
    told = _told_numbers(facts)
    found: dict[int, int] = {}
    for place, op in enumerate(facts.ops):
        given = {spec.storage for spec in op.call.tensors}
        made = {spec.storage for spec in op.call.outputs or ()}
        for storage in given:
            # That of ``torch.tensor`` is new, whatever had its number before.
            new = op.name == "aten::lift_fresh" or storage not in since
            if new or (place in told and storage in made):
                since[storage] = place
        found[place] = place if place in told else max(map(since.__getitem__, given), default=-1)
        since |= dict.fromkeys(made - given, -1)
    return found


def _told_numbers(facts: Facts) -> frozenset[int]:
    """Ops with a number that is another from turn to turn of a line, and not as a loop counts."""
    turns: dict[tuple[object, ...], dict[int, list[float]]] = defaultdict(dict)
    for place, op in enumerate(facts.ops):
        if numbers := list(numbers_in(op.call.args)):
            # One turn may run an op several times: views to a matrix and back again.
            ranks = tuple(map(len, op.shapes))
            turns[op.name, op.source, op.module, ranks, len(numbers)][place] = numbers
    found: set[int] = set()
    for group in turns.values():
        if not all(_counts(column) for column in zip(*group.values(), strict=False)):
            found.update(group)
    return frozenset(found)


def _counts(numbers: Sequence[float]) -> bool:
    """Whether they are one number, or whole ones at one distance from each other."""
    if len(set(numbers)) <= 1:
        return True
    steps = {later - earlier for earlier, later in pairwise(numbers)}
    return len(steps) == 1 and all(isinstance(number, int) for number in numbers)


def _shares_of_lines(
    facts: Facts, flow: Flow | None, loops: Sequence[_Loop]
) -> dict[str, tuple[float, float]]:
    """Of each line with loops: its overhead on the host, and the share of its calls in loops.

    Python's time between ops is charged to whichever comes next, which need not be what it was
    for: a line's is divided evenly among its calls. A line with views alone goes with the call
    after them.
    """
    called = {op.source for place, op in enumerate(facts.ops)
              if op.source and not _is_view(facts, flow, place)}  # fmt: skip
    host_s: dict[str, float] = defaultdict(float)
    calls: dict[str, float] = defaultdict(float)
    of_views: dict[str, float] = defaultdict(float)
    for place, op in enumerate(facts.ops):
        if not _in_forward(op):
            continue
        if op.source not in called and _is_view(facts, flow, place):
            of_views[op.source] += op.host_s
            continue
        host_s[op.source] += op.host_s
        if not _is_view(facts, flow, place):
            calls[op.source] += op.count
            if flow is not None:
                host_s[op.source] += sum(of_views.values())
            of_views.clear()
    looped: dict[str, float] = defaultdict(float)
    for loop in loops:
        looped[loop.source] += loop.count
    return {line: (host_s[line], looped[line] / calls[line]) for line in looped}


def _gatherers(facts: Facts, flow: Flow | None, loops: Sequence[_Loop]) -> list[OpFact]:
    """Ops that only put together what the loops made slice by slice; one op needs none of them."""
    if flow is None:
        return []
    looped = {place for loop in loops for place in loop.places}
    return [
        op
        for place, op in enumerate(facts.ops)
        if op.name in _GATHERS
        and op.source
        and sum(maker in looped for maker in flow.made_from[place]) >= _LEAST_REPEATS
    ]


def _records(facts: Facts, loop: _Loop) -> bool:
    return any(facts.ops[place].nodes != 0 for place in loop.places)


def _consider(facts: Facts) -> Considered:
    flow = flow_of(facts)
    loops = _loops(facts, flow)
    if not loops:
        return RuledOut("no line repeats the same op within a step on data that is there already")
    saved: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    batches: dict[str, float] = defaultdict(float)
    kernels_s = 0.0
    for loop in loops:
        ops = [facts.ops[place] for place in loop.places]
        kernel_s = sum(op.kernel_s for op in ops)
        roof_s = sum(op.roof_s if op.roof_s is not None else op.kernel_s for op in ops)
        fixed_s = sum(op.fixed_s for op in ops) * (1 - loop.batches / loop.count)
        saved[loop.source] += fixed_s + max(kernel_s - roof_s / _TOGETHER, 0.0)
        counts[loop.source] = max(counts[loop.source], loop.count)
        batches[loop.source] += loop.batches
        kernels_s += kernel_s
    for source, (host_s, share) in _shares_of_lines(facts, flow, loops).items():
        looped = sum(loop.count for loop in loops if loop.source == source)
        saved[source] += host_s * share * (1 - batches[source] / looped)
    for op in _gatherers(facts, flow, loops):
        saved[op.source] += cost_s(op)
    sources = sorted(saved, key=lambda line: -saved[line])
    # What a line waits for besides (a file, a lock) is no loop's fault.
    most_s = facts.leaf_s("overhead") - facts.leaf_s("overhead.data_loading") + kernels_s
    total_s = min(sum(saved.values()), most_s)
    if facts.trains:
        # What is done slice by slice is undone slice by slice, where gradients are recorded.
        undone = {loop.source for loop in loops if _records(facts, loop)}
        share = sum(saved[line] for line in undone) / (sum(saved.values()) or 1.0)
        total_s = min((1.0 + share) * total_s, 0.9 * facts.step_s)
    first = next(line for line in sources if counts[line])
    return prospect_or_not(
        facts, 0.5 * total_s, total_s, min(1.15 * total_s, 0.98 * facts.step_s),
        f"{first} runs the same op {counts[first]:.0f} times per step; one batched op is "
        f"dispatched once and has larger kernels: {time_text(total_s)} in {len(sources)} such "
        "line(s)",
        tuple(sources[:3]),
    )  # fmt: skip


VECTORISE_LOOP = Fix(
    "vectorise_loop", "One batched op instead of a Python loop",
    ("overhead.python", "overhead.dispatch", "overhead.launch", "overhead.kernel_fixed_cost",
     "overhead.kernel_gap"),
    (NUMERICS, MEMORY), _consider, "out = f(batch)  # instead of [f(row) for row in batch]",
)  # fmt: skip
