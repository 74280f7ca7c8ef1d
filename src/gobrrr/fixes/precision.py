"""Lower precision: autocast, weights in 16 bits, TF32 and bf16 inside float32 matmuls, fp8."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from gobrrr.capture.workload import Workload
from gobrrr.fixes.edits import AfterImports, BeforeLoop, in_16_bits, on_inputs
from gobrrr.fixes.facts import Facts, OpFact
from gobrrr.fixes.fix import (
    MEMORY,
    NUMERICS,
    PRECISION,
    WEIGHTS,
    Considered,
    Effect,
    Fix,
    RuledOut,
    prospect_or_not,
    too_little,
)
from gobrrr.fixes.fusion import seconds_to_move
from gobrrr.fixes.programs import as_program, map_tensors, with_setting
from gobrrr.fixes.scripts import around_outermost_calls, before_first_call
from gobrrr.timeline.quantities import multiple, time_text

_MATRIX_LEAVES = ("compute.matrix.roof", "compute.matrix.below")


def _matrix_ops(facts: Facts) -> list[OpFact]:
    return [
        op for op in facts.ops if (op.matrix_flops or 0.0) > 0 and (op.dtype or "") == "float32"
    ]


def _rates(facts: Facts, dtype: str) -> tuple[float, float] | RuledOut:
    """FLOP/s of float32 and of ``dtype`` on the matrix unit, or why nothing is won."""
    full, low = facts.rate("matrix.float32"), facts.rate(f"matrix.{dtype}")
    if full is None or low is None:
        return RuledOut(f"this machine's rate of {dtype} matrix products is unknown")
    if low < 1.2 * full:
        return RuledOut(
            f"{dtype} matrix products run at {multiple(low / full)} the rate of float32 on this "
            "machine"
        )
    return full, low


def _faster_matrices_s(ops: list[OpFact], full: float, low: float) -> tuple[float, float]:
    """(kernel seconds now, at the lower precision): the roof shrinks, what is below it does half.

    What a matrix product misses its roof by is partly packing and edges, which move fewer bytes,
    partly threads, which do not get faster.
    """
    now_s = sum(op.kernel_s for op in ops)
    after_s = 0.0
    for op in ops:
        roof_s = min(op.roof_s if op.roof_s is not None else op.kernel_s, op.kernel_s)
        after_s += roof_s * full / low + (op.kernel_s - roof_s) * 0.6
    return now_s, after_s


def _consider_autocast(dtype: str, facts: Facts) -> Considered:
    nothing = too_little(facts, *_MATRIX_LEAVES)
    if nothing is not None:
        return nothing
    rates = _rates(facts, dtype)
    if isinstance(rates, RuledOut):
        return rates
    ops = _matrix_ops(facts)
    if not ops:
        return RuledOut("no float32 matrix product is left")
    now_s, after_s = _faster_matrices_s(ops, *rates)
    casts, cast_bytes = _casts(facts, ops)
    per_op_s = _per_op_s(facts)
    cast_s = casts * per_op_s + (seconds_to_move(facts, cast_bytes) or 0.0) * 1.5
    saved_s = now_s - after_s - cast_s
    return prospect_or_not(
        facts, saved_s - 0.4 * abs(now_s - after_s) - cast_s, saved_s,
        now_s * (1 - rates[0] / rates[1]),
        f"{len(ops)} float32 matrix products take {time_text(now_s)}; at "
        f"{rates[1] / rates[0]:.2g}x the rate {time_text(after_s)}, less {casts} casts for "
        f"{time_text(cast_s)}",
    )  # fmt: skip


def _per_op_s(facts: Facts) -> float:
    rate = facts.rate("host.dispatches")
    return 2.0 / rate if rate else 2e-6


def _casts(facts: Facts, ops: list[OpFact]) -> tuple[int, float]:
    """Casts that autocast adds, and their bytes: each input of a matrix product once a step.

    A cast reads 4 bytes and writes 2 for each element; weights are cast once in each forward.
    """
    seen: set[tuple[int, tuple[int, ...]]] = set()
    count, moved = 0, 0.0
    for op in ops:
        if op.phase == "backward":
            continue
        for storage, size in op.reads:
            key = (storage, (int(size),))
            if key not in seen:
                seen.add(key)
                count += 1
                moved += 1.5 * size
        if not op.reads:
            count += 2
            moved += 1.5 * (op.bytes_moved or 0.0)
    # The backward pass casts the gradients of the weights back.
    return (2 * count, 2 * moved) if facts.trains else (count, moved)


def _autocast(dtype: str) -> AbstractContextManager[Any]:
    import torch

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    setting: AbstractContextManager[Any] = torch.autocast(kind, dtype=getattr(torch, dtype))
    return setting


def _apply_autocast(dtype: str) -> Callable[[Workload], AbstractContextManager[Workload]]:
    @contextmanager
    def apply(work: Workload) -> Iterator[Workload]:
        yield with_setting(work, partial(_autocast, dtype), forward_only=True)

    return apply


def _autocast_in_script(dtype: str) -> Callable[[], AbstractContextManager[None]]:
    def call(module: Any, original: Any, args: Any, kwargs: Any) -> Any:
        import torch

        if next(module.parameters(), None) is None:
            return original(module, *args, **kwargs)
        with _autocast(dtype):
            result = original(module, *args, **kwargs)
        # The script goes on in float32, where a loss belongs.
        low = getattr(torch, dtype)
        return map_tensors(result, lambda t: t.float() if t.dtype == low else t)

    return lambda: around_outermost_calls(call)


def _autocast_fix(dtype: str, name: str) -> Fix:
    def consider(facts: Facts) -> Considered:
        if dtype == "float16" and facts.trains:
            return RuledOut("float16 gradients underflow without a GradScaler; bf16 needs none")
        return _consider_autocast(dtype, facts)

    return Fix(
        name=name,
        title=f"{dtype} autocast",
        leaves=(*_MATRIX_LEAVES, "memory.device.roof"),
        may_change=(NUMERICS, MEMORY),
        consider=consider,
        snippet=(
            f'with torch.autocast(device_type, dtype=torch.{dtype}):\n    output = model(*inputs)'
        ),
        apply=_apply_autocast(dtype),
        in_script=_autocast_in_script(dtype),
        in_source=(
            BeforeLoop(
                (
                    "{model}.forward = torch.autocast(next({model}.parameters()).device.type, "
                    f"dtype=torch.{dtype})({{model}}.forward)",
                    *in_16_bits(dtype),
                )
            ),
        ),
        effect=Effect(bytes_left=0.5, matrix_dtype=dtype),
        claims=(PRECISION,),
    )  # fmt: skip


def _consider_storage(facts: Facts) -> Considered:
    if facts.trains:
        return RuledOut("weights that train in bf16 lose small updates: use autocast")
    if not facts.modules:
        return RuledOut("gobrrr sees no module to convert: give (module, inputs)")
    if "float32" not in facts.parameter_dtypes:
        return RuledOut("no parameter is stored in float32")
    full, low = facts.rate("matrix.float32"), facts.rate("matrix.bfloat16")
    if full is None or low is None:
        return RuledOut("this machine's rate of bfloat16 matrix products is unknown")
    ops = _matrix_ops(facts)
    matrix_s = sum(op.kernel_s for op in ops)
    matrix_after_s = sum(_stored_in_16_bits_s(facts, op, low) for op in ops)
    # Everything else moves half the bytes; vector code converts on the way.
    others = [op for op in facts.ops if op.op_class in ("elementwise", "normalisation")]
    memory_s = sum((op.roof_s or 0.0) + op.page_faults_s for op in others)
    saved_s = matrix_s - matrix_after_s + 0.5 * memory_s
    return prospect_or_not(
        facts, saved_s - 0.5 * abs(matrix_s - matrix_after_s) - 0.5 * memory_s, saved_s,
        max(matrix_s - 0.8 * matrix_after_s, 0.0) + 0.6 * memory_s,
        f"matrix products take {time_text(matrix_s)} in float32 and about "
        f"{time_text(matrix_after_s)} in bf16, at {low / full:.2g}x the rate; "
        f"{time_text(memory_s)} of elementwise memory time moves half the bytes",
    )  # fmt: skip


def _stored_in_16_bits_s(facts: Facts, op: OpFact, rate: float) -> float:
    """Kernel seconds of a product whose operands are half as large, at this FLOP/s."""
    streamed_s = seconds_to_move(facts, 0.5 * (op.bytes_moved or 0.0)) or 0.0
    roof_s = max((op.matrix_flops or 0.0) / rate, streamed_s)
    return roof_s + 0.6 * (op.below_s or 0.0)


def _store_in_bf16(module: Any) -> None:
    """Its weights in bf16; inputs are converted on the way in, results on the way out.

    So it is called as before: by a script that goes on in float32, and by who takes the winner.
    """
    import torch

    def convert(tensor: Any) -> Any:
        return tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor

    def back(tensor: Any) -> Any:
        return tensor.float() if tensor.dtype == torch.bfloat16 else tensor

    module.to(torch.bfloat16)
    module.register_forward_pre_hook(
        lambda _, args, kwargs: (map_tensors(args, convert), map_tensors(kwargs, convert)),
        with_kwargs=True,
    )
    module.register_forward_hook(lambda _, args, result: map_tensors(result, back))


@contextmanager
def _apply_storage(work: Workload) -> Iterator[Workload]:
    program = as_program(work)
    _store_in_bf16(program.model)
    yield program


def _storage_in_script() -> AbstractContextManager[None]:
    return before_first_call(_store_in_bf16)


# Precision of float32 matrix products: what torch.set_float32_matmul_precision calls it, the
# ceiling it reaches, and what the hardware then computes in.
_ON_GPU = ("high", "tf32", "TF32")
_ON_CPU = ("medium", "bfloat16", "bf16")


def _consider_matmul_precision(setting: tuple[str, str, str], facts: Facts) -> Considered:
    wanted_gpu = setting is _ON_GPU
    if facts.on_gpu != wanted_gpu:
        return RuledOut("a setting of GPUs" if wanted_gpu else "a setting of CPUs")
    nothing = too_little(facts, *_MATRIX_LEAVES)
    if nothing is not None:
        return nothing
    rates = _rates(facts, setting[1])
    if isinstance(rates, RuledOut):
        return rates
    ops = [op for op in _matrix_ops(facts) if "conv" not in op.name or wanted_gpu]
    now_s, after_s = _faster_matrices_s(ops, *rates)
    # Inputs stay float32: each product converts them as it reads them.
    convert_s = seconds_to_move(facts, sum(op.bytes_moved or 0.0 for op in ops)) or 0.0
    if wanted_gpu:
        convert_s = 0.0
    saved_s = now_s - after_s - convert_s
    return prospect_or_not(
        facts, 0.3 * saved_s - convert_s, saved_s, now_s * (1 - rates[0] / rates[1]),
        f"float32 matrix products take {time_text(now_s)}; inside in {setting[2]}, at "
        f"{rates[1] / rates[0]:.2g}x the rate, {time_text(after_s)} and "
        f"{time_text(convert_s)} to convert",
    )  # fmt: skip


def _matmul_precision(setting: tuple[str, str, str], name: str) -> Fix:
    @contextmanager
    def precision() -> Iterator[None]:
        import torch

        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(setting[0])
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    @contextmanager
    def apply(work: Workload) -> Iterator[Workload]:
        yield with_setting(work, precision)

    return Fix(
        name=name,
        title=f"{setting[2]} inside float32 matrix products",
        leaves=_MATRIX_LEAVES,
        may_change=(NUMERICS,),
        consider=partial(_consider_matmul_precision, setting),
        snippet=f'torch.set_float32_matmul_precision("{setting[0]}")',
        apply=apply,
        in_script=precision,
        in_source=(AfterImports((f'torch.set_float32_matmul_precision("{setting[0]}")',)),),
        effect=Effect(matrix_dtype=setting[1]),
        claims=(PRECISION,),
    )


def _consider_fp8(facts: Facts) -> Considered:
    nothing = too_little(facts, *_MATRIX_LEAVES)
    if nothing is not None:
        return nothing
    now = "bfloat16" if "bfloat16" in facts.parameter_dtypes else "float32"
    full, low = facts.rate(f"matrix.{now}"), facts.rate("matrix.float8_e4m3fn")
    if full is None or low is None:
        return RuledOut("this device has no fp8 matrix unit that gobrrr knows the rate of")
    matrix_s = facts.leaf_s(*_MATRIX_LEAVES)
    saved_s = facts.leaf_s("compute.matrix.roof") * (1 - full / low)
    return prospect_or_not(
        facts, 0.0, 0.5 * saved_s, saved_s,
        f"matrix products take {time_text(matrix_s)} in {now}; fp8 runs at {low / full:.2g}x",
    )  # fmt: skip


BF16_AUTOCAST = _autocast_fix("bfloat16", "bf16_autocast")
FP16_AUTOCAST = _autocast_fix("float16", "fp16_autocast")
BF16_STORAGE = Fix(
    name="bf16_storage",
    title="Weights and activations stored in bf16",
    leaves=(*_MATRIX_LEAVES, "memory.device.roof", "memory.page_faults"),
    may_change=(NUMERICS, MEMORY),
    consider=_consider_storage,
    snippet="model = model.to(torch.bfloat16)  # and its floating-point inputs",
    apply=_apply_storage,
    in_script=_storage_in_script,
    in_source=(
        BeforeLoop(
            (
                "{model}.to(torch.bfloat16)",
                on_inputs("t.to(torch.bfloat16) if t.is_floating_point() else t"),
                *in_16_bits("bfloat16"),
            )
        ),
    ),
    effect=Effect(bytes_left=0.5, matrix_dtype="bfloat16"),
    claims=(PRECISION, WEIGHTS),
)
TF32 = _matmul_precision(_ON_GPU, "tf32")
BF16_MATMUL = _matmul_precision(_ON_CPU, "bf16_matmul")
FP8 = Fix(
    name="fp8",
    title="fp8 matrix products (torchao)",
    leaves=_MATRIX_LEAVES,
    may_change=(NUMERICS, MEMORY),
    consider=_consider_fp8,
    snippet=(
        "from torchao.float8 import convert_to_float8_training\nconvert_to_float8_training(model)"
    ),
)
