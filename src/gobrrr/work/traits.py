"""What is known of an operator beside its work: stated in the file of its formula, read by models.

An operator of which nothing is stated is a kernel of its own that streams through memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from math import prod
from typing import Literal

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.traffic import broadcast, is_inplace


class Role(IntEnum):
    """How an operator takes part in fusion.

    The roles follow Inductor's lowerings (``torch/_inductor/lowering.py``): an operator that
    becomes one expression per element is ``POINTWISE``, however it is called; what Inductor hands
    to a library is ``CONTRACTION``, ``ATTENTION`` or ``EXTERN``.
    """

    NOTHING = 0  # a view, a query, an allocation
    POINTWISE = 1  # one expression per element of its result
    REDUCTION = 2  # rows of its input become one value each
    NORMALISATION = 3  # reduces rows, then writes every element
    CONTRACTION = 4  # a matrix product or a convolution, by a library
    ATTENTION = 5  # a fused attention kernel
    EXTERN = 6  # anything else that is a kernel of its own


@dataclass(frozen=True, slots=True)
class Space:
    """What an operator iterates over.

    Attributes:
        role: how it takes part in fusion.
        elements: points of the iteration: of the input for a reduction, else of the result.
        row: points that one reduction takes; 1 where nothing is reduced.
        inner: whether a row lies contiguous in memory.
    """

    role: Role
    elements: int
    row: int = 1
    inner: bool = True


# Raises ``TypeError``, ``ValueError`` or ``LookupError`` where the arguments do not tell.
SpaceOf = Callable[[OpCall], Space]

# How the kernels pass over memory; ``prediction.kernels.walks.walks`` has what each costs on a
# device.
Passes = Literal[
    "softmax", "layer_norm", "layer_norm_backward", "group_norm", "group_norm_backward",
    "batch_norm", "batch_norm_backward", "reduction", "scan", "window", "loss",
    "elementwise_loss", "elementwise_loss_backward", "sort", "top_k", "resample", "scatter",
    "gather", "index_put", "embedding_backward", "join", "lists", "log_sum_exp", "masked_fill",
    "padding", "count_nonzero", "ctc_loss", "multinomial", "fourier", "select", "permutation",
    "membership", "distances", "resample_backward", "sample", "sample_backward", "coalesce",
    "sparse_product",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of an operator beside its work.

    Attributes:
        fusion: its role, or a function of the call that tells what it iterates over.
        passes: how its kernels pass over memory; ``None``: in one stream.
        rate: the operator measured on processors (``devices.cpu.operators``) whose loop does the
            same for each element; ``None``: its own name, should that one be measured.
    """

    fusion: Role | SpaceOf | None = None
    passes: Passes | None = None
    rate: str | None = None


NONE_KNOWN = Traits()
_TRAITS: dict[str, Traits] = {}


def describe(
    names: str,
    *,
    fusion: Role | SpaceOf | None = None,
    passes: Passes | None = None,
    rate: str | None = None,
) -> None:
    """State traits of operators of ATen, their names separated by white space.

    Raises:
        ValueError: a trait of one of them is stated already.
    """
    for name in names.split():
        state_traits(f"aten::{name}", Traits(fusion, passes, rate))


def state_traits(name: str, traits: Traits) -> None:
    """State traits of one operator by its qualified name; those that are ``None`` stay open.

    Raises:
        ValueError: one is stated already.
    """
    known = _TRAITS.get(name, NONE_KNOWN)
    for trait in ("fusion", "passes", "rate"):
        value = getattr(traits, trait)
        if value is None:
            continue
        if getattr(known, trait) is not None:
            raise ValueError(f"{trait} of {name} is stated already")
        known = replace(known, **{trait: value})
    _TRAITS[name] = known


def forget_traits(name: str) -> None:
    """Forget what was stated of an operator."""
    _TRAITS.pop(name, None)


def traits_of(name: str) -> Traits:
    """What is stated of an operator, by its qualified name."""
    return _TRAITS.get(name, NONE_KNOWN)


def space_of(call: OpCall) -> Space | None:
    """What the operator iterates over; ``None`` where its arguments do not tell."""
    try:
        return _space(call)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _space(call: OpCall) -> Space:
    fusion = traits_of(call.name).fusion
    if fusion is Role.NOTHING:
        return Space(Role.NOTHING, 0)
    if isinstance(fusion, Role):
        return Space(fusion, result_elements(call))
    if fusion is not None:
        return fusion(call)
    # Kernels of attention from anywhere are called so.
    role = Role.ATTENTION if "attention" in call.name else Role.EXTERN
    return Space(role, result_elements(call))


def tensor_of(call: OpCall, index: int) -> TensorSpec:
    """The tensor at this position; raises ``TypeError`` where there is none."""
    arg = call.args[index]
    if not isinstance(arg, TensorSpec):
        raise TypeError("no tensor")
    return arg


def result_elements(call: OpCall) -> int:
    """Elements of the largest result, or as many as the inputs broadcast to."""
    if call.outputs:
        return max(spec.numel for spec in call.outputs)
    if is_inplace(call):
        return tensor_of(call, 0).numel
    tensors = call.tensors
    if not tensors:
        raise ValueError("no tensors")
    try:
        return prod(broadcast([spec.shape for spec in tensors]))
    except ValueError:
        return max(spec.numel for spec in tensors)
