"""What each operator of a captured step will cost on a device, and how the host sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gobrrr.models.carrying import WITHOUT_TF32, work_on
from gobrrr.models.compiled import compiled_kernels
from gobrrr.models.host_lane import HostCall
from gobrrr.models.kernel_model import Flags, KernelEstimate, estimate_op, work_with_flags
from gobrrr.models.residency import cold_bytes_of_step
from gobrrr.models.roof import Roof, roof_of
from gobrrr.models.target import TargetDevice
from gobrrr.timeline.data import Phase
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import OpGraph, StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from gobrrr.work.estimate import Work

# What waits for the device before the host goes on.
_READS_DEVICE = frozenset({"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero",
                           "aten::nonzero", "aten::masked_select", "aten::_unique2",
                           "aten::equal"})  # fmt: skip


class NoPathError(InputError):
    """An op cannot run on a device, which has no unit for its dtype."""


@dataclass(frozen=True, slots=True)
class CostedOp:
    """One operator, or one kernel of a compiled step, with its cost.

    Attributes:
        op: the operator, and where it comes from.
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
    """

    op: StepOp
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

    @property
    def host_call(self) -> HostCall:
        """The operator as the host sees it."""
        call = self.op.call
        reads = call.name in _READS_DEVICE and not _on_host(call)
        waits = reads or (self.is_copy and _to_host(call))
        return HostCall(self.kernels, self.op.phase, synchronises=waits)


@dataclass(frozen=True, slots=True)
class CostedStep:
    """The operators of a step in order, and what had to be approximated, as sentences."""

    ops: tuple[CostedOp, ...]
    notices: tuple[str, ...]


def cost_graph(
    graph: OpGraph, device: TargetDevice, *, flags: Flags, compiled: bool = False
) -> CostedStep:
    """Cost every operator of the graph; with ``compiled``, what Inductor would leave of it.

    The optimizer stays as it is in a compiled step: ``torch.compile(model)`` does not reach it.

    Raises:
        NoPathError: an operator has a dtype that the device has no path for.
    """
    placed = _compiled(graph, device) if compiled else _with_work(graph.ops)
    calls = [op.call for op, _ in placed]
    cold = cold_bytes_of_step(calls, device.cache_bytes)
    notices: Counter[str] = Counter()
    known: dict[tuple[OpCall, tuple[int, ...], float], CostedOp] = {}
    ops = []
    for (op, work), cold_bytes in zip(placed, cold):
        key = (op.call, op.call.sharing, cold_bytes)
        found = known.get(key)
        if found is None or _on_host(op.call):
            found = known[key] = _cost(op, work, device, flags, cold_bytes, notices)
        ops.append(replace(found, op=op))
    return CostedStep(tuple(ops), tuple(sorted(notices)))


def _with_work(ops: Sequence[StepOp]) -> list[tuple[StepOp, Work | None]]:
    works: dict[tuple[OpCall, tuple[int, ...]], Work | None] = {}
    found = []
    for op in ops:
        key = (op.call, op.call.sharing)
        if key not in works:
            works[key] = work_of(op.call)
        found.append((op, works[key]))
    return found


def _compiled(graph: OpGraph, device: TargetDevice) -> list[tuple[StepOp, Work | None]]:
    model = [op for op in graph.ops if op.phase is not Phase.OPTIMIZER]
    rest = [op for op in graph.ops if op.phase is Phase.OPTIMIZER]
    kernels = compiled_kernels(model, graph.kept, multiprocessors=device.multiprocessors)
    found: list[tuple[StepOp, Work | None]] = [
        (StepOp(k.call, _common(k.modules), _common(k.sources), k.phase), k.work) for k in kernels
    ]
    return found + _with_work(rest)


def _common(names: Sequence[str]) -> str:
    return names[0] if names else ""


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
    op: StepOp,
    work: Work | None,
    device: TargetDevice,
    flags: Flags,
    cold_bytes: float,
    notices: Counter[str],
) -> CostedOp:
    call = op.call
    plain = CostedOp(op, work, None, 0.0, 0.0, 0, 1)
    if device.kind != "cpu" and _on_host(call):
        lists = [len(arg) for arg in call.args if isinstance(arg, tuple)]
        return replace(plain, host_calls=max([1, *lists]), work=None, roof=None)
    if call.name in _READS_DEVICE and work is None:
        return plain
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


def _of_estimate(plain: CostedOp, found: KernelEstimate, device: TargetDevice) -> CostedOp:
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
    is most of the time, neither bytes nor arithmetic are what the time goes to.
    """
    fixed_s = min(found.fixed_s, found.time_s)
    if device.kind == "cpu":
        return fixed_s
    size_s = max(found.compute_s, found.traffic_s, found.roof.time_s)
    if found.time_s <= _SHORT * fixed_s and found.roof.time_s <= 0.1 * found.time_s:
        # One padded tile at the pace of its dependent steps: its arithmetic is latency too.
        size_s = found.roof.time_s
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
            "there; keep the weights in it and multiply in bfloat16 or float16"
        )
    wide = work_on(work, device)
    if wide is work:
        return work, None
    notices[computed_in_float32(dtype, device.key)] += 1
    return wide, estimate_op(call, wide, device, flags=WITHOUT_TF32, cold_bytes=cold_bytes)


def computed_in_float32(dtype: str, device: str) -> str:
    """The notice about products of a 16-bit dtype on a device without a unit for it."""
    return f"No matrix path for {dtype} on {device}: it is computed in float32."


def _copy(plain: CostedOp, device: TargetDevice, notices: Counter[str]) -> CostedOp:
    """A copy between host and device at the link's rate one way."""
    spec = (plain.op.call.outputs or plain.op.call.tensors)[0]
    size = spec.unique_bytes or 0
    direction = "copy.d2h" if _to_host(plain.op.call) else "copy.h2d"
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


def _traffic_alone(plain: CostedOp, device: TargetDevice, notices: Counter[str]) -> CostedOp:
    """An operator without a formula or a ceiling: reading its arguments, writing its results."""
    call = plain.op.call
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
        f"{reason} is taken to read its arguments and write its results once, the least that it "
        "can take, and counts as unmodelled."
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
