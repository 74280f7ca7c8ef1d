"""Operators that hand work to other ranks, or wait for it: their time is the network's.

On a device the collective's kernel has the time; on a processor a thread of the backend, and the
wait. The call itself neither computes nor moves a byte of its own.
"""

from __future__ import annotations

from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work
from gobrrr.work.registry import add_formula
from gobrrr.work.traffic import nothing
from gobrrr.work.traits import Role, Traits, state_traits

# Operator of ``c10d`` -> what the collective is called.
C10D: dict[str, str] = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
}
# Functional collectives, in torch's two namespaces for them.
FUNCTIONAL: dict[str, str] = {
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_coalesced_": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
}
_FUNCTIONAL_NAMESPACES = ("_c10d_functional", "c10d_functional")

COLLECTIVE_NAMES: dict[str, str] = {f"c10d::{name}": title for name, title in C10D.items()} | {
    f"{space}::{name}": title
    for space in _FUNCTIONAL_NAMESPACES
    for name, title in FUNCTIONAL.items()
}
# Operators that return once a collective has arrived.
WAITS: tuple[str, ...] = tuple(f"{space}::wait_tensor" for space in _FUNCTIONAL_NAMESPACES)

_NOTHING = nothing("")


def hands_over(call: OpCall) -> Work:
    """Nothing is computed, nothing moves in the call itself."""
    return _NOTHING


_CALLS = (*COLLECTIVE_NAMES, *WAITS, "_c10d_functional::_wrap_tensor_autograd")
add_formula(_CALLS, hands_over)
for _name in _CALLS:
    state_traits(_name, Traits(Role.NOTHING))
