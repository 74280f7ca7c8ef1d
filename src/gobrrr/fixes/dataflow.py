"""Which op reads what which op made: what is constant, what nobody reads, what is only printed.

Storages carry the flow. Their ids are used again once memory is freed, so that the last op that
made a storage is the one that is read. A view passes on what it is a view of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gobrrr.attribution.attributed import READ_OF_ONE_VALUE
from gobrrr.capture.nested import nested_tensors
from gobrrr.capture.op_arguments import describe_tensor
from gobrrr.capture.op_recorder import OpRecorder
from gobrrr.fixes.facts import Facts, OpFact
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.traffic import is_inplace

# Ops that make tensors out of a few numbers alone. (Not of Python's data: ``torch.tensor``.)
_FACTORIES = frozenset(
    f"aten::{name}"
    for name in ("arange", "empty", "empty_strided", "empty_permuted", "eye", "full", "linspace",
                 "logspace", "ones", "tril_indices", "triu_indices", "zeros", "bartlett_window",
                 "blackman_window", "hann_window", "hamming_window", "kaiser_window")
)  # fmt: skip
_LIKE = frozenset(
    f"aten::{name}"
    for name in ("empty_like", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
                 "new_full", "new_empty")
)  # fmt: skip
_RANDOM = ("rand", "normal", "bernoulli", "dropout", "multinomial", "uniform", "exponential",
           "poisson", "cauchy", "geometric")  # fmt: skip


@dataclass(frozen=True)
class Flow:
    """A step's ops as a graph; ops are named by their place in ``Facts.ops``.

    Attributes:
        made_from: the ops whose results each op reads.
        reads: the tensors that ops read of each op's results, with the reader.
        constant: ops whose result is the same at every step.
        views: ops that make nothing of their own.
        writes_outside: ops that change a tensor which was there before the step.
        owner: who made each storage last.
    """

    made_from: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[tuple[int, TensorSpec], ...], ...]
    constant: frozenset[int]
    views: frozenset[int]
    writes_outside: frozenset[int]
    owner: dict[int, int]

    def reaching(self, last: Sequence[int]) -> frozenset[int]:
        """Every op that one of these reads, directly or not; these included."""
        found: set[int] = set()
        left = list(last)
        while left:
            place = left.pop()
            if place not in found:
                found.add(place)
                left += self.made_from[place]
        return frozenset(found)


def flow_of(facts: Facts) -> Flow | None:
    """The flow of a step whose ops are known in order; ``None`` of any other."""
    if not facts.in_order or not facts.ops:
        return None
    owner: dict[int, int] = {}
    varies: dict[int, bool] = {}
    made_from: list[tuple[int, ...]] = []
    reads: list[list[tuple[int, TensorSpec]]] = [[] for _ in facts.ops]
    constant: set[int] = set()
    outside: set[int] = set()
    views: set[int] = set()
    for place, op in enumerate(facts.ops):
        inputs = [spec for spec in op.call.tensors if spec.storage is not None]
        outputs = [spec for spec in op.call.outputs or () if spec.storage is not None]
        given = {spec.storage for spec in inputs}
        changing = _changes_argument(op.call)
        view = not changing and bool(outputs) and all(spec.storage in given for spec in outputs)
        makers = sorted({owner[s] for s in given if s is not None and s in owner})
        made_from.append(tuple(makers))
        same = _is_constant(op, facts, [owner_varies(s, varies, facts) for s in given])
        if same:
            constant.add(place)
        if view:
            views.add(place)
            continue
        for spec in inputs:
            if spec.storage in owner:
                reads[owner[spec.storage]].append((place, spec))
        written = outputs or (inputs[:1] if changing else [])
        for spec in written:
            assert spec.storage is not None
            if spec.storage in given and spec.storage not in owner:
                outside.add(place)
            owner[spec.storage] = place
            varies[spec.storage] = not same
        if changing:
            # All of a list's tensors are changed, whatever the op returns.
            outside |= {place} if any(s not in owner for s in given) else set()
    return Flow(
        tuple(made_from), tuple(tuple(r) for r in reads), frozenset(constant), frozenset(views),
        frozenset(outside), owner,
    )  # fmt: skip


def owner_varies(storage: int | None, varies: dict[int, bool], facts: Facts) -> bool:
    """Whether what is in a storage may be another at the next step."""
    if storage is None:
        return True
    return varies.get(storage, storage not in facts.fixed_storages)


def _changes_argument(call: OpCall) -> bool:
    """Whether the op changes a tensor that it is given."""
    return is_inplace(call) or call.overload == "out"


def _is_constant(op: OpFact, facts: Facts, inputs_vary: Sequence[bool]) -> bool:
    name = op.name.rpartition("::")[2]
    if any(part in name for part in _RANDOM) or op.phase in ("backward", "optimizer"):
        return False
    if op.name in _LIKE:
        # Of the tensor that it is given it takes the shape alone.
        return not _changes_argument(op.call)
    if not inputs_vary:
        return op.name in _FACTORIES
    return not any(inputs_vary)


def cost_s(op: OpFact) -> float:
    """Seconds of the step that go with an op."""
    return op.time_s + op.host_s


def only_for_the_host(facts: Facts, flow: Flow) -> frozenset[int]:
    """Ops whose results are read back by the host, directly or by ops that are, and by no one else.

    What is logged and printed, as a rule.
    """
    found: set[int] = set()
    returned = {place for place, _ in facts.returned or ()}
    for place in reversed(range(len(facts.ops))):
        op = facts.ops[place]
        if op.phase in ("backward", "optimizer"):
            # An optimizer reads its own count of steps.
            continue
        if op.name == READ_OF_ONE_VALUE or (
            flow.reads[place]
            and place not in returned
            and place not in flow.writes_outside
            and all(reader in found for reader, _ in flow.reads[place])
        ):
            found.add(place)
    return frozenset(found)


def returned_by(
    step: Callable[[], Any], expected: Sequence[OpFact]
) -> tuple[tuple[int, TensorSpec], ...] | None:
    """The tensors that a step returns, each with the place of the op that made it.

    The step runs once more, under a recorder. ``None`` if it runs other ops than ``expected``.
    Raises what the step raises.
    """
    with OpRecorder() as recorder:
        result = step()
    calls = [op.call for op in recorder.ops]
    if [call.name for call in calls] != [op.name for op in expected]:
        return None
    owner: dict[int, int] = {}
    for place, call in enumerate(calls):
        given = {spec.storage for spec in call.tensors}
        changing = _changes_argument(call)
        for spec in call.outputs or (call.tensors[:1] if changing else ()):
            if spec.storage is not None and (changing or spec.storage not in given):
                owner[spec.storage] = place
    described = map(describe_tensor, nested_tensors(result))
    found = [spec for spec in described if spec is not None]
    return tuple(
        (owner[spec.storage], spec)
        for spec in found
        if spec.storage is not None and spec.storage in owner
    )
