"""Facts of made-up steps, with round numbers."""

from gobrrr.attribution.leaves import LEAVES
from gobrrr.fixes.facts import Facts, OpFact

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


def facts(ops=(), step_s=1.0, leaves=None, **more):
    """A step of these ops; leaves that are not given hold nothing."""
    all_leaves = dict.fromkeys(LEAVES, 0.0) | (leaves or {})
    settings = {
        "ceilings": CEILINGS, "has_compiler": True, "threads": 1, "processors": 2,
        "modules": ("Linear",), "in_no_grad": True,
    }  # fmt: skip
    return Facts(step_s=step_s, leaves=all_leaves, ops=tuple(ops), **(settings | more))


def pointwise(name, reads, writes, size=40e6, **more):
    """An elementwise op on storages of ``size`` bytes each, at 10 GB/s."""
    moved = size * (len(reads) + len(writes))
    settings = {
        "op_class": "elementwise", "bytes_moved": moved, "kernel_s": moved / 10e9,
        "roof_s": moved / 10e9, "below_s": 0.0, "fresh_bytes": size * len(writes),
        "shapes": ((10_000_000,),), "phase": "forward", "host_s": 10e-6, "fixed_s": 10e-6,
    }  # fmt: skip
    return OpFact(
        name,
        reads=tuple((s, size) for s in reads),
        writes=tuple((s, size) for s in writes),
        **(settings | more),
    )


def product(name="aten::mm", kernel_s=0.5, roof_s=0.4, **more):
    """A matrix product in float32."""
    settings = {
        "op_class": "contraction", "matrix_flops": roof_s * 100e9, "vector_flops": 0.0,
        "kernel_s": kernel_s, "roof_s": roof_s, "below_s": kernel_s - roof_s, "dtype": "float32",
        "bytes_moved": 1e6, "phase": "forward", "shapes": ((512, 512), (512, 512)),
    }  # fmt: skip
    return OpFact(name, **(settings | more))
