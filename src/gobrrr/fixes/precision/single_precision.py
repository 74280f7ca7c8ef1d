"""float32 where everything is float64, mostly by accident: numpy's default type spreads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.fix import (
    MEMORY,
    NUMERICS,
    PRECISION,
    UNBOUNDED,
    WEIGHTS,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.patterns.dataflow import cost_s
from gobrrr.fixes.programs import model_by_hand, with_model_changed
from gobrrr.fixes.scripts import before_first_call
from gobrrr.timeline.nested import map_tensors
from gobrrr.timeline.ops import TensorSpec
from gobrrr.timeline.quantities import percent, time_text
from gobrrr.timeline.workload import Workload

# Half the bytes, twice the lanes: low, expected, high share of a kernel's time that goes.
_SAVED = (0.3, 0.5, 0.6)


def _consider(facts: Facts) -> Considered:
    ops = [op for op in facts.ops if _in_float64(op)]
    if not ops:
        return RuledOut("no op computes in float64")
    now_s = sum(op.kernel_s for op in ops)
    full, low = facts.rate("matrix.float64"), facts.rate("matrix.float32")
    savings = [share * now_s for share in _SAVED]
    if full and low:
        matrix_s = sum(op.kernel_s for op in ops if op.matrix_flops)
        savings[1] = matrix_s * (1.0 - min(full / low, 1.0)) + _SAVED[1] * (now_s - matrix_s)
        savings[2] = max(savings[2], 1.15 * savings[1])
    return prospect_or_not(
        facts, savings[0], savings[1], min(savings[2], 0.9 * facts.step_s),
        f"{len(ops)} ops compute in float64: {time_text(now_s)}, "
        f"{percent(now_s / facts.step_s)} of the step; float32 moves half the bytes, and a "
        f"vector holds twice as many values{_where_from(facts)}",
        tuple(dict.fromkeys((*lines_of(_entrances(facts)), *lines_of(ops))))[:3],
        _by_hand(facts),
    )  # fmt: skip


def _in_float64(op: OpFact) -> bool:
    return cost_s(op) > 0 and (
        _is_double(op.call.tensors) or _is_double(op.call.outputs or ()) or op.dtype == "float64"
    )


def _is_double(tensors: Iterable[TensorSpec]) -> bool:
    """Whether one of them is in float64; a single number decides no type."""
    return any(spec.dtype == "float64" and spec.shape for spec in tensors)


def _entrances(facts: Facts) -> list[OpFact]:
    """Ops that make float64 of other types, or read it of tensors from before the step."""
    if not facts.in_order:
        return []
    made: set[int | None] = set()
    found = []
    for op in facts.ops:
        given = [spec for spec in op.call.tensors if spec.dtype == "float64" and spec.shape]
        outputs = op.call.outputs or ()
        if any(spec.storage not in made for spec in given) or (not given and _is_double(outputs)):
            found.append(op)
        made.update(spec.storage for spec in outputs)
    return found


def _where_from(facts: Facts) -> str:
    if "float64" in facts.parameter_dtypes:
        return ""
    if "float64" in facts.buffer_dtypes:
        return "; no parameter is in float64, but buffers are"
    entrances = _entrances(facts)
    if entrances and not any(_is_double(op.call.tensors) for op in entrances):
        names = ", ".join(dict.fromkeys(op.name.removeprefix("aten::") for op in entrances))
        return f"; it begins with {names}"
    return "; it comes from tensors of no module (numpy's default type is float64)"


def _by_hand(facts: Facts) -> str:
    if "float64" in (*facts.parameter_dtypes, *facts.buffer_dtypes):
        return model_by_hand(facts)
    return "gobrrr converts modules alone: make these tensors in float32, or convert them"


def _make_single(module: Any) -> None:
    """Its weights in float32, and whatever reaches a part that has weights."""
    import torch

    def convert(tensor: Any) -> Any:
        return tensor.float() if tensor.dtype == torch.float64 else tensor

    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.dtype == torch.float64:
            # In place: an optimizer holds the same parameter.
            tensor.data = tensor.data.float()
            if tensor.is_leaf and tensor.grad is not None:
                tensor.grad = tensor.grad.float()
            changed("float32")
    for part in (module, *module.modules()):
        if next(part.parameters(recurse=False), None) is not None or part is module:
            part.register_forward_pre_hook(
                lambda _, args, kwargs: (map_tensors(args, convert), map_tensors(kwargs, convert)),
                with_kwargs=True,
            )


def _make_state_single(optimizer: Any) -> None:
    import torch

    for state in optimizer.state.values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.dtype == torch.float64 and value.dim():
                state[key] = value.float()


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    with with_model_changed(_make_single, work) as program:
        if program.optimizer is not None:
            _make_state_single(program.optimizer)
        yield program


FLOAT32 = Fix(
    name="float32",
    title="float32 instead of float64",
    leaves=("compute.matrix.roof", "compute.vector.roof", "memory.device.roof",
            "memory.device.below"),
    may_change=(NUMERICS, MEMORY),
    consider=_consider,
    snippet="model = model.float()  # and its inputs and constants",
    apply=_apply,
    in_script=partial(before_first_call, _make_single),
    changes_made=changes_of("float32"),
    effect=UNBOUNDED,
    claims=(PRECISION, WEIGHTS),
    precision="float32",
)  # fmt: skip
