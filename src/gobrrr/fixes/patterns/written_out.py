"""What torch has one op for, written out in several: a softmax, a look-up as a product."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.diagnosis.fusion.groups import seconds_to_move
from gobrrr.fixes.compilation.compiled_calls import host_scale
from gobrrr.fixes.device_constants import constant, unmeasured
from gobrrr.fixes.fix import MEMORY, NUMERICS, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.fixes.patterns.dataflow import Flow, cost_s, flow_of
from gobrrr.prediction.step.compiled_host import DISPATCH_S
from gobrrr.timeline.ops import TensorSpec
from gobrrr.timeline.quantities import si, time_text

_UNKNOWN = RuledOut("the order of the step's ops is unknown")
_NO_BANDWIDTH = RuledOut("this device's memory bandwidth is unknown")
_ZEROS = ("aten::zeros", "aten::new_zeros", "aten::zeros_like")
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::linear")


def _base(op: OpFact) -> str:
    """The op's name without namespace, and whether or not in place."""
    return op.name.removeprefix("aten::").removesuffix("_")


def _forward_readers(facts: Facts, flow: Flow, place: int) -> set[int]:
    return {p for p, _ in flow.reads[place] if facts.ops[p].phase != "backward"}


def _softmaxes(facts: Facts, flow: Flow) -> Iterator[list[int]]:
    """Runs of ops that are exp(x) / sum(exp(x)), with or without the largest x taken off first."""
    returned = {place for place, _ in facts.returned or ()}
    for place, op in enumerate(facts.ops):
        makers = flow.made_from[place]
        if _base(op) != "div" or op.phase == "backward" or len(makers) != 2:
            continue
        exp, total = makers
        if (
            _base(facts.ops[exp]) != "exp"
            or not _sums_one_dimension(facts.ops[total])
            or flow.made_from[total] != (exp,)
            or _forward_readers(facts, flow, exp) != {total, place}
            or _forward_readers(facts, flow, total) != {place}
            or not _shares(op.call.tensors[0], facts.ops[exp])
            or {exp, total} & returned
        ):
            continue
        yield [*_largest_taken_off(facts, flow, exp), exp, total, place]


def _sums_one_dimension(op: OpFact) -> bool:
    dims = op.call.args[1:3]
    return op.name == "aten::sum" and _is_one(dims[:1]) and dims[1:] == (True,)


def _is_one(dims: tuple[object, ...]) -> bool:
    return bool(dims) and isinstance(dims[0], tuple) and len(dims[0]) == 1


def _shares(spec: TensorSpec, op: OpFact) -> bool:
    return spec.storage in {made.storage for made in op.call.outputs or ()}


def _largest_taken_off(facts: Facts, flow: Flow, exp: int) -> list[int]:
    if len(flow.made_from[exp]) != 1:
        return []
    (less,) = flow.made_from[exp]
    largest = [p for p in flow.made_from[less] if _base(facts.ops[p]) in ("amax", "max")]
    alone = _base(facts.ops[less]) == "sub" and _forward_readers(facts, flow, less) == {exp}
    if not alone or len(largest) != 1 or _forward_readers(facts, flow, largest[0]) != {less}:
        return []
    return [largest[0], less]


def _consider_softmax(facts: Facts) -> Considered:
    flow = flow_of(facts)
    if flow is None:
        return _UNKNOWN
    runs = list(_softmaxes(facts, flow))
    if not runs:
        return RuledOut("no softmax is written as exp, sum and division")
    ops = [facts.ops[place] for run in runs for place in run]
    now_s = sum(map(cost_s, ops))
    exp_s = sum(cost_s(facts.ops[run[-3]]) for run in runs)
    of_exp = constant("softmax.of_exp", facts)
    # What is computed op by op has its gradient computed op by op.
    factor, most_s = (2.0, 0.98 * facts.step_s) if facts.trains else (1.0, now_s)
    low_s, expected_s, high_s = (factor * (now_s - share * exp_s) for share in of_exp.values)
    return prospect_or_not(
        facts, low_s, min(expected_s, most_s), min(high_s, most_s),
        f"{len(ops)} ops compute {len(runs)} softmax in {time_text(now_s)}; torch.softmax reads "
        f"and writes each value once, as the exp alone does in {time_text(exp_s)}"
        + unmeasured(of_exp),
        lines_of(ops),
    )  # fmt: skip


def _one_hot(facts: Facts, flow: Flow, place: int) -> tuple[int, ...] | None:
    """The ops that fill in one 1 in each row of zeros; ``None`` if this op does not end them."""
    op = facts.ops[place]
    args = op.call.args
    if op.name != "aten::scatter_" or len(args) < 4:
        return None
    into, index = args[0], args[2]
    if not isinstance(into, TensorSpec) or not isinstance(index, TensorSpec):
        return None
    makers = [p for p in flow.made_from[place] if facts.ops[p].name in _ZEROS]
    if (
        not makers
        or args[3] != 1
        or args[1] not in (-1, len(into.shape) - 1)
        or index.shape != (*into.shape[:-1], 1)
    ):
        return None
    return makers[-1], place


def _look_ups(facts: Facts, flow: Flow) -> Iterator[tuple[list[int], list[int]]]:
    """Products with one-hot rows, as the ops that make the rows, and the products with them."""
    returned = {place for place, _ in facts.returned or ()}
    for place in range(len(facts.ops)):
        made = _one_hot(facts, flow, place)
        if made is None or facts.ops[place].phase == "backward" or place in returned:
            continue
        rows, last = list(made), place
        readers = _forward_readers(facts, flow, last)
        if len(readers) == 1 and facts.ops[min(readers)].name == "aten::_to_copy":
            last = min(readers)
            rows.append(last)
        products = sorted({p for p, _ in flow.reads[last]})
        if products and last not in returned and all(
            _is_product_with(facts.ops[p], facts.ops[last]) for p in products
        ):  # fmt: skip
            yield rows, products


def _is_product_with(op: OpFact, rows: OpFact) -> bool:
    """Whether it multiplies the rows by a table; or, going back, what came of that by the rows."""
    if op.name not in _PRODUCTS:
        return False
    if op.phase == "backward":
        return True
    left = list(op.call.tensors)[-2] if op.name != "aten::linear" else op.call.tensors[0]
    classes = (rows.call.outputs or rows.call.tensors)[0].shape[-1]
    return _shares(left, rows) and left.shape[-1] == classes


def _consider_look_up(facts: Facts) -> Considered:
    flow = flow_of(facts)
    if flow is None:
        return _UNKNOWN
    found = list(_look_ups(facts, flow))
    if not found:
        return RuledOut("no one-hot rows are multiplied by a table")
    ops = [facts.ops[place] for rows, products in found for place in (*rows, *products)]
    now_s, after_s = sum(map(cost_s, ops)), 0.0
    for _, products in found:
        for place in products:
            # Rows are read and written; in the gradient they are added to a table of zeros.
            op = facts.ops[place]
            given = op.call.tensors if op.phase == "backward" else ()
            sizes = [spec.unique_bytes or 0 for spec in op.call.outputs or ()]
            rows = min((spec.unique_bytes or 0 for spec in given), default=0)
            moved_s = seconds_to_move(facts, 2.0 * (sum(sizes) + rows))
            if moved_s is None:
                return _NO_BANDWIDTH
            after_s += moved_s + host_scale(facts) * DISPATCH_S
    saved_s = now_s - after_s
    rows_bytes = sum(facts.ops[rows[-1]].fresh_bytes for rows, _ in found)
    return prospect_or_not(
        facts, 0.7 * saved_s, saved_s, now_s,
        f"{len(ops)} ops make one-hot rows ({si(rows_bytes, 'B')}) and multiply a table by them in "
        f"{time_text(now_s)}; looking the rows up takes about {time_text(after_s)}",
        lines_of(ops),
    )  # fmt: skip


_LEAVES = ("compute.matrix.roof", "compute.matrix.below", "compute.vector.roof",
           "compute.vector.below", "memory.device.roof", "memory.device.below",
           "overhead.dispatch")  # fmt: skip
SOFTMAX_BY_HAND = Fix(
    "softmax_by_hand", "torch.softmax instead of exp, sum and division", _LEAVES[2:],
    (NUMERICS, MEMORY), _consider_softmax,
    "weights = torch.softmax(scores, dim=-1)",
)  # fmt: skip
LOOK_UP = Fix(
    "look_up", "Look rows up instead of multiplying by one-hot rows", _LEAVES, (MEMORY,),
    _consider_look_up,
    "rows = table[ids]  # or nn.Embedding; instead of F.one_hot(ids, len(table)).float() @ table",
)  # fmt: skip
