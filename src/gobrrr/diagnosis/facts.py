"""What a fix may look at: a diagnosis as plain data, and what is known of the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gobrrr.attribution.leaves import OF_THE_DEVICE
from gobrrr.observe.program_facts import LoaderFact as LoaderFact
from gobrrr.observe.program_facts import OptimizerFact as OptimizerFact
from gobrrr.observe.program_facts import ProgramFacts
from gobrrr.timeline.data import PHASE_NAMES, Phase
from gobrrr.timeline.names import share_of_graphs
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.timeline.step_kinds import WallTime
from gobrrr.work.estimate import Work

# A fix that cannot save this share of the step is not tried: no measurement here could tell it
# from nothing (the program against itself may be 2 % off before it counts as too noisy).
LEAST_SAVING = 0.02
# The phase of ops that make a batch.
LOADING = PHASE_NAMES[Phase.LOADING]


@dataclass(frozen=True, slots=True)
class OpFact:
    """One op of the step as it was captured, with what is known of it. Times in seconds.

    Attributes:
        call: the op with its arguments, as far as they were recorded.
        work: its least work; ``None`` if unknown.
        count: 1 where the step's order is known (``Facts.in_order``), otherwise the calls that the
            row stands for, of which everything else is the sum.
        kernel_s: of its kernel, without fixed cost.
        fixed_s: its fixed cost.
        host_s: overhead on the way to it.
        roof_s: the part of its kernel at the ceilings; ``None`` if unknown.
        below_s: the rest of its kernel; ``None`` if unknown.
        page_faults_s: of fresh outputs, within its kernel.
        nodes: of autograd that it makes for a backward pass; ``None`` where not recorded.
        varies: whether it had other arguments (numbers, shapes), or read another number back, in
            another recorded step; ``None`` where no other step tells.
        grows: whether it puts together what it made itself in the step before, and more.
        records: whether gradients were recorded while it ran in a backward pass.
    """

    call: OpCall
    work: Work | None = None
    count: float = 1.0
    kernel_s: float = 0.0
    fixed_s: float = 0.0
    host_s: float = 0.0
    roof_s: float | None = None
    below_s: float | None = None
    page_faults_s: float = 0.0
    module: str = ""
    source: str = ""
    phase: str = ""
    nodes: int | None = None
    varies: bool | None = None
    grows: bool = False
    records: bool = False

    @property
    def name(self) -> str:
        """Qualified name of the op, without overload."""
        return self.call.name

    @property
    def time_s(self) -> float:
        """Kernel and fixed cost."""
        return self.kernel_s + self.fixed_s

    @property
    def matrix_flops(self) -> float | None:
        """FLOPs for the matrix unit."""
        return None if self.work is None else self.work.matrix_flops

    @property
    def vector_flops(self) -> float | None:
        """All other FLOPs."""
        return None if self.work is None else self.work.vector_flops

    @property
    def special(self) -> float:
        """Transcendental functions among them."""
        return 0.0 if self.work is None else self.work.special

    @property
    def bytes_moved(self) -> int | None:
        """Bytes read and written."""
        return None if self.work is None else self.work.bytes_moved

    @property
    def fresh_bytes(self) -> int:
        """Bytes of newly allocated outputs."""
        return 0 if self.work is None else self.work.fresh_bytes

    @property
    def op_class(self) -> str:
        """Class of its work; ``unknown`` where that is."""
        return "unknown" if self.work is None else self.work.op_class

    @property
    def dtype(self) -> str | None:
        """What it computes in."""
        return None if self.work is None else self.work.compute_dtype or None

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of its tensor arguments, in order."""
        return tuple(spec.shape for spec in self.call.tensors)

    @property
    def reads(self) -> tuple[tuple[int, float], ...]:
        """(storage, bytes) of the tensors that its kernel reads."""
        return _storages(self.call.tensors) if self.time_s > 0 else ()

    @property
    def writes(self) -> tuple[tuple[int, float], ...]:
        """(storage, bytes) of the tensors that its kernel makes."""
        return _storages(self.call.outputs or ()) if self.time_s > 0 else ()


def _storages(tensors: Iterable[TensorSpec]) -> tuple[tuple[int, float], ...]:
    sizes: dict[int, float] = {}
    for spec in tensors:
        if spec.storage is not None:
            sizes[spec.storage] = max(sizes.get(spec.storage, 0.0), float(spec.unique_bytes or 0))
    return tuple(sizes.items())


@dataclass(frozen=True, slots=True)
class IdleFact:
    """Overhead by cause (a leaf without ``overhead.``) and line, seconds per step."""

    cause: str
    time_s: float
    source: str | None = None
    detail: str | None = None


class AttentionCall(NamedTuple):
    """A line that calls ``scaled_dot_product_attention``, and what keeps it from being fused.

    ``drops``: with dropout. ``strided``: on rows that are not contiguous, and nothing else is in
    the way.
    """

    line: str
    drops: bool
    strided: bool = False


class RankFact(NamedTuple):
    """A rank of a job: its step and what it waits for others in it, seconds; ``None``: unknown."""

    rank: int
    step_s: float
    wait_s: float | None


@dataclass(frozen=True)
class Facts:
    """One diagnosed step.

    Attributes:
        step_s: median seconds per unprofiled step.
        leaves: seconds per leaf of the accounting.
        ops: the step's ops that do work, in order if ``in_order``.
        idle: overhead by cause and line.
        ceilings: rates by ceiling name (FLOP/s, B/s, s).
        memory_rates: bytes/s of the last memory level by write fraction.
        instruction_sets: of a processor, those that matter to arithmetic (``avx512_bf16``);
            ``None``: unknown, as of a recording.
        environment: of the variables that set an allocator, those that are set; ``None``: unknown.
        dispatch_s: seconds of the smallest operator when the step was diagnosed.
        threads: intra-op threads of torch; ``processors`` are those the process may use.
        is_script: an unmodified script (``in_script``) rather than a workload (``apply``).
        step_source: what ends a script's steps (``live.steps.PRECEDENCE``).
        compiles_by_method: whether ``module.compile()`` compiles a script's outermost module that
            has parameters; false where another came last.
        can_restart: the trial runs in a process of its own, whose environment can be set.
        unused_gradients: parameters that get gradients and are in no optimizer.
        unused_come_first: they all come before those that train.
        modules: classes of the parts of a model that gobrrr was given, or of a script's.
        parameters: tensors among the parameters of the modules that the step uses, whether they
            were given or are used by a function; ``None`` where no module is seen.
        buffer_dtypes: floating-point types among their buffers, as ``parameter_dtypes``.
        fixed_storages: of parameters and buffers, where no step changes them.
        weight_storages: of parameters, whether a step changes them or not.
        returned: the tensors that outlive a step (returned, or kept in an object) and those that
            the host reads whole, each with the op that made it (its place in ``ops``); ``None``
            where that is unknown.
        host_reads: tensors that the host reads whole (``tolist``, ``numpy``): how many ops came
            before, and which op made it (``None``: it was there before the step).
        module_classes: the class of each module by the name that ops carry, where it is known.
        parametrized: modules whose weight is computed from others before each call (weight norm,
            spectral norm).
        graphs_kept: lines that go back through a graph and keep it for another time.
        attention_calls: lines that call ``scaled_dot_product_attention``, each way once.
        workload: the program's parts, where gobrrr has them.
        wall: what the wall time goes to beside the steps; ``None``: unknown.
        mean_s: of all steps that were seen, seconds; ``None``: unknown.
        slow_s: the lengths of steps that took much longer than the median.
        varying: steps differ in size.
        ranks: of a job whose ranks were compared, and which of them the others wait for
            (``slowest_rank``); known once all have told. ``uneven_s``: how much longer per step
            the rank with the most to do runs than the ranks do in the mean, whichever it is.
        program: what is known of the program beside its steps; ``None`` of a recording.
    """

    step_s: float
    leaves: Mapping[str, float]
    ops: tuple[OpFact, ...] = ()
    in_order: bool = True
    idle: tuple[IdleFact, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    ceilings: Mapping[str, float] = field(default_factory=dict)
    device_kind: str = "cpu"
    device_name: str = ""
    memory_bytes: int | None = None
    instruction_sets: tuple[str, ...] | None = None
    dispatch_s: float | None = None
    threads: int = 1
    processors: int = 1
    torch_version: str = ""
    has_compiler: bool = False
    has_memory_budget: bool = False
    trains: bool = False
    compiled: bool = False
    is_script: bool = False
    step_source: str = ""
    compiles_by_method: bool = False
    can_restart: bool = False
    in_no_grad: bool = False
    parameter_dtypes: tuple[str, ...] = ()
    buffer_dtypes: tuple[str, ...] = ()
    parameters: int | None = None
    unused_gradients: int | None = None
    unused_gradients_share: float | None = None
    unused_come_first: bool = False
    checkpoints: bool = False
    modules: tuple[str, ...] = ()
    module_classes: Mapping[str, str] = field(default_factory=dict)
    optimizers: tuple[OptimizerFact, ...] = ()
    loaders: tuple[LoaderFact, ...] = ()
    applied: frozenset[str] = frozenset()
    environment: Mapping[str, str] | None = None
    batch_size: int | None = None
    input_channels_last: bool = False
    random: bool = False
    fixed_storages: frozenset[int] = frozenset()
    weight_storages: frozenset[int] = frozenset()
    returned: tuple[tuple[int, TensorSpec], ...] | None = None
    host_reads: tuple[tuple[int, int | None], ...] = ()
    parametrized: int = 0
    graphs_kept: tuple[str, ...] = ()
    attention_calls: tuple[AttentionCall, ...] = ()
    workload: Any = None
    wall: WallTime | None = None
    mean_s: float | None = None
    slow_s: tuple[float, ...] = ()
    varying: bool = False
    ranks: tuple[RankFact, ...] = ()
    slowest_rank: int | None = None
    uneven_s: float | None = None
    program: ProgramFacts | None = None

    def leaf_s(self, *names: str) -> float:
        """Sum of the leaves whose names are, or start with, one of ``names``."""
        return sum(
            value
            for leaf, value in self.leaves.items()
            if any(leaf == name or leaf.startswith(name + ".") for name in names)
        )

    @property
    def loading_s(self) -> float:
        """What a step takes to get its data: the wait, and ops that make a batch meanwhile.

        The way to these ops is a part of the wait already.
        """
        ops = (op for op in self.ops if op.phase == LOADING)
        return self.leaf_s("overhead.data_loading") + sum(op.time_s for op in ops)

    @property
    def host_overhead_s(self) -> float:
        """Overhead that the host is the cause of: without what is the device's own."""
        return self.leaf_s("overhead") - self.leaf_s(*OF_THE_DEVICE)

    @property
    def in_graphs(self) -> float:
        """Of the step's kernels, the share that launches of CUDA graphs ran."""
        return share_of_graphs(self.counters)

    def rate(self, name: str) -> float | None:
        """A ceiling's value; ``None`` if there is none."""
        return self.ceilings.get(name)

    @property
    def steps_share(self) -> float:
        """Of the wall time, what the steps take; 1 where nothing else is known."""
        return 1.0 if self.wall is None else self.wall.steps_share

    @property
    def autograd_nodes(self) -> int | None:
        """Nodes of autograd that the step makes; ``None`` where they were not recorded."""
        known = [op.nodes for op in self.ops if op.nodes is not None]
        return sum(known) if len(known) == len(self.ops) else None

    @property
    def on_gpu(self) -> bool:
        """Whether the step ran on a GPU."""
        return self.device_kind not in ("cpu", "")

    @property
    def dram_bytes_per_s(self) -> float | None:
        """Rate of a copy between two places of the largest memory level."""
        return self.rate("memory.dram.copy") or self.rate("memory.hbm.copy")

    def named(self, *names: str) -> tuple[OpFact, ...]:
        """The ops with one of these names."""
        return tuple(op for op in self.ops if op.name in names)

    def of_class(self, *classes: str) -> tuple[OpFact, ...]:
        """The ops of one of these classes."""
        return tuple(op for op in self.ops if op.op_class in classes)


def lines_of(ops: Iterable[OpFact], most: int = 3) -> tuple[str, ...]:
    """The lines that spend the most time on these ops, longest first."""
    spent: dict[str, float] = {}
    for op in ops:
        if op.source:
            spent[op.source] = spent.get(op.source, 0.0) + op.time_s
    return tuple(sorted(spent, key=lambda line: -spent[line])[:most])
