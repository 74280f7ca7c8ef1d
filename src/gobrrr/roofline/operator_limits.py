"""Ceilings of what is neither FLOPs nor bytes: random numbers, transcendentals, sorting, gathering.

No instruction rate says how fast these go on a processor. What says it is the rate that PyTorch's
own operator was measured at on this machine, on data in its caches (``devices.cpu.operators``). An
op of that kind cannot take less than its elements at that rate, unless PyTorch gets another loop
for it. Devices without such rates (GPUs) have roofs of FLOPs and bytes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2

from gobrrr.devices.ceilings import Ceilings
from gobrrr.roofline.roof import COMPUTE_VECTOR, MEMORY, Missed, Roof, roof_of
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work
from gobrrr.work.traits import traits_of

RANDOM, TRANSCENDENTAL = "random numbers", "transcendentals"
SORTING, GATHERING = "sorting", "gathering"
LIMITS = (RANDOM, TRANSCENDENTAL, SORTING, GATHERING)

# Operators whose measured rate is that of the generator, or of the function, and nothing else.
_KIND_OF_RATE = {
    **dict.fromkeys(("bernoulli_", "uniform_", "normal_"), RANDOM),
    **dict.fromkeys(
        ("exp", "log", "tanh", "sigmoid", "erf", "gelu", "gelu.tanh", "silu", "sin", "softplus",
         "gelu_backward", "gelu_backward.tanh", "silu_backward"),
        TRANSCENDENTAL,
    ),
}  # fmt: skip
# Fetching single values by index: what a row of any width takes at least, per index.
_FETCHES = {
    "aten::index": "fetch.index", "aten::_unsafe_index": "fetch.index",
    "aten::index_select": "fetch.index_select", "aten::embedding": "fetch.index_select",
    "aten::gather": "fetch.gather",
}  # fmt: skip
# Shorter rows are sorted by insertion, in fewer steps than n log n.
_LEAST_SORTED = 32
# Rows of the measured sort: its rate is per element of such a row.
SORTED_ROW = 256


@dataclass(frozen=True, slots=True)
class Limit:
    """Least seconds of an op by the measured rate of what it does, and what that is called."""

    seconds: float
    name: str


def limit_of(call: OpCall, ceilings: Ceilings) -> Limit | None:
    """The op's own ceiling; ``None`` where it has none, or its rate was not measured.

    Rates are those of float32: other dtypes have loops of their own.
    """
    if call.name in _FETCHES:
        return _of_fetch(call, ceilings)
    if call.name == "aten::sort":
        return _of_sort(call, ceilings)
    base = call.name.partition("::")[2]
    name = traits_of(call.name).rate or base
    # A rate that another operator's stands for is a likeness, not a ceiling; an operator and its
    # in-place form run the same loop.
    if name.rstrip("_") != base.rstrip("_"):
        return None
    if "tanh" in call.args:
        name = f"{name}.tanh"
    kind, rate = _KIND_OF_RATE.get(name), ceilings.value(f"operator.{name}")
    elements = _elements(call)
    if kind is None or not rate or not elements:
        return None
    return Limit(elements / rate, kind)


def roof_of_op(call: OpCall, work: Work, ceilings: Ceilings, missed: Missed = ()) -> Roof | None:
    """``roof.roof_of`` with the op's own ceiling among the sides.

    Where that one is the largest, ``Roof.limit`` has its name.
    """
    roof = roof_of(work, ceilings, missed)
    limit = None if roof is None else limit_of(call, ceilings)
    if roof is None or limit is None or limit.seconds <= roof.time_s:
        return roof
    least_s = limit.seconds
    if limit.name == GATHERING:
        return replace(roof, time_s=least_s, memory_s=least_s, regime=MEMORY, limit=limit.name)
    return replace(roof, time_s=least_s, vector_s=least_s, regime=COMPUTE_VECTOR, limit=limit.name)


def _of_fetch(call: OpCall, ceilings: Ceilings) -> Limit | None:
    rate = ceilings.value(f"operator.{_FETCHES[call.name]}")
    # An index that is expanded over a row names that row once.
    indices = [t.unique_elements for t in call.tensors if t.dtype == "int64"]
    if not rate or not indices or all(t.dtype != "float32" for t in call.tensors):
        return None
    return Limit(max(indices) / rate, GATHERING)


def _of_sort(call: OpCall, ceilings: Ceilings) -> Limit | None:
    """Comparisons: n log2 n of a row of n."""
    rate = ceilings.value("operator.sort")
    x = next(iter(call.tensors), None)
    if not rate or x is None or x.dtype != "float32" or not x.shape:
        return None
    dim = next((arg for arg in call.args[1:] if type(arg) is int), -1)
    row = x.shape[dim] if -len(x.shape) <= dim < len(x.shape) else 0
    if row < _LEAST_SORTED:
        return None
    return Limit(x.numel * log2(row) / log2(SORTED_ROW) / rate, SORTING)


def _elements(call: OpCall) -> int:
    """Elements of the largest tensor; 0 unless all of them are float32."""
    tensors = (*call.tensors, *(call.outputs or ()))
    if any(t.dtype != "float32" for t in tensors):
        return 0
    return max((t.numel for t in tensors), default=0)
