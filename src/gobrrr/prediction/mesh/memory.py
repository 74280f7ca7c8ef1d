"""Memory of one rank of a mesh: what is held, by what it is for, where it is most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.prediction.mesh.ddp import bucket_bytes, is_new
from gobrrr.prediction.mesh.fsdp import ROOT, Unit, shard_elements, units_of
from gobrrr.prediction.mesh.mesh import Mesh
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import ModelFacts, OpGraph, Parameter, StepOp, Wrapping
from gobrrr.timeline.ops import ITEM_SIZE_BYTES

_KINDS = ("weights", "gradients", "optimizer", "activations", "buffers")


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one rank at the moment when it holds most.

    Attributes:
        weights: parameters, or this rank's shards of them.
        gradients: complete ones, whole until they are scattered.
        optimizer: its state.
        activations: all else that the step makes or is given.
        buffers: of the communication: parameters gathered, buckets, what is being scattered.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    buffers: int

    @property
    def peak(self) -> int:
        """Of all, the allocator's rounding and the libraries' workspaces not included."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers

    def by_kind(self) -> dict[str, int]:
        """Bytes by what they are for."""
        return dict(asdict(self))


class Levels:
    """Bytes of each kind while each op of a step runs, and when the last has run.

    Attributes:
        passes: which of these moments are in the forward or the backward pass.
    """

    def __init__(self, ops: Sequence[StepOp]) -> None:
        self._ops = len(ops)
        self._change = np.zeros((len(_KINDS), self._ops + 2), np.int64)
        in_pass = [op.phase in (Phase.FORWARD, Phase.BACKWARD) for op in ops]
        self.passes: NDArray[np.bool_] = np.array([*in_pass, False])

    def hold(self, kind: str, n_bytes: int, first: int, last: int | None = None) -> None:
        """From the first op to the last, both included; to the end of the step without a last."""
        row = self._change[_KINDS.index(kind)]
        row[min(max(first, 0), self._ops)] += n_bytes
        row[min(self._ops if last is None else max(last, 0), self._ops) + 1] -= n_bytes

    def by_kind(self) -> dict[str, NDArray[np.int64]]:
        """Bytes at each moment by what they are for."""
        return dict(zip(_KINDS, self._change.cumsum(axis=1)[:, :-1]))

    def most(self) -> RankMemory:
        """Where the sum is largest."""
        return most_of(self.by_kind())


def most_of(held: Mapping[str, NDArray[Any]]) -> RankMemory:
    """Of bytes by kind at each moment, those of the moment when their sum is largest."""
    at = int(np.sum(list(held.values()), axis=0).argmax())
    return RankMemory(**{kind: ceil(row[at]) for kind, row in held.items()})


def rank_memory(graph: OpGraph, facts: ModelFacts, mesh: Mesh) -> RankMemory:
    """Where the first rank holds most; arguments and errors as of ``rank_levels``."""
    return rank_levels(graph, facts, mesh).most()


def rank_levels(graph: OpGraph, facts: ModelFacts, mesh: Mesh) -> Levels:
    """Of the first rank, whose shards are the largest.

    ``graph`` is the step of a single device (or of one of ``mesh.tp`` that share a layer).

    Raises:
        InputError: a parameter cannot be sharded.
    """
    ranks = mesh.fsdp
    own = graph.wrapping or Wrapping("ddp", ())
    units = units_of(graph, facts) if ranks > 1 else []
    left = {each.storage: unit for unit in units for each in unit.parameters}
    over = max([0, *(unit.backward.stop for unit in units)])
    levels = Levels(graph.ops)
    gradient_of = {each.gradient: each for each in facts.parameters if each.gradient is not None}
    parameters = {each.storage: each for each in facts.parameters}
    state, passing = _optimizer_shapes(graph, {*parameters, *gradient_of})
    shapes: dict[tuple[int, ...] | None, Parameter] = {}
    shapes.update((each.shape, each) for each in facts.parameters)
    for number, life in graph.lives.items():
        if number in parameters:
            each = parameters[number]
            shard = _sharded(_stored_bytes(life.n_bytes, each), each.shape, ranks)
            levels.hold("weights", shard, 0)
        elif number in gradient_of:
            each = gradient_of[number]
            if ranks == 1 and own.bucket_views:
                # The bucket is the gradient: what is made is dropped once it has been copied.
                if is_new(graph, each):
                    levels.hold("gradients", life.n_bytes, life.born, (each.ready or 0) - 1)
                continue
            if ranks == 1:
                levels.hold("gradients", life.n_bytes, life.born, life.died)
                continue
            unit = left[each.storage]
            # The root's are scattered last.
            done = over if unit.name == ROOT else unit.backward.stop
            first = max(life.born, unit.backward.start)
            # They are there until they have been copied into what is scattered.
            levels.hold("gradients", life.n_bytes, first, max(done, first))
            shard = _sharded(_stored_bytes(life.n_bytes, each), each.shape, ranks)
            levels.hold("gradients", shard, done if life.born >= 0 else 0, life.died)
        else:
            shape = state.get(number) or passing.get(number)
            size = life.n_bytes
            if shape in shapes:
                size = _sharded(_stored_bytes(size, shapes[shape]), shape, ranks)
            if number in state:
                levels.hold("optimizer", size, 0)
            else:
                levels.hold("activations", size, life.born, life.died)
    if ranks > 1:
        _hold_gathered(levels, units, ranks, over, own.reduce_dtype)
    elif own.kind == "ddp" and (mesh.dp > 1 or graph.wrapping is not None):
        # A wrapper has buckets over one rank as well.
        levels.hold("buffers", bucket_bytes(facts), 0)
    return levels


def _hold_gathered(
    levels: Levels, units: list[Unit], ranks: int, over: int, reduce_dtype: str
) -> None:
    """Parameters gathered, the buffers they are gathered in, and gradients on their way out."""
    root, blocks = units[0], units[1:]
    trains = any(each.ready is not None for unit in units for each in unit.parameters)
    # Each is freed when the one after it has been copied out.
    in_order = [unit for unit in units if unit.parameters]
    for unit, after in pairwise([*in_order, None]):
        if unit is not None:
            end = root.forward.stop - 1 if after is None else after.forward.start
            levels.hold("buffers", unit.gathered_bytes(ranks), unit.forward.start, end)
    for unit in units:
        size = unit.gathered_bytes(ranks)
        forward, backward = unit.forward, unit.backward
        if unit is root:
            backward = range(backward.start, over) if trains else range(0)
        if unit.whole and backward:
            levels.hold("buffers", size, forward.start, backward.stop - 1)
            continue
        levels.hold("buffers", size, forward.start, forward.stop - 1)
        if backward:
            levels.hold("buffers", size, backward.start, backward.stop - 1)
    backwards = [unit for unit in reversed(blocks) if unit.backward]
    for before, unit in pairwise([root, *backwards]):
        # Prefetched while the one before computes.
        if not unit.whole:
            size = unit.gathered_bytes(ranks)
            levels.hold("buffers", size, before.backward.start, unit.backward.start)
    for unit, after in pairwise([*backwards, None]):
        if unit is not None:
            end = over if after is None else after.backward.stop
            size = unit.reduced_bytes(ranks, reduce_dtype)
            levels.hold("buffers", size, unit.backward.stop, end - 1)
    if trains:
        levels.hold("buffers", root.reduced_bytes(ranks, reduce_dtype), over, over)


def _stored_bytes(n_bytes: int, parameter: Parameter) -> int:
    """Of a tensor like the parameter, in the dtype that its shards have."""
    if not parameter.stored:
        return n_bytes
    return n_bytes * ITEM_SIZE_BYTES[parameter.stored] // ITEM_SIZE_BYTES[parameter.dtype]


def _sharded(n_bytes: int, shape: tuple[int, ...] | None, ranks: int) -> int:
    """Bytes of the first rank's padded shard."""
    if ranks == 1 or not shape:
        return n_bytes
    return n_bytes * shard_elements(shape, ranks) // max(prod(shape), 1)


def _optimizer_shapes(
    graph: OpGraph, others: set[int]
) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """Storages that only the optimizer meets: its state, and what it makes and drops again."""
    state: dict[int, tuple[int, ...]] = {}
    passing: dict[int, tuple[int, ...]] = {}
    met = set(others)
    for op in graph.ops:
        for spec in (*op.call.tensors, *(op.call.outputs or ())):
            number = spec.storage
            life = None if number is None else graph.lives.get(number)
            if number is None or life is None or number in met:
                continue
            if op.phase is Phase.OPTIMIZER:
                (state if life.born < 0 else passing).setdefault(number, spec.shape)
            elif number not in state and number not in passing:
                met.add(number)
    return state, passing
