"""What each operator of a captured step will cost on a device, and how the host sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gobrrr.prediction.kernels.carrying import WITHOUT_TF32, work_on
from gobrrr.prediction.kernels.kernel_model import (
    Flags,
    KernelEstimate,
    estimate_op,
    work_with_flags,
)
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.step.graph_replays import COPY, GraphedOps, graphed
from gobrrr.prediction.step.host_lane import HostCall, Launch
from gobrrr.prediction.step.host_weights import host_weight
from gobrrr.roofline.compiled import compiled_kernels
from gobrrr.roofline.residency import MissedBytes, residency_of_step
from gobrrr.roofline.roof import Roof, roof_of
from gobrrr.timeline.data import Phase
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import OpGraph, StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from gobrrr.work.estimate import Work

# What waits for the device before the host goes on.
_READS_DEVICE = frozenset({"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero",
                           "aten::nonzero", "aten::masked_select", "aten::_unique2",
                           "aten::unique_dim", "aten::unique_consecutive", "aten::_coalesce",
                           "aten::bincount", "aten::equal"})  # fmt: skip
# Products of these raise on CUDA ("addmm_cuda" not implemented for 'Long'): neither cuBLAS nor
# PyTorch has any (aten/src/ATen/native/cuda/Blas.cpp;
# https://github.com/pytorch/pytorch/issues/44428).
_INTEGERS = ("int64", "int32", "int16", "bool")


class NoPathError(InputError):
    """An op cannot run on a device, which has no unit or no kernel for its dtype."""


@dataclass(frozen=True, slots=True, eq=False)
class OpCost:
    """What an operator costs, or one kernel of a compiled step: one object for all that are alike.

    Attributes:
        call: of the first of them, with what it does not find in each level of memory.
        work: in the format that its multiplications run in; ``None`` without a formula.
        roof: ``None`` without a formula or a ceiling.
        device_s: its kernels, fixed cost included; 0 if it launches none.
        fixed_s: the fixed cost in it: what its kernels take without any work, and where that is
            most of ``device_s`` their latency as well.
        page_faults_s: the page faults in it, on a processor.
        kernels: how many it launches.
        host_calls: how many host calls it takes (a list of tensors on the host: one for each).
        is_copy: between host and device.
        known: whether ``device_s`` comes from the kernel model; else it is its traffic alone.
        because: the arithmetic, as a sentence; ``""`` if there is none.
        cold_bytes: of the bytes it moves, those that come from memory or go there.
        link: of a collective, what it transfers over, shared by those that run at the same time.
        weighted: whether its host time goes by its kind (``step.host_weights``): on a GPU.
    """

    call: OpCall
    work: Work | None
    roof: Roof | None
    device_s: float
    fixed_s: float
    kernels: int
    host_calls: int
    is_copy: bool = False
    known: bool = True
    because: str = ""
    page_faults_s: float = 0.0
    cold_bytes: float = 0.0
    link: str = ""
    weighted: bool = False

    def host_call(self, phase: Phase) -> HostCall:
        """The operator as the host sees it in this part of a step."""
        call = self.call
        reads = call.name in _READS_DEVICE and not _on_host(call)
        waits = reads or (self.is_copy and _to_host(call))
        weight = host_weight(call, phase) if self.weighted else 1.0
        return HostCall(self.kernels, phase, waits, weight)


@dataclass(frozen=True, slots=True)
class CostedOp:
    """One operator of a step, and where it comes from; its cost is shared by all that are alike.

    ``before``: what the host does before it that no op stands for, in additions.
    """

    op: StepOp
    cost: OpCost
    launch: Launch = Launch.BY_ITSELF
    before: float = 0.0

    @property
    def work(self) -> Work | None:
        """Of its cost, as all that follow."""
        return self.cost.work

    @property
    def device_s(self) -> float:
        """Seconds of its kernels."""
        return self.cost.device_s

    @property
    def kernels(self) -> int:
        """How many it launches."""
        return self.cost.kernels

    @property
    def because(self) -> str:
        """The arithmetic, as a sentence."""
        return self.cost.because


@dataclass(frozen=True, slots=True)
class CostedStep:
    """The operators of a step in order, and what had to be approximated, as sentences."""

    ops: tuple[CostedOp, ...]
    notices: tuple[str, ...]


def cost_graph(
    graph: OpGraph,
    device: TargetDevice,
    *,
    flags: Flags,
    compiled: bool = False,
    cuda_graphs: bool = False,
    kernels: Mapping[int, Work | None] | None = None,
) -> CostedStep:
    """Cost every operator of the graph; with ``compiled``, what Inductor would leave of it.

    The optimizer stays as it is in a compiled step: ``torch.compile(model)`` does not reach it.
    ``cuda_graphs``: the kernels of each of its passes are launched together (``graph_replays``).
    ``kernels``: the work of calls that no formula covers (those of a compiler), by their identity.

    Raises:
        NoPathError: an operator has a dtype that the device has no path for.
    """
    notices: Counter[str] = Counter()
    ops = graph.ops
    given = kernels or {}
    if compiled:
        ops, given = _compiled(graph, device)
    in_graph: Sequence[int] = (0,) * len(ops)
    if cuda_graphs:
        made = graphed(ops, graph.inputs, _is_captured)
        ops, in_graph = made.ops, made.graph
        notices[_launched_as(made)] += 1
    calls = [op.call for op in ops]
    missed, cold = residency_of_step(calls, device.ceilings, device.cache_bytes)
    alike: dict[object, int] = {}
    work_of_alike: list[Work | None] = []
    known: dict[tuple[int, MissedBytes, float], OpCost] = {}
    found = []
    launched = 0
    for op, beyond, cold_bytes, number_of_graph in zip(ops, missed, cold, in_graph):
        # A kernel's name and tensors do not say what a compiler has put into it.
        own = (given[id(op.call)],) if id(op.call) in given else ()
        number = alike.setdefault((op.call.likeness, own), len(alike))
        if number == len(work_of_alike):
            work_of_alike.append(own[0] if own else work_of(op.call))
        key = (number, beyond, cold_bytes)
        cost = known.get(key)
        if cost is None:
            call = replace(op.call, missed=beyond) if beyond else op.call
            work = work_of_alike[number]
            cost = known[key] = _cost(call, work, device, flags, cold_bytes, notices)
        launch = Launch.BY_ITSELF
        if number_of_graph:
            first = cost.kernels > 0 and number_of_graph > launched
            launch = Launch.OF_GRAPH if first else Launch.IN_GRAPH
            launched = number_of_graph if first else launched
        found.append(CostedOp(op, cost, launch))
    return CostedStep(tuple(found), tuple(sorted(notices)))


def _compiled(
    graph: OpGraph, device: TargetDevice
) -> tuple[tuple[StepOp, ...], dict[int, Work | None]]:
    """The kernels of the model and the optimizer's ops; the kernels' work as in ``cost_graph``."""
    model = [op for op in graph.ops if op.phase is not Phase.OPTIMIZER]
    rest = [op for op in graph.ops if op.phase is Phase.OPTIMIZER]
    kernels = compiled_kernels(model, graph.kept, multiprocessors=device.multiprocessors)
    ops = (*(kernel.step_op for kernel in kernels), *rest)
    return ops, {id(kernel.call): kernel.work for kernel in kernels}


def _is_captured(call: OpCall) -> bool:
    """Whether a CUDA graph can hold it: it neither works on the host nor copies there or waits."""
    return not (_on_host(call) or _crosses(call) or call.name in _READS_DEVICE)


def _launched_as(made: GraphedOps) -> str:
    held = sum(number > 0 for number in made.graph)
    # A program copies lists too; those of a graph's inputs stand right before it.
    following = zip(made.ops, made.graph, (*made.graph[1:], 0))
    copies = sum(op.call.name == COPY and not now and then > 0 for op, now, then in following)
    graphs = max(made.graph, default=0)
    return (
        f"reduce-overhead: {held:,} ops in {graphs:,} CUDA graph{'s' * (graphs != 1)}, each "
        f"launched at the host's cost of one op, and copies of inputs before {copies:,} of them."
    )


def _on_host(call: OpCall) -> bool:
    tensors = (*call.tensors, *(call.outputs or ()))
    return bool(tensors) and all(t.device == "cpu" for t in tensors)


def _to_host(call: OpCall) -> bool:
    return bool(call.outputs) and all(t.device == "cpu" for t in call.outputs or ())


def _crosses(call: OpCall) -> bool:
    """Whether the operator copies between host and device."""
    outputs = call.outputs or ()
    if call.name not in ("aten::_to_copy", "aten::copy_", "aten::clone") or not outputs:
        return False
    kinds = {t.device == "cpu" for t in (*call.tensors, *outputs)}
    return len(kinds) == 2 and any((t.numel > 0) for t in outputs)


def _cost(
    call: OpCall,
    work: Work | None,
    device: TargetDevice,
    flags: Flags,
    cold_bytes: float,
    notices: Counter[str],
) -> OpCost:
    on_gpu = device.kind in ("cuda", "hip")
    plain = OpCost(call, work, None, 0.0, 0.0, 0, 1, cold_bytes=cold_bytes, weighted=on_gpu)
    if device.kind != "cpu" and _on_host(call):
        lists = [len(arg) for arg in call.args if isinstance(arg, tuple)]
        return replace(plain, host_calls=max([1, *lists]), work=None, roof=None)
    if call.name in _READS_DEVICE and work is None:
        return plain
    if call.outputs and not any(each.numel for each in call.outputs):
        # PyTorch launches nothing for a result without elements.
        return replace(plain, work=None)
    if _crosses(call):
        return _copy(plain, device, notices)
    if work is not None:
        done = work_with_flags(call, work, device, flags)
        found = estimate_op(call, work, device, flags=flags, cold_bytes=cold_bytes)
        if found is None:
            done, found = _other_path(call, done, device, flags, cold_bytes, notices)
        if found is not None:
            return _of_estimate(replace(plain, work=done), found, device)
    return _traffic_alone(plain, device, notices)


def _of_estimate(plain: OpCost, found: KernelEstimate, device: TargetDevice) -> OpCost:
    return replace(
        plain,
        roof=found.roof,
        device_s=found.time_s,
        fixed_s=_fixed_s(found, device),
        kernels=found.kernels,
        because=found.because,
        page_faults_s=found.page_faults_s,
    )


# A kernel no longer than this many empty ones, far below its roof, is latency from end to end.
_SHORT = 3.0


def _fixed_s(found: KernelEstimate, device: TargetDevice) -> float:
    """What the op's kernels take however small they are.

    Beside an empty kernel's time that is the latency of loads that wait for each other (filling
    the first tile, ...). In a kernel of some size it is part of what lies below the roof; where it
    is most of the time, neither bytes nor arithmetic are what the time goes to. A long chain of
    loads is no such latency: it grows with the data and stands for bytes that come slowly, as it
    does in a recorded step.
    """
    fixed_s = min(found.fixed_s, found.time_s)
    if device.kind == "cpu":
        return fixed_s
    size_s = max(found.compute_s, found.traffic_s, found.roof.time_s)
    if found.time_s <= _SHORT * fixed_s and found.roof.time_s <= 0.1 * found.time_s:
        # One padded tile at the pace of its dependent steps: its arithmetic is latency too.
        size_s = found.roof.time_s
    elif found.time_s > _SHORT * fixed_s:
        size_s += found.waiting_s
    least_s = max(found.time_s - size_s, fixed_s)
    return least_s if least_s > 0.5 * found.time_s else fixed_s


def _other_path(
    call: OpCall,
    work: Work,
    device: TargetDevice,
    flags: Flags,
    cold_bytes: float,
    notices: Counter[str],
) -> tuple[Work, KernelEstimate | None]:
    """What PyTorch does where the device has no unit for the dtype."""
    dtype = work.compute_dtype
    if roof_of(work, device.ceilings) is not None or not work.matrix_flops:
        return work, None
    if dtype.startswith("float8") or dtype in ("int8", "uint8"):
        raise NoPathError(
            f"no matrix path for {dtype} on {device.key}: {call.name.partition('::')[2]} raises "
            f"there; store the weights in {dtype} and multiply in bfloat16 or float16"
        )
    if device.kind in ("cuda", "hip") and dtype in _INTEGERS:
        raise NoPathError(
            f"PyTorch has no GPU kernel for products of {dtype}: {call.name.partition('::')[2]} "
            f"raises on {device.key}; convert to float32 or float64 before it"
        )
    wide = work_on(work, device)
    if wide is work:
        return work, None
    notices[computed_in_float32(dtype, device.key)] += 1
    return wide, estimate_op(call, wide, device, flags=WITHOUT_TF32, cold_bytes=cold_bytes)


def computed_in_float32(dtype: str, device: str) -> str:
    """The notice about products of a 16-bit dtype on a device without a unit for it."""
    return f"No matrix path for {dtype} on {device}: it is computed in float32."


def _copy(plain: OpCost, device: TargetDevice, notices: Counter[str]) -> OpCost:
    """A copy between host and device at the link's rate one way."""
    spec = (plain.call.outputs or plain.call.tensors)[0]
    size = spec.unique_bytes or 0
    direction = "copy.d2h" if _to_host(plain.call) else "copy.h2d"
    rate = device.ceilings.value(direction)
    if rate is None:
        both = device.ceilings.value("interconnect.pcie")
        # The sheet states both directions together.
        rate = None if both is None else both / 2
    if rate is None:
        notices[
            f"Copies between host and {device.key} are left out: the rate of its link is unknown."
        ] += 1
        return replace(plain, is_copy=True, work=None, known=False)
    return replace(plain, device_s=size / rate, kernels=1, is_copy=True)


def _traffic_alone(plain: OpCost, device: TargetDevice, notices: Counter[str]) -> OpCost:
    """An operator without a formula or a ceiling: reading its arguments, writing its results."""
    call = plain.call
    outputs = call.outputs or ()
    moved = sum(t.unique_bytes or 0 for t in (*call.tensors, *outputs))
    levels = device.ceilings.levels
    if not levels or not moved:
        return replace(plain, known=False)
    seconds = moved / levels[-1].bandwidth_bytes_per_s(0.5)
    if plain.work is None:
        reason = f"No formula for {call.name}: it"
    else:
        reason = f"No ceiling for {plain.work.compute_dtype} on {device.key}: {call.name}"
    notices[
        f"{reason} is assumed to read its arguments and write its results once, the least "
        "possible, and counts as unmodelled."
    ] += 1
    return replace(
        plain,
        device_s=seconds + device.kernel_fixed_s,
        fixed_s=device.kernel_fixed_s,
        kernels=1,
        known=False,
        work=None,
        roof=None,
    )
