"""Which op reads what which op made: what is constant, what nobody reads, what is only printed.

Storages carry the flow. Their ids are used again once memory is freed, so that the last op that
made a storage is the one that is read. A view passes on what it is a view of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gobrrr.attribution.attributed import READ_OF_ONE_VALUE
from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.fixes.patterns.op_schemas import schema_of
from gobrrr.timeline.names import FROM
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
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


# That of the last step asked for, with what it follows from: dozens of rules ask for the same.
_latest: list[tuple[tuple[object, ...], Flow]] = []


def flow_of(facts: Facts) -> Flow | None:
    """The flow of a step whose ops are known in order; ``None`` of any other."""
    if not facts.in_order or not facts.ops:
        return None
    given = (facts.ops, facts.fixed_storages, facts.host_reads)
    for known, flow in _latest:
        if all(one is other for one, other in zip(known, given)):
            return flow
    flow = _flow_of(facts)
    _latest[:] = [(given, flow)]
    return flow


def forget_flow() -> None:
    """Lets go of the step that was asked for last."""
    _latest.clear()


def _flow_of(facts: Facts) -> Flow:
    owner: dict[int, int] = {}
    varies: dict[int, bool] = {}
    made_from: list[tuple[int, ...]] = []
    reads: list[list[tuple[int, TensorSpec]]] = [[] for _ in facts.ops]
    constant: set[int] = set()
    outside: set[int] = set()
    views: set[int] = set()
    fixed = _never_written(facts)
    numbers = _Numbers(facts)
    for place, op in enumerate(facts.ops):
        inputs = [spec for spec in op.call.tensors if spec.storage is not None]
        outputs = [spec for spec in op.call.outputs or () if spec.storage is not None]
        given = {spec.storage for spec in inputs}
        moved = moves_to_memory(op.call)
        if moved:
            given |= {spec.storage for spec in outputs}
        changing = changes_argument(op.call)
        view = not changing and bool(outputs) and all(spec.storage in given for spec in outputs)
        makers = sorted({owner[s] for s in given if s is not None and s in owner})
        made_from.append(tuple(makers))
        inputs_vary = [s is None or varies.get(s, s not in fixed) for s in given]
        same = numbers.known(place, op, constant) and _is_constant(op, inputs_vary)
        numbers.read_by(op, any(inputs_vary))
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


def _never_written(facts: Facts) -> frozenset[int]:
    """The storages that no step changes, as far as this one shows."""
    # An op on lists returns nothing, and may change any of what it is given.
    written = {
        spec.storage
        for op in facts.ops
        if changes_argument(op.call)
        for spec in op.call.outputs or op.call.tensors
    }
    return facts.fixed_storages - written


class _Numbers:
    """Which ops have the same numbers as arguments at each step.

    Those that are shown to be: the op had them in another recorded step. A number that the host
    read of data may become one: of two steps on the same data only the host knows what it was for.
    """

    def __init__(self, facts: Facts) -> None:
        self._read = False
        self._host_reads: dict[int, list[int | None]] = defaultdict(list)
        for before, maker in facts.host_reads:
            self._host_reads[before].append(maker)

    def known(self, place: int, op: OpFact, constant: set[int]) -> bool:
        """Whether the op's numbers do not change; asked of each op in order."""
        self._read |= any(maker not in constant for maker in self._host_reads.get(place, ()))
        if op.varies:
            return False
        return not list(numbers_in(op.call.args)) or (op.varies is False and not self._read)

    def read_by(self, op: OpFact, varies: bool) -> None:
        """What the op reads back, whose input ``varies`` or not.

        A truth decides on what runs next, and is in no argument. What was another number in
        another step, where later ops had the same, is in none of these.
        """
        if op.name != READ_OF_ONE_VALUE or op.phase in ("backward", "optimizer"):
            return
        truth = all(spec.dtype == "bool" for spec in op.call.tensors)
        self._read |= varies and not truth and not op.varies


def numbers_in(args: Iterable[Arg]) -> Iterator[float]:
    """The numbers among these arguments and in the lists among them."""
    for arg in args:
        if isinstance(arg, tuple):
            yield from numbers_in(arg)
        elif isinstance(arg, (int, float)) and not isinstance(arg, bool):
            yield arg


def changes_argument(call: OpCall) -> bool:
    """Whether the op changes what is in a tensor that it is given."""
    if moves_to_memory(call):
        return False
    if is_inplace(call) or call.overload == "out":
        return True
    # (``sum.IntList_out``, ``max.dim_max``.)
    schema = schema_of(call.name, call.overload) if call.overload else None
    return schema is not None and schema.fills


def moves_to_memory(call: OpCall) -> bool:
    """Whether the op has a tensor stand for other memory, whose content stays what it is.

    Its schema calls that a change of the tensor.
    """
    return call.name == "aten::set_"


def _is_constant(op: OpFact, inputs_vary: Sequence[bool]) -> bool:
    name = op.name.rpartition("::")[2]
    if any(part in name for part in _RANDOM) or op.phase in ("backward", "optimizer"):
        return False
    if op.name in _LIKE:
        # Of the tensor that it is given it takes the shape alone.
        return not changes_argument(op.call)
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
        if place in returned:
            continue
        # A truth decides what runs next: that is no log. What a library reads is not the user's.
        if op.name == READ_OF_ONE_VALUE and (
            FROM in op.source or any(spec.dtype == "bool" for spec in op.call.tensors)
        ):
            continue
        if op.name == READ_OF_ONE_VALUE or (
            flow.reads[place]
            and place not in flow.writes_outside
            and all(reader in found for reader, _ in flow.reads[place])
        ):
            found.add(place)
    return frozenset(found)
