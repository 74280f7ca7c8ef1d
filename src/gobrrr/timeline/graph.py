"""The operators that a step would run, in order, with the memory they share: a graph by storages.

What a capture without computing leaves behind. An operator reads what an earlier one wrote exactly
if their tensors carry the same storage id; no edges are stored beside that, but for operators that
run in several streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from gobrrr.timeline.data import Phase
from gobrrr.timeline.ops import OpCall


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """What this rank asks of a process group.

    Attributes:
        kind: ``"all_reduce"`` and so on, a value of ``prediction.mesh.collectives.Collective``.
        n_bytes: as NCCL's tests count them: the buffer that is reduced or broadcast, all that is
            gathered, all that is scattered.
        group: name of the group; the collectives of one run one after the other.
        ranks: of the job, those that take part.
    """

    kind: str
    n_bytes: int
    group: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepOp:
    """One operator call of a step: run, recorded, or captured without computing.

    Attributes:
        call: its arguments (schema order) and outputs; of a captured one every tensor carries
            storage id, strides, offset and device.
        module: path of the innermost module it ran in, ``"layers.0.mlp"``; the root's class name
            for ops of the root itself; ``""`` outside modules. An operator of backward belongs to
            the module of the forward operator it derives from.
        source: the user's line that called it, ``"train.py:88 in get_batch"`` or ``"file.py:12"``;
            for an operator of backward, of the forward; ``""`` where unknown.
        phase: forward, backward, optimizer, loading (of a batch, in a data loader's iterator) or
            other.
        thread: the operating system's identifier; 0 where it did not run.
        page_faults: minor faults of the process while it ran.
        nodes: of autograd, made since the op before: the record of this op for a backward pass.
        start_ns, end_ns: on the clock ``time.perf_counter_ns``; 0 where it was not timed.
        stream: of the device, in which its kernels run in order; 0 is the one that computes.
        after: positions in the step of ops in other streams that its kernels wait for; below zero
            (``gobrrr.timeline.streams.step_before``) all that a stream ran in the step before.
        collective: what it asks of other ranks; ``None`` of an operator that asks nothing.
        read: the number that it gave to the host (``.item()``); ``None`` if it gave none.
        varies: whether it had other arguments (numbers, shapes), or gave another number, in
            another recorded step; ``None`` where no other step tells.
        grows: whether it puts together what it made itself in the recorded step before, and more.
        by_library: whether an optimizer that is not the user's own gave the number to the host.
        records: whether gradients were recorded while it ran in a backward pass, as they are where
            that computes something again or is to be differentiated itself.
        update: of a captured op of the optimizer phase, how many optimizer steps had begun by then
            in the step; 0 before the first and of all other ops.
    """

    call: OpCall
    module: str = ""
    source: str = ""
    phase: Phase = Phase.OTHER
    thread: int = 0
    page_faults: int = 0
    nodes: int = 0
    start_ns: int = 0
    end_ns: int = 0
    stream: int = 0
    after: tuple[int, ...] = ()
    collective: CollectiveCall | None = None
    read: bool | int | float | complex | None = None
    varies: bool | None = None
    grows: bool = False
    by_library: bool = False
    records: bool = False
    update: int = 0


@dataclass(frozen=True, slots=True)
class StorageLife:
    """One storage on the device: its bytes, and the positions of the ops between which it lives.

    ``born``: the op that makes it, -1 if it is there before the step. ``died``: the op during
    which it goes, ``None`` if it outlives the step.
    """

    n_bytes: int
    born: int
    died: int | None


def peak_of(lives: Iterable[StorageLife], ops: int) -> int:
    """The most bytes of these alive at once, over ops 0 to ``ops``.

    A storage lives from the op that made it up to the op during which it was freed: that op's
    results exist before its arguments go.
    """
    change = [0] * (ops + 2)
    for life in lives:
        change[max(life.born, 0)] += life.n_bytes
        change[min(ops if life.died is None else life.died, ops) + 1] -= life.n_bytes
    return max(accumulate(change))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the model, and when a backward pass has its gradient.

    Attributes:
        name: its path, ``"layers.0.mlp.weight"``.
        unit: path of the block that it belongs to, ``"layers.0"``; ``""`` outside blocks.
        storage: its number in the graph.
        shape: in elements.
        dtype: ``"bfloat16"``.
        n_bytes: of its elements.
        gradient: number of its gradient's storage; ``None`` without one in this step.
        ready: as many ops of the step have been issued when the gradient is complete.
        stored: dtype of its shards, where they are cast for computing; ``""`` is ``dtype``.
    """

    name: str
    unit: str
    storage: int
    shape: tuple[int, ...]
    dtype: str
    n_bytes: int
    gradient: int | None = None
    ready: int | None = None
    stored: str = ""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What parallelism over several devices depends on.

    Attributes:
        parameters: each once, in the order of ``model.named_parameters()``.
        units: paths of the blocks, in the order of the model.
        buffer_bytes: of the model's buffers, by dtype.
        whole: units that stay gathered between forward and backward pass, where they are sharded;
            ``""`` is the root.
        passes: how often the step computes a gradient of the same parameter.
    """

    parameters: tuple[Parameter, ...]
    units: tuple[str, ...]
    buffer_bytes: tuple[int, ...] = ()
    whole: frozenset[str] = frozenset({""})
    passes: int = 1


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What a program has wrapped its model in, and how; the defaults are torch's.

    Attributes:
        kind: ``"ddp"`` or ``"fsdp"``.
        ranks: over which.
        copies: ranks that hold the same shard, of ``"fsdp"`` over two dimensions.
        reduce_dtype: that gradients are reduced in; ``""`` is their own.
        bucket_bytes: of DDP's buckets, the first among them; ``None``: 25 MiB, the first 1 MiB.
        bucket_views: whether gradients are views of DDP's buckets.
        finds_unused: whether DDP looks for parameters without a gradient in each step.
        broadcasts: whether DDP makes the buffers of all ranks alike before each forward pass.
    """

    kind: str
    ranks: tuple[int, ...]
    copies: tuple[int, ...] = (0,)
    reduce_dtype: str = ""
    bucket_bytes: int | None = None
    bucket_views: bool = False
    finds_unused: bool = False
    broadcasts: bool = True


@dataclass(frozen=True, slots=True)
class OpGraph:
    """The operators of one step, in the order in which the framework would issue them.

    Attributes:
        ops: views included; an operator that launches nothing is told by its work.
        kept: storages that outlive the step: parameters, gradients, optimizer state, results. What
            writes one of them cannot be fused away.
        parameters: storages of parameters.
        inputs: storages that existed before the step and are not parameters (data, buffers).
        sizes_bytes: size of each storage named in ``ops``.
        peak_memory_bytes: most bytes of storages alive at once on the device, parameters and
            optimizer state included, the allocator's rounding and workspaces not.
        notices: sentences for the user about what could not be captured as it would run.
        lives: of every storage on the device, by its number.
        model: ``None`` where it was not asked for.
        wrapping: of the model, by the program itself; ``None`` without one.
        divided: over how many devices the capture has divided the model's layers.
        undivided: linear layers and attentions that it then left whole, a ``*`` for each number in
            their paths.
    """

    ops: tuple[StepOp, ...]
    kept: frozenset[int]
    parameters: frozenset[int]
    inputs: frozenset[int]
    sizes_bytes: Mapping[int, int]
    peak_memory_bytes: int | None
    notices: tuple[str, ...] = ()
    lives: Mapping[int, StorageLife] = field(default_factory=dict)
    model: ModelFacts | None = None
    wrapping: Wrapping | None = None
    divided: int = 1
    undivided: tuple[str, ...] = ()
