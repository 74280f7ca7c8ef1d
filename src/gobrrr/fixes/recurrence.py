"""A recurrent cell called step by step from Python, where a layer over the sequence does it all."""

from __future__ import annotations

from collections import defaultdict

from gobrrr.fixes.compiled_part import RECURRENT_LAYERS
from gobrrr.fixes.dataflow import cost_s, flow_of
from gobrrr.fixes.facts import Facts, OpFact
from gobrrr.fixes.fix import MEMORY, NUMERICS, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.timeline.quantities import time_text

_LEAST_STEPS = 8
_GATES = ("aten::sigmoid", "aten::sigmoid_", "aten::tanh", "aten::tanh_",
          "aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell")  # fmt: skip
# What a step of a layer costs beside its products. torch 2.13 on a Zen 4 core, 20 inputs and 44
# cells, a batch of 6: oneDNN's LSTM (no gradients) 3 us; layers written in C++ 25 us.
_LIBRARY_S, _NATIVE_S = 5e-6, 25e-6


def _consider(facts: Facts) -> Considered:
    flow = flow_of(facts)
    if flow is None:
        return RuledOut("the order of the step's ops is unknown")
    by_line: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, op in enumerate(facts.ops):
        if op.name in _GATES and op.source and op.phase != "backward":
            by_line[op.source, op.module].append(place)
    best: tuple[float, float, int, str] | None = None
    for (source, module), gates in by_line.items():
        steps = _recurring(facts, gates)
        if steps is None or gates[0] not in flow.reaching([gates[-1]]):
            continue
        ops = [op for op in facts.ops if (op.source, op.module) == (source, module)
               and op.phase != "backward"]  # fmt: skip
        now_s = sum(map(cost_s, ops))
        products = [op for op in ops if op.matrix_flops]
        products_s = sum(op.kernel_s for op in products)
        # Layers of a network one after the other have weights of their own.
        weights = {s.storage for op in products for s in op.call.tensors} & facts.fixed_storages
        if (
            not products
            # Already what is advised; a module that stands alone is called by its class.
            or module.rpartition(".")[2] in RECURRENT_LAYERS
            or (facts.fixed_storages and len(weights) > len(products) / 2)
        ):
            continue
        library = "LSTMCell" in facts.modules and not facts.trains and not facts.on_gpu
        each_s = _LIBRARY_S if library or facts.on_gpu else _NATIVE_S
        after_s = products_s + each_s * steps
        if best is None or now_s > best[0]:
            best = now_s, after_s, steps, source
    if best is None:
        return RuledOut("no recurrent cell is called one time step at a time")
    now_s, after_s, steps, source = best
    if facts.trains:
        now_s, after_s = 2.5 * now_s, 2.5 * after_s
    saved_s = min(now_s - after_s, 0.98 * facts.step_s)
    return prospect_or_not(
        facts, 0.4 * saved_s, saved_s, min(now_s, 0.99 * facts.step_s),
        f"{source} runs a recurrent cell {steps} times from Python: {time_text(now_s)}; one layer "
        f"over the whole sequence (nn.LSTM, nn.GRU, nn.RNN) takes about {time_text(after_s)}",
        (source,),
    )  # fmt: skip


def _recurring(facts: Facts, gates: list[int]) -> int | None:
    """How often the cell runs: calls of its rarest gate; ``None`` if that is not often."""
    counts: dict[str, int] = defaultdict(int)
    for place in gates:
        op: OpFact = facts.ops[place]
        counts[op.name] += 1
    fewest = min(counts.values(), default=0)
    return fewest if fewest >= _LEAST_STEPS else None


FUSED_RNN = Fix(
    "fused_rnn", "One recurrent layer instead of a cell in a loop",
    ("overhead.python", "overhead.dispatch", "overhead.launch", "overhead.kernel_fixed_cost"),
    (NUMERICS, MEMORY), _consider,
    "outputs, state = nn.LSTM(inputs, cells, batch_first=True)(x)",
)  # fmt: skip
