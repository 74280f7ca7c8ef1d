"""The kernels that ``torch.compile`` would leave of a step, by Inductor's own rules.

What is modelled: operators taken apart (normalisations, losses), pointwise work and reductions
fused, products and convolutions left to libraries without epilogues (templates with epilogues are
off unless ``max-autotune`` asks for them), convolutions in channels-last where Inductor's rule says
so, the bias of a convolution fused into what follows. What is not: buffers reused in place, kernels
that read a wide fan of inputs and are split again, recomputation chosen by the partitioner between
forward and backward.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from gobrrr.roofline.dataflow import Dataflow, FlowOp, link
from gobrrr.roofline.fusion import FusedGroup, fuse, tensors_of_group
from gobrrr.roofline.one_hot import one_hots_compared
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import OpGraph, StepOp
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work import work_of
from gobrrr.work.estimate import Work
from gobrrr.work.traits import Role, space_of

_CONVOLUTIONS = ("aten::convolution", "aten::_convolution", "aten::cudnn_convolution",
                 "aten::convolution_backward")  # fmt: skip
# ``GraphLowering.decide_layout_opt`` (torch/_inductor/graph.py): measured time of channels-last
# relative to contiguous, weighted by FLOPs; below 1 in all, the whole graph is converted.
_GROUPED, _DEFAULT, _IN_OUT, _SMALL = 1.358, 0.823, 0.725, 0.783
# There too: graphs with fewer convolutions than this are left alone.
_OPS_PER_CONVOLUTION = 300


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """One kernel of the compiled step, or one call of a library.

    Attributes:
        call: the library's operator, or a name as Inductor makes them
            (``triton_red_fused_add_mean``) with the tensors read, then those written.
        work: its least work; ``None`` if unknown.
        fused: names of the operators in it.
        sources: the user's lines, each once.
        modules: module paths, each once.
        phase: of the first operator.
        split: whether a long reduction in it takes two kernels.
    """

    call: OpCall
    work: Work | None
    fused: tuple[str, ...]
    sources: tuple[str, ...]
    modules: tuple[str, ...]
    phase: Phase
    split: bool = False

    @property
    def step_op(self) -> StepOp:
        """Its place in a step, by the first of its modules and lines."""
        module, source = next(iter(self.modules), ""), next(iter(self.sources), "")
        return StepOp(self.call, module, source, self.phase)


def compiled_graph(
    graph: OpGraph, *, multiprocessors: int | None = None, channels_last: bool | None = None
) -> list[CompiledKernel]:
    """What Inductor would make of a captured step.

    Args:
        graph: the operators of the step.
        multiprocessors: of the device; see ``fusion.fuse``.
        channels_last: whether convolutions run in channels-last; ``None`` for Inductor's rule.
    """
    return compiled_kernels(
        graph.ops, graph.kept, multiprocessors=multiprocessors, channels_last=channels_last
    )


def compiled_kernels(
    ops: Sequence[StepOp],
    kept: Collection[int] = (),
    *,
    multiprocessors: int | None = None,
    channels_last: bool | None = None,
) -> list[CompiledKernel]:
    """The same for a list of operators; ``kept`` are storages that outlive the step."""
    if channels_last is None:
        channels_last = wants_channels_last(ops)
    parts = _taken_apart(one_hots_compared(ops), channels_last)
    flow = link(parts, kept, unread_parts_are_dead=True)
    groups = fuse(flow, multiprocessors=multiprocessors)
    return [_kernel(flow, group) for group in groups]


def wants_channels_last(ops: Sequence[StepOp]) -> bool:
    """Whether Inductor converts the graph's convolutions to channels-last (on a GPU)."""
    convolutions = [op.call for op in ops if op.call.name in _CONVOLUTIONS[:3]]
    if not convolutions or len(ops) >= _OPS_PER_CONVOLUTION * len(convolutions):
        return False
    if any(op.phase is Phase.BACKWARD for op in ops):
        weights = [_weight(call) for call in convolutions]
        return not (
            any(_is_grouped(call) for call in convolutions)
            or any(len(w) > 2 and w[0] * 2 <= w[1] and w[2] > 1 for w in weights)
            or all(len(w) > 2 and w[0] <= 64 and w[1] <= 64 for w in weights)
        )
    total = weighted = 0.0
    for call in convolutions:
        work = work_of(call)
        if work is None or not work.matrix_flops:
            continue
        total += work.matrix_flops
        weighted += work.matrix_flops * _factor(call)
    return weighted <= total


def _weight(call: OpCall) -> tuple[int, ...]:
    spec = call.args[1] if len(call.args) > 1 else None
    return spec.shape if isinstance(spec, TensorSpec) else ()


def _is_grouped(call: OpCall) -> bool:
    weight = _weight(call)
    channels = call.tensors[0].shape[1]
    return len(weight) > 2 and weight[1] > 1 and channels > weight[1]


def _factor(call: OpCall) -> float:
    weight = _weight(call)
    if len(weight) < 3:
        return 1.0
    if _is_grouped(call):
        return _GROUPED
    if weight[0] <= 64 and weight[1] <= 64:
        return _SMALL
    if weight[0] * 2 <= weight[1] and weight[2] > 1:
        return _IN_OUT
    return _DEFAULT


def _taken_apart(ops: Sequence[StepOp], channels_last: bool) -> list[StepOp]:
    """The operators as Inductor sees them: bias apart from convolutions, layouts chosen."""
    found: list[StepOp] = []
    # Storages in channels-last: results of convolutions, and what is computed from them.
    converted: set[int | None] = set()
    for op in ops:
        for part in _without_bias(op.call):
            call = part
            if channels_last and _takes_layout(call, converted):
                call = _in_channels_last(call)
                converted |= {spec.storage for spec in call.outputs or ()}
            found.append(StepOp(call, op.module, op.source, op.phase))
    return found


def _without_bias(call: OpCall) -> tuple[OpCall, ...]:
    """A convolution with a bias as one without and an addition, which then fuses."""
    bias = call.args[2] if len(call.args) > 2 else None
    if call.name not in _CONVOLUTIONS[:2] or not isinstance(bias, TensorSpec) or not call.outputs:
        return (call,)
    out = call.outputs[0]
    shape = (1, bias.shape[0], *(1 for _ in out.shape[2:]))
    strides = (bias.shape[0], 1, *(1 for _ in out.shape[2:]))
    wide = replace(bias, shape=shape, strides=strides)
    alone = replace(call, args=(*call.args[:2], None, *call.args[3:]))
    return alone, OpCall("aten::add_", (out, wide, 1), (out,), "Tensor")


def _takes_layout(call: OpCall, converted: set[int | None]) -> bool:
    """Whether the operator works on images that a convolution made channels-last."""
    if call.name in _CONVOLUTIONS:
        return True
    if not any(t.storage in converted and len(t.shape) in (4, 5) for t in call.tensors):
        return False
    space = space_of(call)
    return space is not None and space.role not in (Role.NOTHING, Role.CONTRACTION, Role.ATTENTION)


def _in_channels_last(call: OpCall) -> OpCall:
    def laid(spec: TensorSpec) -> TensorSpec:
        if len(spec.shape) in (4, 5) and spec.is_contiguous:
            return replace(spec, strides=channels_last_strides(spec.shape))
        return spec

    def laid_in(arg: Arg) -> Arg:
        if isinstance(arg, TensorSpec):
            return laid(arg)
        return tuple(map(laid_in, arg)) if isinstance(arg, tuple) else arg

    outputs = None if call.outputs is None else tuple(map(laid, call.outputs))
    return replace(call, args=tuple(map(laid_in, call.args)), outputs=outputs)


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a tensor of this shape (N, C, ...) with C fastest."""
    strides = [0] * len(shape)
    step = shape[1]
    strides[1] = 1
    for i in range(len(shape) - 1, 1, -1):
        strides[i] = step
        step *= shape[i]
    strides[0] = step
    return tuple(strides)


def _kernel(flow: Dataflow, group: FusedGroup) -> CompiledKernel:
    ops = [flow.ops[m] for m in group.members]
    first = ops[0]
    names = tuple(op.call.name.partition("::")[2] for op in ops)
    sources = tuple(dict.fromkeys(op.source for op in ops if op.source))
    modules = tuple(dict.fromkeys(op.module for op in ops if op.module))
    fusible = first.role in (Role.POINTWISE, Role.REDUCTION, Role.NORMALISATION)
    if not fusible:
        return CompiledKernel(first.call, first.work, names, sources, modules, first.phase)
    reads, writes = tensors_of_group(flow, group)
    kind = "poi" if group.row == 1 else "per" if group.row <= _persistent(ops) else "red"
    title = "_".join(dict.fromkeys(sorted(name.strip("_") for name in names)))[:80]
    call = OpCall(f"triton_{kind}_fused_{title}", (*reads, *writes), tuple(writes))
    return CompiledKernel(call, group.work, names, sources, modules, first.phase, group.split)


def _persistent(ops: Sequence[FlowOp]) -> int:
    # ``InductorChoices.should_use_persistent_reduction``: rows that stay in registers.
    inner = all(op.space is None or op.space.inner for op in ops)
    return 1024 if inner else 64


def kernel_count(kernels: Sequence[CompiledKernel]) -> int:
    """Launches of a compiled step, a split reduction counting two."""
    return sum(1 + kernel.split for kernel in kernels)


__all__ = ["CompiledKernel", "channels_last_strides", "compiled_graph", "compiled_kernels",
           "kernel_count", "wants_channels_last"]  # fmt: skip
