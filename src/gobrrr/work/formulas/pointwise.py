"""Element-wise operators: inputs read once, the result written, FLOPs by table."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.pointwise_table import (
    ADD_SCALED,
    GELU_TANH,
    GELU_TANH_BACKWARD,
    POINTWISE,
    POW_OF_EXPONENT,
    Pointwise,
)
from gobrrr.work.registry import add_formula
from gobrrr.work.traffic import (
    account,
    arithmetic_dtype,
    broadcast,
    destinations,
    is_float,
    is_inplace,
    is_sparse,
    promote,
    results,
    tensors_in,
)
from gobrrr.work.traits import Role, Traits, state_traits
from gobrrr.work.weights import WEIGHTS, transcendentals_in


class Cost(NamedTuple):
    """FLOPs and transcendental evaluations per element."""

    flops: float
    special: int


def cost_of(entry: Pointwise) -> Cost:
    """What one element costs: basic operations, and functions at their weight."""
    flops = entry.basic + sum(WEIGHTS[name] for name in entry.functions)
    return Cost(flops, transcendentals_in(entry.functions))


_COSTS: dict[str, tuple[Pointwise, Cost]] = {}


def variant(call: OpCall) -> tuple[Pointwise, Cost] | None:
    """The entry that an argument chooses instead of the operator's usual one."""
    name = call.name.removeprefix("aten::").removesuffix("_")
    choose = _VARIANTS.get(name)
    if choose is None:
        return None
    entry = choose(call.args)
    return None if entry is None else (entry, cost_of(entry))


def _alpha(args: tuple[Arg, ...]) -> Pointwise | None:
    alpha = args[2] if len(args) > 2 else None
    return ADD_SCALED if isinstance(alpha, (int, float)) and alpha != 1 else None


def _exponent(args: tuple[Arg, ...]) -> Pointwise | None:
    exponent = args[1] if len(args) > 1 else None
    return POW_OF_EXPONENT.get(exponent) if isinstance(exponent, (int, float)) else None


_VARIANTS: dict[str, Callable[[tuple[Arg, ...]], Pointwise | None]] = {
    "add": _alpha,
    "sub": _alpha,
    "rsub": _alpha,
    "pow": _exponent,
    "gelu": lambda args: GELU_TANH if "tanh" in args else None,
    "gelu_backward": lambda args: GELU_TANH_BACKWARD if "tanh" in args else None,
}


def pointwise(call: OpCall) -> Work | None:
    """Any operator of the table, in each of its variants (in place, ``out=``, scalar)."""
    entry, cost = variant(call) or _COSTS[call.name]
    if any(map(is_sparse, call.args)):
        return _of_entries(call, entry, cost)
    inputs = tensors_in(call.args[: entry.arity])
    shape = broadcast([spec.shape for spec in inputs])
    dtype = promote(inputs)
    if dtype and entry.result == "float" and not is_float(dtype):
        dtype = "float32"
    written = "bool" if entry.result == "bool" else dtype
    if is_inplace(call) and not destinations(call, entry.arity):
        return _inplace(call, entry, cost, inputs, dtype)
    out, fresh = results(call, entry.arity, shape, written)
    # A Python float among integers makes the result floating: only the output tells.
    if entry.result == "same" and not is_float(dtype) and is_float(out[0].dtype):
        dtype = out[0].dtype
    return _work(inputs, out, [], entry, cost, dtype, out[0].numel, fresh)


def _inplace(
    call: OpCall, entry: Pointwise, cost: Cost, inputs: list[TensorSpec], dtype: str
) -> Work:
    target = inputs[0]
    return _work(inputs[1:], [], [target], entry, cost, dtype, target.numel, False)


def _of_entries(call: OpCall, entry: Pointwise, cost: Cost) -> Work | None:
    """One operand is sparse: its entries are read, and of a dense one what stands at them.

    Only a new dense result is written whole. Of two sparse operands, and of one that is changed in
    place and might gain entries, the work depends on the data: ``None``.
    """
    operands = [arg for arg in call.args[: entry.arity] if isinstance(arg, (TensorSpec, tuple))]
    sparse = [tensors_in((arg,)) for arg in operands if is_sparse(arg)]
    dense = [arg for arg in operands if isinstance(arg, TensorSpec)]
    if len(sparse) != 1 or len(dense) > 1 or not sparse[0]:
        return None
    parts, values = sparse[0], sparse[0][-1]
    dtype = promote([values, *dense])
    inplace = is_inplace(call)
    if not dense:
        # A number for every entry: the indices stay as they are.
        out = [] if inplace else list(call.outputs or (values,))
        reads = [] if inplace else parts
        return _work(reads, out, [values] if inplace else [], entry, cost, dtype, values.numel,
                     True)  # fmt: skip
    there = TensorSpec(values.shape, dense[0].dtype)
    if inplace:
        if is_sparse(operands[0]):
            return None
        return _work(parts, [], [there], entry, cost, dtype, values.numel, False)
    if not call.outputs:
        return None
    whole = len(call.outputs) == 1
    reads = [*parts, dense[0] if whole else there]
    return _work(reads, list(call.outputs), [], entry, cost, dtype, values.numel, True)


def _work(
    reads: list[TensorSpec],
    out: list[TensorSpec],
    updates: list[TensorSpec],
    entry: Pointwise,
    cost: Cost,
    dtype: str,
    elements: int,
    fresh: bool,
) -> Work:
    floating = is_float(dtype)
    factor = 1.0
    if dtype.startswith("complex"):
        # Real operations per complex one: 2 for an addition, 6 for a multiplication, and so on.
        factor = entry.complex_factor
    # Of an unknown dtype the FLOPs are those of floats, the common case by far; bytes are unknown.
    counts = floating or not dtype
    return account(
        reads,
        out,
        updates,
        vector=factor * cost.flops * elements if counts else 0.0,
        special=float(cost.special * elements) if counts else 0.0,
        dtype=arithmetic_dtype(dtype),
        op_class="elementwise",
        fresh=fresh,
    )


for _name, _entry in POINTWISE.items():
    _pair = (_entry, cost_of(_entry))
    for _variant in (f"aten::{_name}", f"aten::{_name}_"):
        _COSTS[_variant] = _pair
        # ``__and__`` calls ``bitwise_and``; shifts have kernels of their own.
        calls_another = _name.startswith("__") and "shift" not in _name
        add_formula((_variant,), pointwise, composite=calls_another)
        state_traits(_variant, Traits(Role.POINTWISE, rate=_entry.rate or _name))
state_traits("aten::masked_fill", Traits(passes="masked_fill"))
