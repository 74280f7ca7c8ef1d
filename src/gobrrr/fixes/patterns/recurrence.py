"""A recurrent cell called step by step from Python, where a layer over the sequence does it all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.compilation.compiled_calls import host_scale
from gobrrr.fixes.compilation.compiled_part import in_recurrent_layer
from gobrrr.fixes.device_constants import constant, unmeasured
from gobrrr.fixes.fix import (
    MEMORY,
    NUMERICS,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.inference_mode import NODE_S
from gobrrr.fixes.patterns.dataflow import Flow, cost_s, flow_of
from gobrrr.prediction.step.compiled_host import DISPATCH_S
from gobrrr.timeline.quantities import time_text

_LEAST_STEPS = 8
_FUSED = {"aten::_thnn_fused_lstm_cell": "LSTM", "aten::_thnn_fused_gru_cell": "GRU"}
_SIGMOID, _TANH = ("aten::sigmoid", "aten::sigmoid_"), ("aten::tanh", "aten::tanh_")
_GATES = (*_SIGMOID, *_TANH, *_FUSED)
# Elements of sigmoids for each element of tanh: three gates and two for torch's LSTM, two and one
# for its GRU, and none for its RNN.
_LAYERS = {(3, 2): "LSTM", (2, 1): "GRU", (0, 1): "RNN"}
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::linear", "aten::mkldnn_linear")
# What is between the products and the gates of torch's cells, however they are written.
_ARITHMETIC, _COPIES = (
    frozenset(f"aten::{name}{inplace}" for name in names for inplace in ("", "_"))
    for names in (
        ("add", "sub", "rsub", "mul", "neg", "lerp", "addcmul"),
        ("copy", "clone", "cat", "stack", "_to_copy"),
    )
)
# A training step's share of the forward pass, gone back through.
_WITH_BACKWARD = 2.5


@dataclass(frozen=True)
class Cell:
    """A recurrent cell in a loop: its kind of layer, its ops by place, how often it is called."""

    layer: str
    places: tuple[int, ...]
    steps: int


@dataclass(frozen=True)
class _Chain:
    """One gate, each time computed from what it gave the last time.

    Attributes:
        gates: its calls.
        turns: what each call is computed from since the one before; of the first nothing.
        on_path: those of them that need that call's result.
        state: those that are before a product: what the next call gets of the last one.
        products: how many products there are at most on the way from one call to the next.
    """

    gates: list[int]
    turns: list[frozenset[int]]
    on_path: frozenset[int]
    state: frozenset[int]
    products: int


def _chain(facts: Facts, flow: Flow, gates: Sequence[int]) -> _Chain:
    """The calls of a gate that need each other by products with one tensor, from the first one on.

    Layers of a network one after the other have weights of their own.
    """
    kept, turns = [gates[0]], [frozenset[int]()]
    on_path: set[int] = set()
    state: set[int] = set()
    made: set[int | None] = set()
    weights: set[int | None] | None = None
    products = 0
    apart: set[int] = set()
    for gate in gates[1:]:
        first = kept[-1]
        since = _since(flow, gate, first, apart)
        if first not in since:
            # Another gate of the same line, or a loop that begins anew.
            apart |= since
            continue
        turn = sorted(_since(flow, gate, first, set()))
        depth = {first: 0}
        read: set[int | None] = set()
        for place in turn[1:]:
            needed = [depth[maker] for maker in flow.made_from[place] if maker in depth]
            call = facts.ops[place].call
            made |= {spec.storage for spec in call.outputs or ()}
            if needed:
                depth[place] = max(needed) + (call.name in _PRODUCTS)
                if call.name in _PRODUCTS:
                    read |= {spec.storage for spec in call.tensors}
        weights = (read if weights is None else weights & read) - made
        if not weights:
            break
        products = max(products, depth[gate])
        on_path |= set(depth)
        state |= {place for place, passed in depth.items() if not passed}
        kept.append(gate)
        turns.append(frozenset(turn[1:]))
        apart = set()
    return _Chain(kept, turns, frozenset(on_path), frozenset(state), products)


def _since(flow: Flow, place: int, first: int, apart: set[int]) -> set[int]:
    """What an op is computed from since an earlier one, both included; ``apart`` is passed over."""
    found: set[int] = set()
    left = [place]
    while left:
        one = left.pop()
        if one >= first and one not in found and one not in apart:
            found.add(one)
            left += flow.made_from[one]
    return found


def _chains(facts: Facts, flow: Flow) -> list[_Chain]:
    by_line: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for place, op in enumerate(facts.ops):
        gate = op.name in _GATES and op.source and op.phase != "backward"
        # A layer over the sequence may be run as the ops of its cells.
        if gate and not in_recurrent_layer(facts, op):
            by_line[op.source, op.module, op.name].append(place)
    found = []
    for left in by_line.values():
        # A line may have several gates, and may be in several loops.
        while len(left) >= _LEAST_STEPS:
            chain = _chain(facts, flow, left)
            if len(chain.gates) < _LEAST_STEPS:
                break
            found.append(chain)
            members = set(chain.gates)
            left = [place for place in left if place not in members]
    return found


def cells_of(facts: Facts) -> list[Cell]:
    """The loops in which one call's state goes through products into the next one's gates."""
    flow = flow_of(facts)
    if flow is None:
        return []
    chains = _chains(facts, flow)
    # A second product on the way: what goes on is no state of a cell alone.
    others = {gate for chain in chains if chain.products != 1 for gate in chain.gates}
    cells = []
    for chain in chains:
        if chain.products != 1 or not _is_of_a_cell(facts, chain):
            continue
        layer = _layer(facts, chain)
        if layer is not None and others.isdisjoint(chain.turns[-1]):
            cells.append(Cell(layer, _places(facts, chain), len(chain.gates)))
    return cells


def _places(facts: Facts, chain: _Chain) -> tuple[int, ...]:
    """The ops of these turns' lines, views among them, from the first turn's to the last one's."""
    ops = facts.ops
    lines = {(ops[p].source, ops[p].module) for p in chain.turns[-1]}
    begin, end = chain.gates[0], chain.gates[-1]
    # The first turn begins before its gate, and the last one ends after it.
    length = (end - begin) // (len(chain.gates) - 1)
    return tuple(
        place
        for place in range(max(begin - length, 0), min(end + length, len(ops)))
        if ops[place].phase != "backward" and (ops[place].source, ops[place].module) in lines
    )


def _is_of_a_cell(facts: Facts, chain: _Chain) -> bool:
    """Whether nothing is on the way from one gate to the next that torch's cells do not have."""
    allowed = {*_ARITHMETIC, *_COPIES, *_GATES, *_PRODUCTS}
    return all(facts.ops[place].name in allowed for place in chain.on_path)


def _layer(facts: Facts, chain: _Chain) -> str | None:
    """Which of torch's layers has these gates; ``None`` if none does."""
    turn = chain.turns[-1]
    ops = [facts.ops[place] for place in turn]
    fused = [op for op in ops if op.name in _FUSED]
    if fused:
        return _FUSED[fused[0].name]
    sigmoid, tanh = (
        sum(prod(op.shapes[0]) for op in ops if op.name in names and op.shapes)
        for names in (_SIGMOID, _TANH)
    )
    for (of_sigmoid, of_tanh), layer in _LAYERS.items():
        if tanh and sigmoid * of_tanh == tanh * of_sigmoid:
            # The state of torch's RNN is what tanh gives.
            state = {facts.ops[place].name for place in turn & chain.state}
            return None if layer == "RNN" and state & _ARITHMETIC else layer
    return None


def places_of_cells(facts: Facts) -> frozenset[int]:
    """The ops of loops that recurrent layers would do in less time, by their places."""
    cells, now_s, after_s = _found(facts)
    return frozenset(p for cell in cells for p in cell.places) if now_s > after_s else frozenset()


def _found(facts: Facts) -> tuple[list[Cell], float, float]:
    """The cells, each op in one of them: their seconds now, and those of layers."""
    spent = [
        (sum(cost_s(facts.ops[place]) for place in cell.places), cell) for cell in cells_of(facts)
    ]
    kept: list[Cell] = []
    taken: set[int] = set()
    now_s = after_s = 0.0
    for _, cell in sorted(spent, key=lambda pair: -pair[0]):
        own = tuple(place for place in cell.places if place not in taken)
        # Another gate of a cell; of another loop over the same lines nearly all is its own.
        if len(own) <= len(cell.places) / 2:
            continue
        taken |= set(own)
        kept.append(replace(cell, places=own))
        now_s += sum(cost_s(facts.ops[place]) for place in own)
        after_s += _of_layer_s(facts, kept[-1])
    factor = _WITH_BACKWARD if facts.trains else 1.0
    return kept, factor * now_s, factor * after_s


def _of_layer_s(facts: Facts, cell: Cell) -> float:
    """Seconds of a layer's forward pass over the sequence.

    The LSTM is one call of a library, as all are on a GPU; elsewhere a layer runs the ops of its
    cells from C++, each with its kernel, its dispatch and its node of autograd.
    """
    ops = [facts.ops[place] for place in cell.places]
    scale = host_scale(facts)
    if facts.on_gpu or cell.layer == "LSTM":
        each_s = constant("recurrent.step_s", facts).expected * (1.0 if facts.on_gpu else scale)
        return sum(op.kernel_s for op in ops if op.matrix_flops) + each_s * cell.steps
    nodes_s = scale * NODE_S[0]
    return sum(
        op.time_s + min(op.host_s, scale * DISPATCH_S + nodes_s * (op.nodes or 0))
        for op in ops
        if op.time_s > 0
    )


def _consider(facts: Facts) -> Considered:
    if flow_of(facts) is None:
        return RuledOut("the order of the step's ops is unknown")
    cells, now_s, after_s = _found(facts)
    if not cells:
        return RuledOut("no recurrent cell is called one time step at a time")
    spent: dict[str, float] = defaultdict(float)
    for place in (place for cell in cells for place in cell.places):
        spent[facts.ops[place].source] += cost_s(facts.ops[place])
    sources = sorted(spent, key=lambda line: -spent[line])
    layers = " and ".join(dict.fromkeys(f"nn.{cell.layer}" for cell in cells))
    steps = sum(cell.steps for cell in cells)
    saved_s = min(now_s - after_s, 0.98 * facts.step_s)
    return prospect_or_not(
        facts, 0.4 * saved_s, saved_s, min(now_s, 0.99 * facts.step_s),
        f"{sources[0]} runs a recurrent cell {steps} times from Python: {time_text(now_s)}; one "
        f"layer over the whole sequence (its gates are those of {layers}) takes about "
        f"{time_text(after_s)}{unmeasured(constant('recurrent.step_s', facts))}",
        tuple(sources[:3]),
    )  # fmt: skip


FUSED_RNN = Fix(
    "fused_rnn", "One recurrent layer instead of a cell in a loop",
    ("overhead.python", "overhead.dispatch", "overhead.launch", "overhead.kernel_fixed_cost",
     "overhead.kernel_gap"),
    (NUMERICS, MEMORY), _consider,
    "outputs, state = nn.LSTM(inputs, cells, batch_first=True)(x)",
)  # fmt: skip
