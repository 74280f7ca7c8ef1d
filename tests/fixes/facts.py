"""Facts of made-up steps, with round numbers."""

from gobrrr.attribution.leaves import LEAVES
from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work

# 100 GFLOP/s, 10 GB/s from memory and 100 GB/s from a cache of 1 MB.
CEILINGS = {
    "matrix.float32": 100e9,
    "matrix.bfloat16": 400e9,
    "vector.float32": 50e9,
    "vector.float32.exp": 1e9,
    "memory.dram.copy": 10e9,
    "memory.l2.copy": 100e9,
    "memory.l2.capacity": 1e6,
    "parallel.fork_join": 5e-6,
    "host.dispatches": 1e6,
}
# What stands behind the tensors in the arguments of these.
_SCALARS = {"aten::mul": (2.0,), "aten::add": (2.0, 1), "aten::add_": (2.0, 1)}


def facts(ops=(), step_s=1.0, leaves=None, **more):
    """A step of these ops; leaves that are not given hold nothing."""
    all_leaves = dict.fromkeys(LEAVES, 0.0) | (leaves or {})
    settings = {
        "ceilings": CEILINGS, "has_compiler": True, "threads": 1, "processors": 2,
        "modules": ("Linear",), "in_no_grad": True,
    }  # fmt: skip
    return Facts(step_s=step_s, leaves=all_leaves, ops=tuple(ops), **(settings | more))


def op(name, shapes=(), *, reads=(), writes=(), args=(), dtype="float32", op_class="other",
       matrix_flops=0.0, vector_flops=0.0, bytes_moved=0, fresh_bytes=0, **times):  # fmt: skip
    """An op on float32 tensors of these shapes, or on whole storages given as (id, bytes)."""
    inputs = [TensorSpec(shape, dtype) for shape in shapes]
    for place, (storage, size) in enumerate(reads):
        shape = shapes[place] if place < len(shapes) else (round(size / 4),)
        inputs[place : place + 1] = [TensorSpec(shape, dtype, None, storage)]
    outputs = tuple(
        TensorSpec(inputs[0].shape if size == 4 * inputs[0].numel else (round(size / 4),),
                   dtype, None, storage)
        for storage, size in writes
    )  # fmt: skip
    call = OpCall(name, (*inputs, *args), outputs or None)
    work = Work(matrix_flops, vector_flops, round(bytes_moved), 0, round(bytes_moved), dtype,
                op_class, fresh_bytes=round(fresh_bytes))  # fmt: skip
    return OpFact(call, work, **times)


def pointwise(name, reads, writes, size=40e6, **more):
    """An elementwise op on storages of ``size`` bytes each, at 10 GB/s."""
    moved = size * (len(reads) + len(writes))
    scalars = _SCALARS.get(name, ())
    settings = {
        "op_class": "elementwise", "bytes_moved": moved, "kernel_s": moved / 10e9,
        "roof_s": moved / 10e9, "below_s": 0.0, "fresh_bytes": size * len(writes),
        "phase": "forward", "host_s": 10e-6, "fixed_s": 10e-6,
        "args": scalars if len(reads) < 2 else scalars[1:],
    }  # fmt: skip
    return op(
        name,
        reads=tuple((s, size) for s in reads),
        writes=tuple((s, size) for s in writes),
        **(settings | more),
    )


def product(name="aten::mm", kernel_s=0.5, roof_s=0.4, **more):
    """A matrix product in float32."""
    shapes = ((512, 512), (512, 512))
    if "reads" in more:
        # A row times a column, as long as the first storage.
        length = round(more["reads"][0][1] / 4)
        shapes = ((1, length), (length, 1))
    settings = {
        "op_class": "contraction", "matrix_flops": roof_s * 100e9, "kernel_s": kernel_s,
        "roof_s": roof_s, "below_s": kernel_s - roof_s, "bytes_moved": 1e6, "phase": "forward",
        "shapes": shapes,
    }  # fmt: skip
    return op(name, **(settings | more))
