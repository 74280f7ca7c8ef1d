"""Sparse gradients of large embeddings: of the rows that a batch reads, not of all."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.device_constants import constant, unmeasured
from gobrrr.fixes.edits import Keyword
from gobrrr.fixes.fix import MEMORY, UNBOUNDED, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.fixes.patterns.dataflow import cost_s
from gobrrr.fixes.programs import with_model_changed
from gobrrr.fixes.scripts import before_first_call
from gobrrr.live.watch.optimizer_facts import is_of_torch
from gobrrr.timeline.quantities import percent, si, time_text

_BACKWARD = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")
_LAYERS = ("Embedding", "EmbeddingBag")
# Rows of the table that a batch reads at most: a sparse row costs several times a dense one.
_MOST_READ = 0.2


def _consider(facts: Facts) -> Considered:
    if not facts.trains:
        return RuledOut("no gradients are computed here")
    backward = [op for op in facts.named(*_BACKWARD) if _share_read(op) <= _MOST_READ]
    if not backward:
        return RuledOut("no large embedding has a gradient with few nonzero rows")
    if not facts.optimizers or not all(o.takes_sparse for o in facts.optimizers):
        return RuledOut(
            "the optimizer also updates rows without a gradient (momentum, weight decay) or takes "
            "no sparse gradients; SGD and Adagrad without those, and SparseAdam, take them"
        )
    made = {spec.shape for op in backward for spec in op.call.outputs or ()}
    rows = sum(prod(shape) for shape in made)
    elements = max(sum(o.elements for o in facts.optimizers), 1)
    # Adding to a gradient, filling it with zeros, and the update: all of one tensor of that shape.
    others = [
        op for op in facts.ops if op.phase in ("optimizer", "other") and not set(op.shapes) <= made
    ]
    update_s = sum(cost_s(op) for op in facts.ops
                   if op.phase == "optimizer" and set(op.shapes) & made)  # fmt: skip
    lists_s = sum(op.kernel_s for op in others if "foreach" in op.name) * min(rows / elements, 1)
    now_s = sum(map(cost_s, backward)) + max(update_s, lists_s)
    # Ops of a sparse gradient and its update, each with some dispatch.
    after = constant("sparse.table_s", facts)
    savings = [now_s - len(backward) * each_s for each_s in after.values]
    return prospect_or_not(
        facts, savings[0], savings[1], max(savings[2], 0.0),
        f"a batch reads {percent(max(map(_share_read, backward)), 2)} of the rows, and the "
        f"gradient holds all {si(rows, 'elements')}: {time_text(now_s)} to clear, fill and apply "
        "it; a sparse gradient holds only the rows that were read" + unmeasured(after),
        lines_of(backward),
    )  # fmt: skip


def _share_read(op: OpFact) -> float:
    """Rows looked up over rows of the table: 1 where unknown."""
    outputs = op.call.outputs or ()
    if len(op.shapes) < 2 or not outputs or not outputs[0].shape:
        return 1.0
    return prod(op.shapes[1]) / max(outputs[0].shape[0], 1)


def _make_sparse(module: Any) -> None:
    for part in module.modules():
        if is_of_torch(part) and type(part).__name__ in _LAYERS and not part.sparse:
            part.sparse = True
            changed("sparse_gradients")


SPARSE_GRADIENTS = Fix(
    name="sparse_gradients",
    title="Sparse gradients of embeddings",
    leaves=("memory.device.roof", "memory.device.below", "memory.page_faults"),
    may_change=(MEMORY,),
    consider=_consider,
    snippet="nn.Embedding(words, width, sparse=True)",
    apply=partial(with_model_changed, _make_sparse),
    in_script=partial(before_first_call, _make_sparse),
    in_source=(
        Keyword(
            (*_LAYERS, *(f"{layer}.from_pretrained" for layer in _LAYERS)),
            (("sparse", "True"),),
            unless="sparse",
            place=6,
            home="torch.nn",
        ),
    ),
    changes_made=changes_of("sparse_gradients"),
    effect=UNBOUNDED,
)
