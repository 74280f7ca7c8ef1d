"""Walks of element-wise kernels: streams, and what keeps them from being as fast as memory.

Sources: PyTorch's aten/src/ATen/native/cuda: CUDALoops.cuh, Copy.cu.
"""

from __future__ import annotations

from gobrrr.prediction.kernels.walks.walk import Machine, Walk
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.pointwise import variant
from gobrrr.work.formulas.pointwise_table import POINTWISE
from gobrrr.work.traffic import arithmetic_dtype, is_sparse, tensors_in

# Instructions that an element takes whose function is two polynomials, or one and an exponential,
# of which it needs either, with loading, converting and storing it: 2.4 million bfloat16 elements
# of a GELU in a recorded H100 step take 5.05 us (``coefficients.TRACES``). ``tanh`` is built alike.
_INSTRUCTIONS = 42.0
_IN_PARTS = ("erf", "tanh")
_HALF = ("float16", "bfloat16")
_COPIES = ("copy", "_to_copy")
_TO_FLOAT8 = ("float32", *_HALF)
# Operators that take a condition as such, or convert their inputs beforehand.
_CONDITIONAL = ("where", "masked_fill", "native_dropout_backward", "_masked_scale")


def stream(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Element-wise: as fast as memory where every tensor is walked along its rows."""
    efficiency = machine.strided if crosses_rows(call) else 1.0
    indexed = _indexed(call, work)
    if machine.kind != "cuda":
        return (Walk(efficiency=efficiency, indexed=indexed),)
    converted = _widest(call) if not indexed and _casts(call) else 0.0
    issued = _issued(call, work)
    return (Walk(efficiency=efficiency, indexed=indexed, converted=converted, issued=issued),)


def _widest(call: OpCall) -> float:
    return float(max((t.numel for t in (*call.tensors, *(call.outputs or ()))), default=0))


def _issued(call: OpCall, work: Work) -> float:
    """Instructions of functions that are computed in parts, and have none of their own."""
    name = _base(call)
    if name not in POINTWISE or arithmetic_dtype(work.compute_dtype) != "float32":
        return 0.0
    chosen = variant(call)
    entry = POINTWISE[name] if chosen is None else chosen[0]
    functions = sum(function in _IN_PARTS for function in entry.functions)
    return _INSTRUCTIONS * functions * _widest(call)


def _casts(call: OpCall) -> bool:
    """Whether an element-wise kernel converts dtypes as it loads or stores.

    Then it takes elements one by one, with a switch over dtypes for each (``LoadWithCast``,
    ``needs_dynamic_casting``, ``launch_unrolled_kernel`` in CUDALoops.cuh). Such an element costs
    as much as one with an address of its own: 9.2 million from bfloat16 to float32 in a recorded
    H100 step take 29.2 us, 29.8 are told, and nothing was fitted on them. Copies from float32 to
    16 bits, and to 8, have kernels without casts (Copy.cu).
    """
    name = _base(call)
    if name in _COPIES:
        into = call.outputs[0] if call.outputs else call.tensors[0]
        source, target = call.tensors[-1 if name == "copy" else 0].dtype, into.dtype
        if source == "float32" and target in _HALF:
            return False
        if source in _TO_FLOAT8 and target.startswith("float8"):
            return False
        return source != target
    entry = POINTWISE.get(name)
    if entry is None or name in _CONDITIONAL:
        return False
    dtypes = {t.dtype for t in call.tensors[: entry.arity] if t.numel > 1 or _on_device(t)}
    if entry.result != "bool":
        dtypes |= {t.dtype for t in call.outputs or () if t.numel > 1}
    return len(dtypes) > 1


def _base(call: OpCall) -> str:
    """An operator's name without its namespace, its overload and the mark of one in place."""
    name = call.name.partition("::")[2].partition(".")[0]
    return name if name in POINTWISE or name in _COPIES else name.removesuffix("_")


def _indexed(call: OpCall, work: Work) -> float:
    """Elements of an element-wise op that computes addresses one by one; 0 for a plain stream.

    ``gpu_kernel_impl`` (CUDALoops.cuh) takes vectors where every operand is contiguous in the
    same way, and an offset calculator with integer divisions for broadcast and strided ones.
    """
    if entries := [tensors_in((arg,))[-1].numel for arg in call.args if is_sparse(arg)]:
        return float(max(entries))
    # A number that lies on the device is an operand like any other; one that the host has is given
    # to the kernel as an argument.
    # What is not read (``new_zeros``: its tensor lends a dtype and a device) is no operand.
    inputs = call.tensors if work.bytes_read != 0 or not call.outputs else ()
    tensors = [t for t in (*inputs, *(call.outputs or ())) if t.numel > 1 or _on_device(t)]
    if not tensors:
        return 0.0
    widest = max(tensors, key=lambda t: t.numel)
    if widest.numel <= 1:
        return 0.0
    same = all(
        t.shape == widest.shape and _order(t) == _order(widest) and t.unique_elements == t.numel
        and _dense(t)
        for t in tensors
    )  # fmt: skip
    if same:
        return 0.0
    # One thread for an element of the result: ``glu`` reads two elements of its input for each.
    return float(max((t.numel for t in call.outputs or ()), default=widest.numel))


def _on_device(tensor: TensorSpec) -> bool:
    return bool(tensor.numel and tensor.device) and not tensor.device.startswith("cpu")


def _order(tensor: TensorSpec) -> tuple[int, ...] | None:
    """Strides of the dimensions that have any, ``None`` for row-major order."""
    if tensor.strides is None or tensor.is_contiguous:
        return None
    return tuple(s for n, s in zip(tensor.shape, tensor.strides) if n > 1)


def _dense(tensor: TensorSpec) -> bool:
    """Whether the elements fill their memory without holes, in any order of dimensions."""
    if tensor.strides is None:
        return True
    expected = 1
    for stride, n in sorted((s, n) for n, s in zip(tensor.shape, tensor.strides) if n > 1):
        if stride != expected:
            return False
        expected *= n
    return True


def crosses_rows(call: OpCall) -> bool:
    """Whether a large operand's fastest dimension is not that of the largest one.

    Such a read touches one element of each line of memory; caches give back a part.
    """
    tensors = [t for t in (*call.tensors, *(call.outputs or ())) if t.strides and t.numel > 4096]
    if not tensors:
        return False
    widest = max(tensors, key=lambda t: t.numel)
    inner = fastest(widest)
    for tensor in tensors:
        if len(tensor.shape) != len(widest.shape) or inner is None:
            continue
        assert tensor.strides is not None
        stride = tensor.strides[inner]
        if stride > 1 and tensor.shape[inner] > 1 and fastest(tensor) != inner:
            return True
    # The output of a copy is not in every trace: a copy out of a transposed tensor crosses rows.
    name = call.name.partition("::")[2]
    if name in ("clone", "contiguous", "copy_", "_to_copy") and len(tensors) == 1:
        strides = tensors[0].strides
        return strides is not None and 0 not in strides and inner != last(tensors[0])
    return False


def fastest(tensor: TensorSpec) -> int | None:
    """The dimension of the smallest stride; ``None`` where there is none or it is not known."""
    if tensor.strides is None:
        return None
    wide = [i for i, n in enumerate(tensor.shape) if n > 1 and tensor.strides[i] > 0]
    return min(wide, key=lambda i: (tensor.strides or ())[i]) if wide else None


def last(tensor: TensorSpec) -> int | None:
    """The last dimension of more than one element."""
    wide = [i for i, n in enumerate(tensor.shape) if n > 1]
    return wide[-1] if wide else None
