"""Which of a step's ops a compiler sees, and how many tensors it hands gradients to."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.fixes.patterns.dataflow import flow_of, only_for_the_host
from gobrrr.timeline.ops import OpCall
from gobrrr.work.traffic import is_inplace

# Dynamo does not trace them: the graph ends before each and begins anew behind it
# (``torch._dynamo.config.allow_rnn`` is off by default).
RECURRENT_LAYERS = ("LSTM", "GRU", "RNN")
_RECURRENT_OPS = (
    "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_cudnn_rnn", "_cudnn_rnn_backward",
    "miopen_rnn", "miopen_rnn_backward", "lstm", "gru", "rnn_tanh", "rnn_relu",
)  # fmt: skip


def compiled_part(facts: Facts, *, recurrent: bool = False) -> Facts:
    """The facts as the compiler sees them: without what stays outside its graph.

    ``recurrent``: whether it sees what recurrent layers do (an export does).
    """
    ops = []
    written: set[int] = set()
    flow = flow_of(facts)
    logged = only_for_the_host(facts, flow) if flow is not None else frozenset()
    for place, op in enumerate(facts.ops):
        # In a script modules are compiled, and not the loop around them.
        around = facts.is_script and not op.module and op.phase != "backward"
        unseen = not recurrent and in_recurrent_layer(facts, op)
        if place in logged or around or unseen:
            continue
        stores = {storage for storage, _ in op.writes}
        # A gradient kept from an earlier step is added to outside the graph.
        kept = op.phase == "backward" and op.name == "aten::add_" and not stores & written
        written |= stores
        if kept and stores:
            continue
        ops.append(op)
    return replace(facts, ops=tuple(ops))


def in_recurrent_layer(facts: Facts, op: OpFact) -> bool:
    """Whether an op belongs to ``nn.LSTM``, ``nn.GRU`` or ``nn.RNN`` (not to a cell's module)."""
    if op.name.rpartition("::")[2] in _RECURRENT_OPS:
        return True
    # A module that stands alone is called by its class.
    known = facts.module_classes.get(op.module, op.module.rpartition(".")[2])
    return known in RECURRENT_LAYERS


def pieces(facts: Facts) -> int:
    """How many graphs recurrent layers leave of the forward pass; 1 where there are none."""
    forward = [in_recurrent_layer(facts, op) for op in facts.ops
               if op.phase in ("forward", "") and op.time_s > 0]  # fmt: skip
    return max(sum(not inside for inside, _ in groupby(forward)), 1)


def trained_tensors(facts: Facts) -> int:
    """Tensors that the forward pass reads and that the step changes behind its backward pass.

    They are the parameters of a step that trains by hand, whose model and optimizer are in nobody's
    sight. 0 where the order of ops is unknown.
    """
    backward = [place for place, op in enumerate(facts.ops) if op.phase == "backward"]
    if not facts.in_order or not backward:
        return 0
    read = {storage for op in facts.ops[: backward[0]] for storage in _storages(op.call)}
    changed: set[int] = set()
    for op in facts.ops[backward[-1] + 1 :]:
        if is_inplace(op.call):
            # An op on lists of tensors (``_foreach_sub_``) may be told more than it changes; none
            # of that but the parameters was read by the forward pass.
            many = "_foreach_" in op.name or "_fused_" in op.name
            given = _storages(op.call)
            changed.update(given if many else given[:1])
    return len(read & changed)


def _storages(call: OpCall) -> tuple[int, ...]:
    return tuple(spec.storage for spec in call.tensors if spec.storage is not None)
